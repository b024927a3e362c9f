"""Patterns of level: a change of the operating region, and messages that are slow at first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings.candidate import Candidate, Evidence, rounded
from loopscope.analysis.findings.chances import student_below
from loopscope.analysis.findings.segments import changes
from loopscope.analysis.findings.series import (
    Series,
    explained,
    independent_share,
    is_certain,
    normal_scores,
)
from loopscope.analysis.isotonic import rising
from loopscope.analysis.quantity_text import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loopscope.analysis.findings.series import Floats

_BLOCKS = 1000
"""Means of blocks among which change points are looked for, at most."""
_MOST_CHANGES = 4
_EARLY = 0.1
"""A first region that is shorter than this share of the run, and slow, is a warm-up."""
_FALLING_EARLY = 0.3
"""The same where it becomes faster and faster."""
_FIRST = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000)
"""Numbers of first messages that are compared with the others."""
_FEW = 5
"""Fewer slow messages at the beginning may be late ones as they are at any time."""
_WINDOWS = 10
"""Windows of as many messages as the first ones, at least."""
_TAIL = 5


def search_change(series: Series, rest: Floats, whole: Floats) -> Candidate | None:
    """Instants at which the level changes for good; None where nothing points to one."""
    scores = normal_scores(rest)
    size = math.ceil(len(scores) / _BLOCKS)
    count = len(scores) // size
    blocks = scores[: count * size].reshape(count, size).mean(axis=1)
    least = max(3, count // 20)
    if count < 4 * least:
        return None
    best: Candidate | None = None
    for begins in changes(blocks, _MOST_CHANGES, least):
        places = [_moved(scores, begin * size, size) for begin in begins]
        found = _of_changes(series, rest, whole, scores, places)
        if best is None or (found is not None and is_certain(found.log_p)):
            best = found
    return best


def _moved(scores: Floats, place: int, size: int) -> int:
    """The message near a change of blocks at which the levels differ most clearly."""
    reach = 3 * size
    begin, end = max(place - reach, 1), min(place + reach, len(scores) - 1)
    near = scores[max(begin - 10 * reach, 0) : end + 10 * reach]
    sums = np.cumsum(near)
    first = np.arange(1, len(near))
    means = sums[:-1] / first - (sums[-1] - sums[:-1]) / (len(near) - first)
    clear = means**2 * first * (len(near) - first)
    offset = max(begin - 10 * reach, 0)
    within = slice(begin - offset - 1, end - offset)
    return begin + int(np.argmax(clear[within]))


def _of_changes(
    series: Series, rest: Floats, whole: Floats, scores: Floats, places: Sequence[int]
) -> Candidate | None:
    """The candidate of changes at these messages; None where one of them is of no use."""
    edges = [0, *sorted(set(places)), len(rest)]
    parts = [slice(first, last) for first, last in zip(edges, edges[1:], strict=False)]
    if len(parts) != len(places) + 1 or min(part.stop - part.start for part in parts) < 3:
        return None
    steps = np.concatenate([np.full(p.stop - p.start, scores[p].mean()) for p in parts])
    left = scores - steps
    # Half of what it estimates: late messages in bursts make the estimate too high.
    share = independent_share(left) / 2
    line = np.polyval(np.polyfit(series.at, scores, 1), series.at)
    if np.var(scores - line) < np.var(left):
        return None  # It drifts.
    log_p = max(
        _differ(left[before], left[after], steps[before.start] - steps[after.start], share)
        for before, after in zip(parts, parts[1:], strict=False)
    )
    # Any message may have been the first one of another level.
    log_p += math.log(max(len(scores) * share, 10.0)) * len(places)
    levels = [float(np.median(rest[part])) for part in parts]
    means = np.concatenate([np.full(p.stop - p.start, rest[p].mean()) for p in parts])
    middles = np.concatenate(
        [np.full(p.stop - p.start, level) for p, level in zip(parts, levels, strict=True)]
    )
    after_all = rest - middles + levels[-1]
    part = max(explained(whole, rest, rest - means), explained(whole, rest, after_all))
    return _candidate(series, rest, whole, parts, min(log_p, 0.0), part, middles - levels[-1])


def _differ(before: Floats, after: Floats, step: float, share: float) -> float:
    """Logarithm of the probability of a t-test between two levels, by independent messages."""
    counts = [max(len(each) * share, 1.0) for each in (before, after)]
    freedom = sum(counts) - 2
    if freedom < 3:
        return 0.0
    spread = math.sqrt(float(np.var(np.concatenate([before, after]))) * sum(1 / n for n in counts))
    if spread == 0:
        return -math.inf
    return math.log(max(2 * student_below(freedom, -abs(step) / spread), 1e-300))


def _candidate(
    series: Series,
    rest: Floats,
    whole: Floats,
    parts: Sequence[slice],
    log_p: float,
    part: float,
    fit: Floats,
) -> Candidate:
    usual = [float(np.median(whole[each])) for each in parts]
    starts = [float(series.at[each.start]) for each in parts]
    if len(parts) == 2 and _is_warm_up(rest, parts[0].stop):
        falling = _falling(rest, parts[0].stop)
        count = int(np.count_nonzero(falling > 0.1 * falling[0]))
        if 0 < count <= 2 * parts[0].stop:
            falling[count:] = 0
            part = explained(whole, rest, rest - falling)
            log_p = max(log_p, _alike(rest, count))
            return _warm_up(series, whole, rest, falling, count, log_p, part)
    told = [f"{rounded(usual[0])}"]
    evidence = [Evidence("before", usual[0], "ns")]
    for number_of, (start, level) in enumerate(zip(starts[1:], usual[1:], strict=True), start=1):
        suffix = "" if len(parts) == 2 else f" {number_of}"
        told.append(f"{rounded(level)} from {rounded(start)} on")
        evidence += [
            Evidence(f"instant{suffix}", start, "ns"),
            Evidence(f"after{suffix}", level, "ns"),
        ]
    text = f"the usual time changes: {', then '.join(told)}"
    return Candidate("change", tuple(evidence), text, log_p, part, fit, rest - fit)


def _is_warm_up(rest: Floats, count: int) -> bool:
    """Whether the first messages are slow, and few or ever faster."""
    usual = float(np.median(rest[count:]))
    slower = float(np.median(rest[:count])) - usual
    if slower <= 0 or count > _FALLING_EARLY * len(rest):
        return False
    falls = float(np.median(rest[: count // 2]) - np.median(rest[count // 2 : count]))
    return count <= _EARLY * len(rest) or falls > 0.25 * slower


def _warm_up(
    series: Series, whole: Floats, rest: Floats, fit: Floats, count: int, log_p: float, part: float
) -> Candidate:
    usual = float(np.median(whole[count:]))
    first = float(np.mean(whole[:count]))
    lasts = float(series.at[min(count, len(whole) - 1)])
    messages = "the first message is" if count == 1 else f"the first {number(count)} messages are"
    text = f"{messages} slow, {rounded(first)} where {rounded(usual)} is usual"
    text += f": warm-up of {rounded(lasts)}"
    evidence = (
        Evidence("messages", float(count), ""),
        Evidence("duration", lasts, "ns"),
        Evidence("mean", first, "ns"),
        Evidence("first", float(whole[0]), "ns"),
        Evidence("after", usual, "ns"),
    )
    return Candidate("warm-up", evidence, text, log_p, part, fit, rest - fit)


def search_warm_up(series: Series, rest: Floats, whole: Floats) -> Candidate | None:
    """The first messages, where they are slower than as many others anywhere; else None."""
    sizes = [size for size in _FIRST if len(rest) // size > _WINDOWS]
    best: tuple[float, float, int] | None = None
    for size in sizes:
        log_p = _slow_first(rest, size) + math.log(len(sizes))
        usual = np.median(rest[size:])
        gain = size * max(float(np.mean(rest[:size]) - usual), 0.0) ** 2
        if best is None or (is_certain(log_p), gain) > (is_certain(best[0]), best[1]):
            best = log_p, gain, size
    if best is None or best[1] == 0:
        return None
    log_p, _, size = best
    fit = _falling(rest, size)
    count = int(np.count_nonzero(fit > 0.1 * fit[0])) if fit[0] > 0 else 0
    if not count:
        return None
    fit[count:] = 0
    part = explained(whole, rest, rest - fit)
    log_p = min(max(log_p, _alike(rest, count)), 0.0)
    return _warm_up(series, whole, rest, fit, count, log_p, part)


def _slow_first(rest: Floats, size: int) -> float:
    """Logarithm of the probability that any window of messages is as slow as the first one.

    It is the larger one of two: of a t-test among the windows' medians, and by how the slowest of
    the other windows decrease (Hill's estimate), because tails are heavy and slow messages may come
    in bursts.
    """
    count = len(rest) // size
    # Medians, so that single late messages do not hide it.
    middles = np.median(rest[: count * size].reshape(count, size), axis=1)
    first, others = float(middles[0]), middles[1:]
    spread = float(np.std(others, ddof=1)) * math.sqrt(1 + 1 / len(others))
    if spread == 0:
        return 0.0
    by_spread = student_below(len(others) - 1, -(first - float(others.mean())) / spread)
    # From so far below that ratios tell how the values decrease, whatever their least one is.
    floor = 2 * float(np.min(rest)) - float(np.median(rest))
    slowest = np.sort(others - floor)[::-1]
    tail = min(max(_TAIL, len(slowest) // 10), len(slowest) - 1)
    threshold = float(slowest[tail])
    if first - floor <= threshold:
        return 0.0
    index = max(float(np.mean(np.log(slowest[:tail] / threshold))), 1e-3)
    by_tail = math.log(tail / len(slowest)) - math.log((first - floor) / threshold) / index
    return max(math.log(max(by_spread, 1e-300)), by_tail)


def _alike(rest: Floats, count: int) -> float:
    """Logarithm of how likely the first messages are slow by chance, as other messages tell.

    It is the share of other windows that are half as slow as the first one, of windows as long as
    the warm-up, a half and a quarter of it. Where there is one, slow messages come in bursts at
    other times too, and some of these may have come at the beginning. Single messages count at most
    as much as the slowest of the first. Minus infinity: no other window is.
    """
    if count < _FEW:
        return -math.log(len(rest))
    usual = float(np.median(rest))
    kept = np.minimum(rest, float(rest[:count].max())) - usual
    sums = np.concatenate([[0.0], np.cumsum(kept)])
    found = -math.inf
    for size in (count, count // 2, count // 4):
        # What comes right after them may be the end of the warm-up.
        begins = np.arange(2 * count, len(rest) - size + 1, max(size // 2, 1))
        others = sums[begins + size] - sums[begins]
        alike = int(np.count_nonzero(others >= sums[size] / 2))
        if alike:
            found = max(found, math.log(alike / len(begins)))
    return found


def _falling(rest: Floats, size: int) -> Floats:
    """By how much the first messages are slower, falling: medians of growing windows."""
    usual = float(np.median(rest[size:]))
    end = min(4 * size, len(rest) // 4)
    edges = [0]
    while edges[-1] < end:
        edges.append(min(max(edges[-1] + 1, round(edges[-1] * 1.3)), end))
    widths = np.diff(edges)
    middles = [float(np.median(rest[a:b])) for a, b in zip(edges, edges[1:], strict=False)]
    falling = rising([usual - middle for middle in middles], widths.tolist())
    fit = np.zeros(len(rest))
    fit[:end] = np.repeat(np.maximum(np.negative(falling), 0), widths)
    return fit
