"""Patterns that repeat: late messages at regular instants, and sawteeth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings.candidate import Candidate, Evidence
from loopscope.analysis.findings.lines import strongest
from loopscope.analysis.findings.series import (
    CERTAIN,
    SUGGESTED,
    Series,
    explained,
    normal_scores,
)
from loopscope.analysis.quantity_text import duration, number

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.findings.series import Floats, Mask

    Places = npt.NDArray[np.int64]

LEAST_CYCLES = 3.0
_MOST_CELLS = 1 << 16
_INPUTS = 2
_BINS = (4, 8, 16, 32, 64, 128, 256, 512)
_PARTS = (2, 3, 4, 5, 6)
_APART = 5
"""Messages between two bursts, at least."""
_JUMPS = 64
"""Phases at which a sawtooth's jump is looked for."""
_AS_SAWTOOTH = 0.85
"""The share of what the whole profile explains that a straight line must explain."""


def search(series: Series, rest: Floats, whole: Floats) -> Candidate | None:
    """The strongest pattern that repeats in what is left of the times, ``rest``.

    ``whole`` are all times, in whose variance shares are.
    """
    scores = normal_scores(rest)
    late = _late(rest)
    found = []
    for values in (scores, late):
        line, step = None, 0.0
        if values.any():
            cells, step = _cells(series, values)
            line = strongest(cells, LEAST_CYCLES)
        if line is None:
            continue
        log_p = line.log_p + math.log(_INPUTS)
        if log_p > math.log(SUGGESTED):
            continue
        period = _refined(series, scores + late, line.period * step, line.harmonics)
        period, profile = _shortest(series, rest, period)
        candidate = _bursts(series, rest, whole, period, profile, log_p)
        if values is scores:
            # Few late messages alone make no line of another shape.
            candidate = (
                _sawtooth(series, rest, whole, period, profile, log_p)
                or candidate
                or _swing(series, rest, whole, period, profile, log_p)
            )
        if candidate is not None:
            found.append(candidate)
    return max(
        found, key=lambda each: (each.log_p < math.log(CERTAIN), each.explained), default=None
    )


def _late(rest: Floats) -> Floats:
    """Which messages are far above the others, as 0 and 1; none where no few of them are."""
    low, middle, high = np.quantile(rest, [0.25, 0.5, 0.75])
    late = rest > middle + 4 * max(high - middle, middle - low)
    share = float(late.mean())
    return late.astype(np.float64) if share < 0.2 else np.zeros(len(rest))


def _cells(series: Series, values: Floats) -> tuple[Floats, float]:
    """The values as sums over cells of equal width, and that width in ns."""
    span = float(series.at[-1])
    step = max(series.interval, span / _MOST_CELLS)
    count = round(span / step) + 1
    place = np.minimum(np.rint(series.at / step).astype(np.int64), count - 1)
    centred = values - values.mean()
    sums: Floats = np.bincount(place, weights=centred, minlength=count).astype(np.float64)
    return sums, step


def _refined(series: Series, values: Floats, period: float, harmonics: int) -> float:
    """The period near another one at which messages of one phase are most alike."""
    bins = int(min(max(4 * harmonics, 8), max(4, len(series) // 8), 256))
    span = float(series.at[-1])
    width = period * period / span / (2 * harmonics)
    best = (-1.0, period)
    for _ in range(2):
        for each in np.linspace(best[1] - width, best[1] + width, 21) if width else ():
            best = max(best, (_between(series.at, values, float(each), bins), float(each)))
        width /= 8
    return best[1]


def _between(at: Floats, values: Floats, period: float, bins: int) -> float:
    place = _place(at, period, bins)
    counts = np.bincount(place, minlength=bins)
    sums = np.bincount(place, weights=values, minlength=bins)
    return float(np.sum(sums[counts > 0] ** 2 / counts[counts > 0]))


def _place(at: Floats, period: float, bins: int) -> Places:
    phase = np.mod(at / period, 1.0)
    places: Places = np.minimum((phase * bins).astype(np.int64), bins - 1)
    return places


def _shortest(series: Series, rest: Floats, period: float) -> tuple[float, _Profile]:
    """A period or the part of it that explains as much, with its profile."""
    found = period, _profile(series, rest, period)
    for part in _PARTS:
        if period / part < 3 * series.interval:
            break
        shorter = _profile(series, rest, period / part)
        if shorter.explained > max(0.75 * found[1].explained, 0.01):
            found = period / part, shorter
    return found


class _Profile:
    """The times by their phase, as steps."""

    def __init__(self, values: Floats, bins: int, share: float) -> None:
        self.values = values
        self.bins = bins
        self.explained = share


def _profile(series: Series, rest: Floats, period: float) -> _Profile:
    """The profile that best predicts the even cycles from the odd ones, and the other way round."""
    half = np.floor(series.at / period).astype(np.int64) % 2
    total = float(np.sum((rest - rest.mean()) ** 2))
    best: _Profile | None = None
    for bins in _BINS:
        # Finer ones would tell messages apart by where they are on the clock's grid.
        if best is not None and (len(rest) < 6 * bins or bins * series.interval > period):
            break
        place = _place(series.at, period, bins)
        for of in (_means, _medians):
            error = 0.0
            for one in (0, 1):
                known, asked = half != one, half == one
                predicted = of(place[known], rest[known], bins)[place[asked]]
                error += float(np.sum((rest[asked] - predicted) ** 2))
            share = 1 - error / total if total else 0.0
            if best is None or share > best.explained + 0.005:
                best = _Profile(of(place, rest, bins), bins, share)
    assert best is not None
    return best


def _means(place: Places, values: Floats, bins: int) -> Floats:
    """The mean of each bin; in those without a message that of all."""
    counts = np.bincount(place, minlength=bins)
    sums = np.bincount(place, weights=values, minlength=bins)
    middle = float(values.mean()) if len(values) else 0.0
    return np.where(counts > 0, sums / np.maximum(counts, 1), middle)


def _medians(place: Places, values: Floats, bins: int) -> Floats:
    """The median of each bin; in those without a message that of all."""
    order = np.lexsort((values, place))
    ordered = values[order]
    counts = np.bincount(place, minlength=bins)
    ends = np.cumsum(counts)
    middle = float(np.median(values)) if len(values) else 0.0
    low = np.clip(ends - counts + (counts - 1) // 2, 0, max(len(values) - 1, 0))
    high = np.clip(ends - counts + counts // 2, 0, max(len(values) - 1, 0))
    if not len(values):
        return np.full(bins, middle)
    return np.where(counts > 0, (ordered[low] + ordered[high]) / 2, middle)


def _sawtooth(
    series: Series, rest: Floats, whole: Floats, period: float, profile: _Profile, log_p: float
) -> Candidate | None:
    """The pattern as a straight line that starts again; None where it is not one."""
    limits = np.quantile(rest, [0.005, 0.995])
    kept = np.clip(rest, *limits)
    total = float(np.var(kept))
    if total == 0:
        return None

    def fitted(jump: float, length: float) -> tuple[float, float, Floats]:
        ramp = np.mod(series.at / length - jump, 1.0) - 0.5
        deviation = ramp - ramp.mean()
        slope = float(np.mean(deviation * kept) / np.mean(deviation**2))
        return slope**2 * float(np.mean(deviation**2)) / total, slope, ramp

    best = max((fitted(jump / _JUMPS, period)[0], jump / _JUMPS, period) for jump in range(_JUMPS))
    across, along = 1 / _JUMPS, period * period / float(series.at[-1]) / 8
    for _ in range(3):
        near = [
            (best[1] + i * across / 4, best[2] + j * along / 4)
            for i in range(-4, 5)
            for j in range(-4, 5)
        ]
        best = max(best, max((fitted(*each)[0], *each) for each in near))
        across, along = across / 4, along / 4
    _, jump, period = best
    share, height, ramp = fitted(jump, period)
    height = _height(kept, ramp, height)
    of_profile = explained(kept, kept, kept - profile.values[
        _place(series.at, period, profile.bins)])  # fmt: skip
    if share < _AS_SAWTOOTH * of_profile or share < 0.02:
        return None
    fit = height * ramp
    log_p = max(log_p, _by_cycles(series, kept, period, fit))
    left = rest - fit
    # Messages at the jump may belong to either side of it.
    at_jump = np.abs(ramp) > 0.45
    size = abs(height)
    folded = np.mod(left - np.median(left) + size / 2, size) - size / 2 + np.median(left)
    left = np.where(at_jump & (np.abs(left - np.median(left)) > size / 2), folded, left)
    part = explained(whole, rest, left)
    interval = series.interval
    # What a message's time gains on that of the one before it.
    gain = height * interval / period
    cycles = float(series.at[-1]) / period
    times = max(1, round(interval / size))
    longer = "longer" if gain > 0 else "shorter"
    several = "" if times == 1 else f"{times} times "
    text = (
        f"the time {'rises' if gain > 0 else 'falls'} by {duration(size)} every {duration(period)} "
        f"and jumps back: two periods beat, and {several}one of about {duration(size)} is "
        f"{duration(abs(gain))} {longer} than the messages' {duration(interval)}"
    )
    if size > 2 * interval:
        text = text.partition(": ")[0] + f": two periods beat, {duration(abs(gain))} apart"
    evidence = (
        Evidence("period", period, "ns"),
        Evidence("phase", float(np.mod(jump, 1.0)) * period, "ns"),
        Evidence("amplitude", size, "ns"),
        Evidence("difference", gain, "ns"),
        Evidence("interval", interval, "ns"),
        Evidence("cycles", cycles, ""),
    )
    return Candidate("sawtooth", evidence, text, log_p, part, fit, left)


def _height(values: Floats, ramp: Floats, height: float) -> float:
    """The height of a sawtooth without the messages that are far from it or near its jump."""
    middle = np.abs(ramp) < 0.45
    for _ in range(3):
        left = values - height * ramp
        away = np.abs(left - np.median(left))
        near = middle & (away <= 4 * np.median(away))
        if np.ptp(ramp[near]) < 0.5:
            break
        height = float(np.polyfit(ramp[near], values[near], 1)[0])
    return height


def _bursts(
    series: Series, rest: Floats, whole: Floats, period: float, profile: _Profile, log_p: float
) -> Candidate | None:
    """The pattern as messages that are late at one phase; None where most of the cycle is high."""
    place = _place(series.at, period, profile.bins)
    base = float(np.median(profile.values))
    top = float(profile.values.max())
    high = profile.values > base + (top - base) / 4
    within = high[place]
    outside = rest[~within]
    usual = float(np.median(outside)) if len(outside) else base
    share = float(high.mean())
    cycles = float(series.at[-1]) / period
    part = min(max(profile.explained * float(np.var(rest) / np.var(whole)), 0.0), 1.0)
    if share > 0.4 or top <= usual:
        return None
    late = rest > usual + (top - usual) / 4
    log_p = max(log_p, _by_chance(series, late, within, share, profile.bins))
    late &= within
    # What is late at that phase is explained by it, as late as it is.
    left = np.where(late, usual, rest)
    each = float(late.sum()) / max(cycles, 1.0)
    most = float((rest[late] - usual).max()) if late.any() else 0.0
    about = max(1, round(each))
    messages = "message is" if about == 1 else "messages are"
    text = (
        f"every {duration(period)} some {number(about)} {messages} late, by up to {duration(most)}"
    )
    evidence = (
        Evidence("period", period, "ns"),
        Evidence("phase", _first_high(high) / profile.bins * period, "ns"),
        Evidence("messages", each, ""),
        Evidence("late by", most, "ns"),
        Evidence("width", share * period, "ns"),
        Evidence("cycles", cycles, ""),
    )
    return Candidate("periodic", evidence, text, log_p, part, np.where(late, rest - usual, 0), left)


def _swing(
    series: Series, rest: Floats, whole: Floats, period: float, profile: _Profile, log_p: float
) -> Candidate:
    """The pattern as any shape."""
    place = _place(series.at, period, profile.bins)
    shape = profile.values[place] - float(np.mean(profile.values[place]))
    log_p = max(log_p, _by_cycles(series, rest, period, shape))
    part = min(max(profile.explained * float(np.var(rest) / np.var(whole)), 0.0), 1.0)
    swing = float(profile.values.max() - profile.values.min())
    text = f"the time rises and falls by {duration(swing)} every {duration(period)}"
    evidence = (
        Evidence("period", period, "ns"),
        Evidence("phase", float(np.argmax(profile.values) / profile.bins * period), "ns"),
        Evidence("swing", swing, "ns"),
        Evidence("cycles", float(series.at[-1]) / period, ""),
    )
    return Candidate("periodic", evidence, text, log_p, part, shape, rest - shape)


def _by_cycles(series: Series, values: Floats, period: float, shape: Floats) -> float:
    """Logarithm of the probability that cycles are as alike as this by chance.

    A t-test on how high the shape is in each cycle. A few great deviations that happen to suit
    the shape make the heights differ, however much of the variance they are.
    """
    from scipy.special import stdtr

    cycle = np.floor(series.at / period).astype(np.int64)
    size = np.bincount(cycle, weights=shape**2)
    both = np.bincount(cycle, weights=shape * (values - values.mean()))
    heights = both[size > 0.25 * size.max()] / size[size > 0.25 * size.max()]
    if len(heights) < 3:
        return 0.0
    spread = float(np.std(heights, ddof=1)) / math.sqrt(len(heights))
    if spread == 0:
        return -math.inf
    p = float(stdtr(len(heights) - 1, -float(heights.mean()) / spread))
    return math.log(max(p, 1e-300))


def _by_chance(series: Series, late: Mask, within: Mask, share: float, bins: int) -> float:
    """Logarithm of the probability that so many bursts are in the high part of the cycle.

    Messages that are late one soon after the other are one burst. Few bursts make a strong line
    wherever some of them happen to be in step, so the spectrum alone would be too sure.
    """
    from scipy.stats import binom

    places = np.flatnonzero(late)
    begins = np.diff(places, prepend=-_APART - 1) > _APART
    count, hits = int(begins.sum()), int(within[places[begins]].sum())
    # Periods, phases and widths that may have been found.
    trials = math.log(len(series)) + 2 * math.log(bins) + math.log(len(_BINS))
    return min(float(binom.logsf(hits - 1, count, share)) + trials, 0.0)


def _first_high(high: Mask) -> int:
    """The first bin of those that are high, also where they go over the end."""
    begins = np.flatnonzero(high & ~np.roll(high, 1))
    return int(begins[0]) if len(begins) else 0
