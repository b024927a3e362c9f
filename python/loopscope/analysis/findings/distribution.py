"""Patterns of the distribution: times that lie on a grid, and several modes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings.candidate import Candidate, Evidence, rounded
from loopscope.analysis.findings.chances import smoothed
from loopscope.analysis.findings.lines import strongest
from loopscope.analysis.findings.series import (
    CERTAIN,
    SUGGESTED,
    explained,
    independent_share,
    is_certain,
    log_binomial_tail,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.findings.series import Floats

    Places = npt.NDArray[np.int64]

_CELLS = 2048
_LEAST_STEPS = 2.0
"""Steps of a grid that the times span, at least."""
_MOST_STEPS = 64
_USED = 0.3
"""The share of a grid's steps, from the first to the last one in use, that are in use at least."""
_COLUMNS = 512
_BANDWIDTHS = (0.5, 0.25, 0.12)
"""Bandwidths of a smoothed distribution, in units of Silverman's rule."""
_LEAST_SHARE = 0.05
"""Share of the messages that a mode has at least."""
_VALLEY = 0.5
"""A valley between modes is less deep than this share of the lower one: then they are one."""
_MOST_MODES = 6


def search_grid(rest: Floats, whole: Floats, least: float) -> Candidate | None:
    """The grid on which the times lie; None where they do not.

    ``least``, ns: a finer grid is that of the stamps.
    """
    low, high = (float(each) for each in np.quantile(rest, [0.01, 0.99]))
    span = high - low
    if span <= 0:
        return None
    margin = span / 8
    begin, width = low - margin, (span + 2 * margin) / _CELLS
    kept = rest[(rest >= begin) & (rest < begin + _CELLS * width)]
    counts = np.bincount(((kept - begin) / width).astype(np.int64), minlength=_CELLS)[:_CELLS]
    line = strongest(counts.astype(np.float64), _LEAST_STEPS, _CELLS / _MOST_STEPS / 1.25)
    if line is None or line.log_p > math.log(SUGGESTED):
        return None
    grid, offset, strength = _aligned(kept, line.period * width)
    if span < _LEAST_STEPS * grid or grid < least:
        return None
    # Correlated times are fewer.
    share = independent_share(rest)
    log_p = max(line.log_p, -len(kept) * share * strength**2 + math.log(_CELLS))
    return _on_grid(whole, rest, grid, offset, log_p)


def _on_grid(
    whole: Floats, rest: Floats, grid: float, offset: float, log_p: float
) -> Candidate | None:
    """The candidate of a grid; None where the times are on few of its steps."""
    cell = np.rint((rest - offset) / grid)
    within = rest - offset - cell * grid
    places, counts = np.unique(cell, return_counts=True)
    used = places[counts > 0.02 * len(rest)]
    steps = len(used)
    # Two narrow modes lie on every grid that divides their distance, and leave most of it free.
    if steps < 3 or steps < _USED * (used[-1] - used[0] + 1):
        return None
    # Times without a grid are as far from its steps as any: that explains nothing.
    scatter = min(float(np.quantile(np.abs(within), 0.8)) / (0.4 * grid), 1.0)
    part = explained(whole, rest, within) * (1 - scatter**2)
    text = f"the times lie on a grid of {rounded(grid)}, {steps} of its steps are in use"
    evidence = (
        Evidence("grid", grid, "ns"),
        Evidence("offset", float(np.mod(offset, grid)), "ns"),
        Evidence("scatter", float(np.median(np.abs(within))), "ns"),
        Evidence("steps", float(steps), ""),
    )
    fit = cell * grid + offset
    return Candidate("quantised", evidence, text, min(log_p, 0.0), part, fit, within)


def _aligned(values: Floats, grid: float) -> tuple[float, float, float]:
    """The grid near another one on which the values lie best, its offset, and how well, 0 to 1."""
    span = float(values.max() - values.min())
    width = grid * grid / span / 2
    for _ in range(3):
        tried = np.linspace(grid - width, grid + width, 41)
        turns = [complex(np.mean(np.exp(2j * np.pi * values / each))) for each in tried]
        best = int(np.argmax(np.abs(turns)))
        grid, turn, width = float(tried[best]), turns[best], width / 10
    return grid, float(np.angle(turn) / (2 * np.pi) * grid), abs(turn)


def search_modes(rest: Floats, whole: Floats) -> Candidate | None:
    """The modes of the distribution, where a valley between them is no chance; else None."""
    low, high = (float(each) for each in np.quantile(rest, [0.005, 0.995]))
    if high <= low:
        return None
    edges: Floats = np.linspace(low, high, _COLUMNS + 1, dtype=np.float64)
    counts = np.histogram(rest, edges)[0].astype(np.float64)
    quarters = np.quantile(rest, [0.25, 0.75])
    spread = min(float(np.std(np.clip(rest, low, high))), float(np.diff(quarters)[0]) / 1.34)
    usual = 0.9 * (spread or (high - low) / 10) * len(rest) ** -0.2 / (edges[1] - edges[0])
    best: Candidate | None = None
    for bandwidth in _BANDWIDTHS:
        smooth = smoothed(counts, max(usual * 4 * bandwidth, 1.0))
        cuts, log_p = _valleys(smooth, counts, rest, edges)
        if not cuts:
            continue
        found = _of_modes(rest, whole, cuts, min(log_p + math.log(len(_BANDWIDTHS)), 0.0))
        if found is None:
            continue
        sure = is_certain(found.log_p)
        # Each narrower one may tell more of them apart.
        if best is None or sure or found.log_p < best.log_p:
            best = found
    return best


def _valleys(
    smooth: Floats, counts: Floats, rest: Floats, edges: Floats
) -> tuple[list[float], float]:
    """Where to cut the values into modes, and the logarithm of the worst cut's probability."""
    peaks = _peaks(smooth)
    while len(peaks) > 1:
        both = list(zip(peaks, peaks[1:], strict=False))
        cuts = [int(a + np.argmin(smooth[a : b + 1])) for a, b in both]
        depth = [
            smooth[cut] / min(smooth[a], smooth[b]) for cut, (a, b) in zip(cuts, both, strict=True)
        ]
        limits = [0, *(cut + 1 for cut in cuts), len(counts)]
        shares = [counts[a:b].sum() for a, b in zip(limits, limits[1:], strict=False)]
        shallow, smallest = int(np.argmax(depth)), int(np.argmin(shares))
        # The shallowest valley goes, then the modes with too few messages, then what may be chance.
        if depth[shallow] > _VALLEY:
            peaks = np.delete(peaks, _lower(smooth, peaks, shallow))
        elif shares[smallest] < _LEAST_SHARE * counts.sum():
            peaks = np.delete(peaks, smallest)
        else:
            cuts = [_deepest(smooth, a, b) for a, b in both]
            chances = [
                _chance(counts, (rest > edges[cut]).astype(np.float64), cut, a, b, smooth)
                for cut, (a, b) in zip(cuts, both, strict=True)
            ]
            worst = int(np.argmax(chances))
            if len(cuts) == 1 or chances[worst] < math.log(CERTAIN / 10):
                few = len(peaks) <= _MOST_MODES
                places = [float(edges[cut] + edges[cut + 1]) / 2 for cut in cuts]
                return (places, chances[worst]) if few else ([], 0.0)
            peaks = np.delete(peaks, _lower(smooth, peaks, worst))
    return [], 0.0


def _peaks(smooth: Floats) -> Places:
    """The middle of each run of equal values that is higher than both neighbours, 0 at the ends."""
    firsts = np.flatnonzero(np.diff(smooth, prepend=-1.0))
    lasts = np.append(firsts[1:], len(smooth)) - 1
    heights = np.concatenate([[0.0], smooth[firsts], [0.0]])
    is_peak = (heights[1:-1] > heights[:-2]) & (heights[1:-1] > heights[2:])
    middles: Places = (firsts + lasts)[is_peak] // 2
    return middles


def _deepest(smooth: Floats, a: int, b: int) -> int:
    """The middle of the columns between two peaks that have the fewest messages."""
    between = smooth[a : b + 1]
    low = between <= between.min() + 0.05 * min(smooth[a], smooth[b])
    return int(a + np.median(np.flatnonzero(low)))


def _lower(smooth: Floats, peaks: Places, valley: int) -> int:
    """The place of the lower one of the peaks around a valley."""
    return valley if smooth[peaks[valley]] < smooth[peaks[valley + 1]] else valley + 1


def _chance(counts: Floats, above: Floats, cut: int, a: int, b: int, smooth: Floats) -> float:
    """Logarithm of the probability of a valley with so few messages where there is one mode.

    As many columns at the valley as around the lower peak would have no fewer then.
    """
    width = max(min(cut - a, b - cut) // 3, 1)
    lower = int(a if smooth[a] < smooth[b] else b)
    valley = counts[max(cut - width, 0) : cut + width + 1].sum()
    peak = counts[max(lower - width, 0) : lower + width + 1].sum()
    share = independent_share(above)
    found, both = round(valley * share), round((valley + peak) * share)
    # As many successes are as likely as failures.
    return log_binomial_tail(both - found, both, 0.5) + math.log(len(counts))


def _of_modes(rest: Floats, whole: Floats, cuts: list[float], log_p: float) -> Candidate | None:
    place = np.searchsorted(cuts, rest)
    middles, shares, usual = [], [], []
    for mode in range(len(cuts) + 1):
        of = place == mode
        middles.append(float(np.median(rest[of])))
        usual.append(float(np.median(whole[of])))
        shares.append(float(of.mean()))
    if (found := _equally_spaced(rest, whole, np.array(middles), log_p)) is not None:
        return found
    fit = np.array(middles)[place]
    part = explained(whole, rest, rest - fit)
    told = [f"{100 * s:.0f} % at {rounded(m)}" for s, m in zip(shares, usual, strict=True)]
    text = f"the times have {len(usual)} modes: {', '.join(told[:-1])} and {told[-1]}"
    evidence = []
    for number, (share, middle) in enumerate(zip(shares, usual, strict=True), start=1):
        evidence += [
            Evidence(f"mode {number}", middle, "ns"),
            Evidence(f"share {number}", share, ""),
        ]
    return Candidate("modes", tuple(evidence), text, log_p, part, fit, rest - fit)


def _equally_spaced(rest: Floats, whole: Floats, middles: Floats, log_p: float) -> Candidate | None:
    """Three or more modes on a grid; None of others."""
    if len(middles) < 3:
        return None
    apart = np.diff(middles)
    steps = np.rint(apart / apart.min())
    places = np.concatenate([[0.0], np.cumsum(steps)])
    grid, offset = np.polyfit(places, middles, 1)
    if np.abs(middles - offset - places * grid).max() > 0.1 * grid:
        return None
    return _on_grid(whole, rest, float(grid), float(offset), log_p)
