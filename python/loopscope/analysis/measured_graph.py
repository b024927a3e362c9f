"""A path that is a graph, or a part of it, with all that its statistics need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.account import Missing, missing_events
from loopscope.analysis.measured import (
    MeasuredInterval,
    path_problems,
    printed,
    significant,
    some_dropped,
)
from loopscope.analysis.message_graph import NEVER, Fate
from loopscope.analysis.messages import Intervals
from loopscope.analysis.path_result import TIMES, FlowResult, GraphResult
from loopscope.analysis.quantity import UNKNOWN_NS, duration, number
from loopscope.analysis.regularity import Arrivals, arrivals
from loopscope.analysis.statistic import Bracket, Sample

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.message_graph import MessageGraph, RepeatGraph
    from loopscope.analysis.occurrences import Places
    from loopscope.analysis.statistic import Nanoseconds
    from loopscope.experiment import MessagePath, PathEdge
    from loopscope.timeline import Run


class MeasuredFlow(MeasuredInterval):
    """The messages of one event towards a later one. The interval of a message ends with its first
    use there; the ages are of every use."""

    def __init__(
        self, graph: MessageGraph, ends: tuple[int, int], dropped: Sequence[int], whole: bool
    ) -> None:
        """`whole`: from the path's one beginning to its one end."""
        first, last = ends
        path = graph.path
        self._graph, self._last, self._whole = graph, last, whole
        between = {
            each for each in path.before(last) if first == each or first in path.before(each)
        } | {last}
        self.missing = Missing(
            before=dropped[first], after=sum(dropped[each] for each in between - {first})
        )
        chosen = any(
            graph.chooses(number)
            for number, edge in enumerate(path.edges)
            if edge.start in between and edge.end in between
        )
        self.doubtful = chosen and bool(self.missing.before + self.missing.after)
        """Whether an event that is missing from the trace may have been what was used, or the first
        that used it."""
        fates = np.zeros(len(Fate), np.int64)
        self.intervals = Intervals.none(path.events[first], path.events[last])
        self.uses = self.intervals
        """Of every use, with the number of the message that uses and the age of the oldest data."""
        self.duplicates = self.empty = self.undecided_uses = self.undecided_duplicates = 0
        for repeat, each in graph.repeats.items():
            fate, intervals = _first_uses(each, repeat, ends)
            fates += np.bincount(fate, minlength=len(Fate))
            self.intervals = self.intervals.and_then(intervals)
            used, empty, undecided, again, open_ = _uses(each, repeat, ends)
            self.uses = self.uses.and_then(used)
            self.empty += empty
            self.undecided_uses += undecided
            self.duplicates += again
            self.undecided_duplicates += open_
        self.lost, self.unused, self.superseded, self.undecided, self.complete = map(int, fates)
        self.at_first = int(fates.sum())
        self.hidden = self.missing.unseen_arrivals(self.lost) + self.undecided
        self.sample = Sample(self.intervals.length, self._widths(self.intervals.err), self.hidden)
        missing_uses = dropped[last] + (
            self.empty if self.missing.before + self.missing.after else 0
        )
        self.ages = Sample(
            self.uses.length, self._widths(self.uses.err), self.undecided_uses + missing_uses
        )

    def bracket(self, stat: str) -> Bracket | None:
        """None where there is nothing to measure. Raises `ValueError` for an unknown statistic."""
        if stat == "age":
            return self.ages.bracket("max")
        before, after = self.missing.before, self.missing.after
        if stat == "count" and self._whole:
            return Bracket(self.at_first, self.at_first, self.at_first + before)
        counts = {
            "count": self.complete,
            "lost": self.lost,
            "superseded": self.superseded,
            "duplicates": self.duplicates,
        }
        if stat not in counts:
            return super().bracket(stat)
        if stat != "count" and self.at_first == 0:
            return None
        value = counts[stat]
        if self.doubtful:
            return Bracket(value, 0, None)
        if stat == "duplicates":
            more = after + self.undecided_duplicates
            return Bracket(value, value, None if before else value + more)
        lower = value - min(value, after) if stat == "lost" else value
        more = before if stat != "count" else self.missing.unseen_arrivals(self.lost)
        return Bracket(value, lower, value + more + self.undecided)

    def arrivals(self) -> list[Arrivals]:
        found = []
        for each in self._graph.repeats.values():
            at, rows = each.messages[self._last], each.kept(self._last)
            found.append(arrivals(at.ts[rows], at.err[rows], at.host[rows], each.drift_ppm))
        return found

    def doubt(self) -> str:
        if self.doubtful:
            dropped = self.missing.before + self.missing.after
            return (
                f"{some_dropped(dropped)} events may be missing from the trace, so that others may "
                "have been used, which leaves"
            )
        if self.undecided_uses or self.undecided:
            return (
                f"within the clock's error it is open what was used {number(self.undecided_uses)} "
                f"times, and of {number(self.undecided)} messages whether they were, which "
                "leaves"
            )
        return super().doubt()

    def flow(self, how: str) -> FlowResult:
        times = {name: printed(self.sample.bracket(name)) for name in TIMES}
        age, rate, jitter = (self.bracket(stat) for stat in ("age", "rate", "jitter"))
        return FlowResult(
            first=str(self.intervals.first),
            last=str(self.intervals.last),
            how=how,
            sent=self.at_first,
            used=self.complete,
            superseded=self.superseded,
            lost=self.lost,
            unused=self.unused,
            undecided=self.undecided,
            duplicates=self.duplicates,
            empty=self.empty,
            missing=self.missing.before + self.missing.after,
            times=times,
            err_ns=self.sample.largest_half_width,
            age_ns=None if age is None else int(age.value),
            age_err_ns=None if age is None else age.err,
            rate_hz=None if rate is None else significant(rate),
            jitter_ns=printed(jitter),
        )

    def _widths(self, err: Nanoseconds) -> Nanoseconds:
        return np.full_like(err, UNKNOWN_NS) if self.doubtful else err


class MeasuredGraph:
    """A path that is a graph."""

    def __init__(self, run: Run, graph: MessageGraph) -> None:
        self.messages = graph
        self.dropped = [
            missing_events(run, event.component, event.entity) for event in graph.path.events
        ]
        self._parts: dict[tuple[int, int], MeasuredFlow] = {}

    @property
    def loop(self) -> MeasuredFlow:
        """From its beginning to its end. Raises `ValueError` where it has several."""
        path = self.messages.path
        if len(path.ends) > 1:
            ends = (f"{path.events[start]} -> {path.events[end]}" for start, end in path.ends)
            raise ValueError(f"say which of its ends: {', '.join(ends)}")
        return self.part(path.ends[0])

    def part(self, ends: tuple[int, int]) -> MeasuredFlow:
        """Between two of its events. Raises `ValueError` where none leads to the other."""
        path = self.messages.path
        if ends not in self._parts:
            if not 0 <= ends[0] < ends[1] < len(path.events) or ends[0] not in path.before(ends[1]):
                raise ValueError("nothing leads from the one event to the other")
            whole = path.ends == [ends]
            self._parts[ends] = MeasuredFlow(self.messages, ends, self.dropped, whole)
        return self._parts[ends]

    def result(self) -> GraphResult:
        path = self.messages.path
        return GraphResult(
            name=path.name,
            edges=tuple(
                self.part((edge.start, edge.end)).flow(how(path, edge)) for edge in path.edges
            ),
            ends=tuple(self.part(ends).flow("") for ends in path.ends),
        )

    def problems(self) -> list[str]:
        path = self.messages.path
        parts = [self.part(hop) for hop in path.hops]
        return path_problems(path, self.dropped, parts)


def how(path: MessagePath, edge: PathEdge) -> str:
    """What an event uses of another: `frame`, `latest by time`, `last 100.0 ms`."""
    if edge.window_ns is not None:
        return f"last {duration(edge.window_ns)}"
    by = edge.field or "time"
    if edge.use == "key":
        # A new number is said with the old.
        return by if by == path.keys[edge.end] else f"{by} as {path.keys[edge.end]}"
    return f"{edge.use} by {by}"


def _first_uses(
    graph: RepeatGraph, repeat: int, ends: tuple[int, int]
) -> tuple[npt.NDArray[np.int8], Intervals]:
    """What became of each message, and the intervals to their first use."""
    first, last = ends
    uses, kept = graph.uses(first, last), graph.kept(first)
    start = np.flatnonzero(uses.first[kept] != NEVER) + kept.start
    a, b = graph.messages[first], graph.messages[last]
    end = uses.first[start]
    found = _intervals(graph, repeat, ends, start, end, a.id[start])
    # An earlier use that is open makes it shorter.
    intervals = replace(found, err=found.err + b.ts[end] - b.ts[uses.perhaps[start]])
    return uses.fate[kept], intervals


def _uses(
    graph: RepeatGraph, repeat: int, ends: tuple[int, int]
) -> tuple[Intervals, int, int, int, int]:
    """From the oldest data to each use; how many uses had no data, of how many it is not known what
    they used, and how many occurrences of the former and of these were not the first."""
    first, last = ends
    kept = graph.kept(last)
    origins = graph.origins(first, last)
    undecided = origins.undecided[kept]
    there = origins.oldest[kept] != NEVER
    end = np.flatnonzero(there) + kept.start
    start = origins.oldest[end]
    b = graph.messages[last]
    used = _intervals(graph, repeat, ends, start, end, b.id[end])
    again = int((b.times[end] - 1).sum())
    open_ = int((b.times[kept][undecided] - 1).sum())
    return used, int((~there & ~undecided).sum()), int(undecided.sum()), again, open_


def _intervals(
    graph: RepeatGraph,
    repeat: int,
    ends: tuple[int, int],
    start: Places,
    end: Places,
    id: npt.NDArray[np.int64],
) -> Intervals:
    """From messages of one event to messages of another."""
    first, last = ends
    began = graph.messages[first].ts[start]
    length = graph.messages[last].ts[end] - began
    return Intervals(
        first=graph.path.events[first],
        last=graph.path.events[last],
        repeat=np.full(len(start), repeat, np.int32),
        id=id,
        start=began,
        length=length,
        err=graph.width(first, start, last, end, length),
    )
