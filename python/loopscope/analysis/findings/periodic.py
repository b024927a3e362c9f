"""Patterns that repeat: late messages at regular instants, and sawteeth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings.candidate import Candidate, Evidence, rounded
from loopscope.analysis.findings.chances import student_below
from loopscope.analysis.findings.lines import strongest
from loopscope.analysis.findings.series import (
    SUGGESTED,
    Series,
    explained,
    is_certain,
    log_binomial_tail,
    normal_scores,
)
from loopscope.analysis.quantity_text import duration, number

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.findings.series import Floats, Mask

    Places = npt.NDArray[np.int64]

LEAST_CYCLES = 3.0
_MOST_CELLS = 1 << 16
_INPUTS = 3
_BINS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_PARTS = (2, 3, 4, 5, 6)
_PARTS_OF_USUAL = (0.9, 0.5, 0.25)
_MULTIPLES = 32
_APART = 5
"""Messages between two bursts, at least."""
_FEW = 64
"""The bursts of late messages that are looked at by themselves: those that are late most."""
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
    for values in (scores, late, _latest(rest, late)):
        line, step = None, 0.0
        if values.any():
            cells, step = _cells(series, values)
            line = strongest(cells, LEAST_CYCLES)
        if line is None:
            continue
        log_p = line.log_p + math.log(_INPUTS)
        if log_p > math.log(SUGGESTED):
            continue
        length = line.period * step
        if values is not scores:
            length = _longest(series, values, length)
        period = _refined(series, values - values.mean(), length, line.harmonics)
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
    return max(found, key=lambda each: (is_certain(each.log_p), each.explained), default=None)


def _late(rest: Floats) -> Floats:
    """1 for messages far above the others, else 0; all 0 where many messages are far above."""
    low, middle, high = np.quantile(rest, [0.25, 0.5, 0.75])
    late = rest > middle + 6 * max(high - middle, middle - low)
    share = float(late.mean())
    return late.astype(np.float64) if share < 0.2 else np.zeros(len(rest))


def _latest(rest: Floats, late: Floats) -> Floats:
    """1 for those late messages that are as late as the latest bursts, else 0.

    All 0 where there are no more bursts than that. A rare cause of great delays is among many
    small ones otherwise.
    """
    peaks = np.sort([rest[burst].max() for burst in _in_bursts(np.flatnonzero(late))])
    if len(peaks) <= _FEW:
        return np.zeros(len(rest))
    return np.where(rest >= peaks[-_FEW], late, 0.0)


def _in_bursts(places: Places) -> list[Places]:
    """The places of late messages, those in one list that are late one soon after the other."""
    if not len(places):
        return []
    firsts = np.flatnonzero(np.diff(places, prepend=-_APART - 1) > _APART)
    bursts: list[Places] = np.split(places, firsts[1:])
    return bursts


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
    finest = max(4, min(int(period / series.interval), len(series) // 8, _BINS[-1]))
    bins = min(max(4 * harmonics, 8), finest)
    width = period * period / float(series.at[-1]) / (2 * harmonics)
    while True:
        tried = [float(each) for each in np.linspace(period - width, period + width, 21)]
        alike = [_between(series.at, values, each, bins) for each in tried]
        period = tried[int(np.argmax(alike))]
        if bins == finest:
            return period
        bins, width = min(4 * bins, finest), width / 4


def _between(at: Floats, values: Floats, period: float, bins: int) -> float:
    place = _place(at, period, bins)
    counts = np.bincount(place, minlength=bins)
    sums = np.bincount(place, weights=values, minlength=bins)
    return float(np.sum(sums[counts > 0] ** 2 / counts[counts > 0]))


def _place(at: Floats, period: float, bins: int) -> Places:
    phase = np.mod(at / period, 1.0)
    places: Places = np.minimum((phase * bins).astype(np.int64), bins - 1)
    return places


def _longest(series: Series, late: Floats, period: float) -> float:
    """The multiple of a period at which chance explains least that late messages have one phase.

    Short bursts make equally strong lines at every part of their period.
    """
    at = series.at[late > 0]
    span = float(series.at[-1])
    best = (0.0, period)
    for times in range(1, int(min(span / period / LEAST_CYCLES, _MULTIPLES)) + 1):
        length = times * period
        bins = max(min(int(length / series.interval / 4), _BINS[-1]), 4)
        near = np.linspace(
            length - length * period / span / 8, length + length * period / span / 8, 5
        )
        for each in near:
            most = int(np.bincount(_place(at, float(each), bins)).max())
            chance = log_binomial_tail(most, len(at), 1 / bins) + math.log(bins)
            best = min(best, (chance, float(each)))
    return best[1]


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
    bulk = [
        float(np.diff(np.quantile(each, [0.25, 0.75]))[0]) for each in (kept, kept - height * ramp)
    ]
    if bulk[1] ** 2 > (1 - share / 2) * bulk[0] ** 2:
        return None  # A few messages make it.
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
    away = np.abs(left - np.median(left))
    left = np.where(at_jump & (away > size / 2) & (away < 1.5 * size), folded, left)
    part = explained(whole, rest, left)
    interval = series.interval
    # What a message's time gains on that of the one before it.
    gain = height * interval / period
    cycles = float(series.at[-1]) / period
    times = max(1, round(interval / size))
    longer = "longer" if gain > 0 else "shorter"
    several = "" if times == 1 else f"{times} times "
    text = (
        f"the time {'rises' if gain > 0 else 'falls'} by {rounded(size)} every {rounded(period)} "
        f"and jumps back: two periods beat, and {several}one of about {rounded(size)} is "
        f"{rounded(abs(gain))} {longer} than the messages' {duration(interval)}"
    )
    if size > 2 * interval:
        text = text.partition(": ")[0] + f": two periods beat, {rounded(abs(gain))} apart"
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
    cycle = np.floor(series.at / period).astype(np.int64)
    # The first message of a burst may be just before it.
    around = high | np.roll(high, 1) | np.roll(high, -1)
    by_chance = _by_chance(rest - usual, around[place], cycle, float(around.mean()))
    log_p = max(log_p, by_chance)
    late &= within
    # What is late at that phase is explained by it, as late as it is.
    left = np.where(late, usual, rest)
    # What of all that is late would be in this part of the cycle by chance explains nothing.
    before = float(np.var(rest))
    removed = 1 - float(np.var(left)) / before
    in_step = max((removed - share) / (1 - share), 0.0) * before / float(np.var(whole))
    part = min(max(part, in_step), 1.0)
    each = float(late.sum()) / max(cycles, 1.0)
    most = float((rest[late] - usual).max()) if late.any() else 0.0
    about = max(1, round(each))
    messages = "message is" if about == 1 else "messages are"
    text = f"every {rounded(period)} some {number(about)} {messages} late, by up to {rounded(most)}"
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
    text = f"the time rises and falls by {rounded(swing)} every {rounded(period)}"
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
    cycle = np.floor(series.at / period).astype(np.int64)
    size = np.bincount(cycle, weights=shape**2)
    both = np.bincount(cycle, weights=shape * (values - values.mean()))
    heights = both[size > 0.25 * size.max()] / size[size > 0.25 * size.max()]
    if len(heights) < 3:
        return 0.0
    spread = float(np.std(heights, ddof=1)) / math.sqrt(len(heights))
    if spread == 0:
        return -math.inf
    p = student_below(len(heights) - 1, -float(heights.mean()) / spread)
    return math.log(max(p, 1e-300))


def _by_chance(lateness: Floats, within: Mask, cycle: Places, share: float) -> float:
    """Logarithm of the probability that so many bursts are in the high part of the cycle.

    Messages that are late one soon after the other are one burst. Few bursts make a strong line
    wherever some of them happen to be in step, so the spectrum alone would be too sure. Bursts are
    what is as late as usual in the high part, or a half or a quarter of that.
    """
    most = np.zeros(int(cycle[-1]) + 1)
    np.maximum.at(most, cycle[within], lateness[within])
    usual = float(np.median(most))
    if usual <= 0:
        return 0.0
    best = 0.0
    for part in _PARTS_OF_USUAL:
        places = np.flatnonzero(lateness >= part * usual)
        peaks = [int(burst[np.argmax(lateness[burst])]) for burst in _in_bursts(places)]
        hits = int(within[peaks].sum())
        best = min(best, log_binomial_tail(hits, len(peaks), share))
    # Phases, and longer periods, that can be told apart; shorter ones get ever smaller parts.
    trials = 2 * math.log(1 / share) + 2 * math.log(len(most)) + math.log(2 * len(_PARTS_OF_USUAL))
    return min(best + trials, 0.0)


def _first_high(high: Mask) -> int:
    """The first bin of those that are high, also where they go over the end."""
    begins = np.flatnonzero(high & ~np.roll(high, 1))
    return int(begins[0]) if len(begins) else 0
