"""What recording the kernels added to messages: times with it against times without, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.kernel_result import Added, KernelAdded

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.messages import Messages
    from loopscope.timeline import Run
    from loopscope.timeline.loss import KernelGap

# Switching takes some ms.
_MARGIN_NS = 5_000_000
_SAMPLES = 1000
_FEWEST_PAIRS = 6
_Time = tuple[int, int]
"""Begin and end, global ns."""


def read_added(run: Run, paths: Mapping[str, Messages]) -> dict[str, KernelAdded]:
    """What it added to each path, where messages were seen in both.

    Raises `RunError` where the tables cannot be read.
    """
    experiment = run.specification
    if experiment is None or experiment.alternate_ns is None:
        return {}
    every = {repeat: list(_pairs(run, repeat, experiment.alternate_ns)) for repeat in run.repeats}
    found = {}
    for name, messages in paths.items():
        whole = messages.intervals(*messages.path.loop)
        pairs = []
        for repeat, times in every.items():
            of_repeat = whole.repeat == repeat
            begin, length = whole.start[of_repeat], whole.length[of_repeat]
            for pair in times:
                with_it, without = (_within(begin, length, each) for each in pair)
                if len(with_it) and len(without):
                    pairs.append((with_it, without))
        if pairs:
            found[name] = _added(pairs)
    return found


def _within(begin: Nanoseconds, length: Nanoseconds, time: _Time) -> Nanoseconds:
    """The lengths of the messages that began and ended in a time."""
    return length[(begin >= time[0]) & (begin + length <= time[1])]


def _added(pairs: list[tuple[Nanoseconds, Nanoseconds]]) -> KernelAdded:
    sides = [np.concatenate(side) for side in zip(*pairs, strict=True)]
    drawn = np.random.default_rng(0).integers(0, len(pairs), (_SAMPLES, len(pairs)))
    resampled = [
        [np.concatenate([pairs[each][side] for each in sample]) for side in (0, 1)]
        for sample in (drawn if len(pairs) >= _FEWEST_PAIRS else ())
    ]

    def statistic(percent: float) -> Added:
        def of(lengths: Nanoseconds) -> int:
            return int(np.percentile(lengths, percent, method="inverted_cdf"))

        with_ns, without_ns = map(of, sides)
        differences = [of(first) - of(second) for first, second in resampled]
        ends = np.percentile(differences, (2.5, 97.5)) if differences else (None, None)
        low, high = (None if end is None else round(end) for end in ends)
        return Added(with_ns, without_ns, with_ns - without_ns, low, high)

    counts = [len(side) for side in sides]
    return KernelAdded(len(pairs), counts[0], counts[1], statistic(50), statistic(99))


def _pairs(run: Run, repeat: int, each_ns: int) -> Iterator[tuple[_Time, _Time]]:
    """Times in which all kernels were recorded, each with the one after it in which none was."""
    kernels = [
        _unrecorded(run, repeat, kernel, gaps)
        for (of, kernel), gaps in run.kernel_gaps.items()
        if of == repeat and any(gaps.values())
    ]
    before = None
    for times in zip(*kernels, strict=False):
        begin = max(begin for begin, _ in times) + _MARGIN_NS
        end = min(end for _, end in times) - _MARGIN_NS
        since = min(begin for begin, _ in times) - _MARGIN_NS
        # The first time began with the phase, and none is shorter than that.
        first = since - each_ns // 2 if before is None else before + _MARGIN_NS
        if first < since and begin < end:
            yield (first, since), (begin, end)
        before = max(end for _, end in times)


def _unrecorded(
    run: Run, repeat: int, kernel: str, gaps: Mapping[str, list[KernelGap]]
) -> list[_Time]:
    """When nothing of a kernel was recorded, as it was asked for."""
    time_of = _clock(run, repeat, kernel)
    chosen = [[gap for gap in each if gap.events == 0] for each in gaps.values()]
    return [
        (time_of(max(gap.begin for gap in of)), time_of(min(gap.end for gap in of)))
        for of in zip(*chosen, strict=False)
    ]


def _clock(run: Run, repeat: int, kernel: str) -> Callable[[int], int]:
    """The global time at a value of a kernel's counter, from its events."""
    tables = (name for name in run.tables if name.startswith("kernel."))
    where = f"repeat = {repeat} AND host = '{kernel}'"
    parts = [
        run.relation(name).filter(where).project("counter, ts").to_arrow_table() for name in tables
    ]
    counters, times = (
        np.sort(np.concatenate([part[column].to_numpy() for part in parts])).astype(np.float64)
        for column in ("counter", "ts")
    )

    def time_of(counter: int) -> int:
        return round(float(np.interp(counter, counters, times)))

    return time_of
