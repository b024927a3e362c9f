"""A branching path, or a part of it, with all that its statistics need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.bounded_statistics import Bracket, Sample
from loopscope.analysis.flow import chosen, flow
from loopscope.analysis.measured import (
    MeasuredInterval,
    dropped_of,
    path_problems,
    printed,
    significant,
    some_dropped,
)
from loopscope.analysis.message_dag import Fate
from loopscope.analysis.messages import Intervals
from loopscope.analysis.missing_events import Missing
from loopscope.analysis.path_result import TIMES, FlowResult, GraphResult
from loopscope.analysis.quantity_text import UNKNOWN_NS, duration, number
from loopscope.analysis.regularity import Arrivals
from loopscope.analysis.ways import only_way
from loopscope.analysis.window import choices

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.flow import Sent, Used
    from loopscope.analysis.message_dag import MessageDag
    from loopscope.analysis.messages import Messages
    from loopscope.analysis.window import RepeatTimes
    from loopscope.experiment import Hop, MessagePath, PathEdge, TimeWindow
    from loopscope.timeline import Run


class MeasuredFlow(MeasuredInterval):
    """The messages of one event towards a later one.

    The interval of a message ends with its first use there; the ages are of every use.
    """

    def __init__(
        self,
        graph: MessageDag,
        ends: tuple[int, int],
        dropped: Sequence[int],
        columns: tuple[Sent, Used],
        unseen: tuple[int, int] = (0, 0),
    ) -> None:
        """Takes messages of both events; `unseen` is how many more may belong to each."""
        first, last = ends
        path = graph.path
        self.sent, self.used = columns
        self.ends = ends
        self._whole = path.ends == [ends]
        between = path.between(*ends)
        self.missing = Missing(
            before=dropped[first] + unseen[0],
            after=sum(dropped[each] for each in between - {first}) + unseen[1],
        )
        edges = [
            number
            for number, edge in enumerate(path.edges)
            if edge.start in between and edge.end in between
        ]
        self.joins = bool(path.uses(*ends) - {"key"})
        """Whether an event on the way joins."""
        self.doubtful = bool(self.missing.before + self.missing.after) and any(
            map(graph.chooses, edges)
        )
        """Whether an event that is missing from the trace may change what was used.

        It may have been what was used, or the first that used it.
        """
        sent, used = self.sent, self.used
        reached = sent.fate == Fate.USED
        self.intervals = Intervals(
            first=path.events[first],
            last=path.events[last],
            repeat=sent.repeat[reached],
            id=sent.id[reached],
            start=sent.ts[reached],
            length=sent.length[reached],
            err=sent.width[reached],
            keys=graph.keys_at(first),
        )
        self._keys_of_uses = graph.keys_at(last)
        fates = np.bincount(sent.fate, minlength=len(Fate))
        self.lost, self.unused, self.superseded, self.undecided, self.complete = map(int, fates)
        self.at_first = len(sent.id)
        self.duplicates = int((used.times[used.made] - 1).sum())
        self.empty = int((~used.made & ~used.undecided).sum())
        self.undecided_uses = int(used.undecided.sum())
        self.undecided_duplicates = int((used.times[used.undecided] - 1).sum())
        self.hidden = self.missing.unseen_arrivals(self.lost) + self.undecided
        self.sample = Sample(self.intervals.length, self._widths(self.intervals.err), self.hidden)
        missing_uses = dropped[last] + unseen[1]
        if self.missing.before + self.missing.after:
            missing_uses += self.empty
        self.ages = Sample(
            used.age[used.made],
            self._widths(used.width[used.made]),
            self.undecided_uses + missing_uses,
        )

    @property
    def shown(self) -> Intervals:
        """The intervals, with the maximum errors that their statistics have."""
        return replace(self.intervals, err=self._widths(self.intervals.err))

    @property
    def uses(self) -> Intervals:
        """The age of the data at each use: where the use was, with its number."""
        used, made = self.used, self.used.made
        return Intervals(
            first=self.intervals.first,
            last=self.intervals.last,
            repeat=used.repeat[made],
            id=used.id[made],
            start=used.ts[made],
            length=used.age[made],
            err=self._widths(used.width[made]),
            keys=self._keys_of_uses,
        )

    def bracket(self, stat: str) -> Bracket | None:
        """None where there is nothing to measure. Raises `ValueError` for an unknown statistic."""
        if stat == "age":
            return self.ages.bracket("max")
        before, after = self.missing.before, self.missing.after
        if stat == "received":
            if self.doubtful:
                return Bracket(self.received, 0, None)
            more = self.missing.unseen_arrivals(self.lost)
            return Bracket(self.received, self.received, self.received + more)
        if stat == "sent" or (stat == "count" and self._whole):
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

    def arrivals(self) -> Arrivals:
        of = self.used
        return Arrivals(of.repeat, of.ts, of.err, of.host, of.counter)

    @property
    def others(self) -> str:
        """Why it is `doubtful`."""
        dropped = self.missing.before + self.missing.after
        return (
            f"{some_dropped(dropped)} events may be missing from the trace, so that others may "
            "have been used"
        )

    def doubt(self) -> str:
        if self.doubtful:
            return f"{self.others}, which leaves"
        if self.undecided_uses or self.undecided:
            return (
                f"within the clock's error it is open what was used {number(self.undecided_uses)} "
                f"times, and of {number(self.undecided)} messages whether they were, which "
                "leaves"
            )
        return super().doubt()

    def flow(self, how: str) -> FlowResult:
        times = {name: printed(self.sample.bracket(name)) for name in TIMES}
        age = self.bracket("age") if self.joins else None
        rate, jitter = self.bracket("rate"), self.bracket("jitter")
        return FlowResult(
            first=str(self.intervals.first),
            last=str(self.intervals.last),
            how=how,
            sent=self.at_first,
            received=self.received,
            used=self.complete,
            superseded=self.superseded,
            lost=self.lost,
            unused=self.unused,
            undecided=self.undecided,
            duplicates=self.duplicates,
            empty=self.empty,
            missing=self.missing.before + self.missing.after,
            times=times,
            err_ns=self.sample.largest_error,
            age_ns=None if age is None else int(age.value),
            age_err_ns=None if age is None else age.err,
            rate_hz=None if rate is None else significant(rate),
            jitter_ns=printed(jitter),
        )

    def _widths(self, err: Nanoseconds) -> Nanoseconds:
        return np.full_like(err, UNKNOWN_NS) if self.doubtful else err


class MeasuredDag:
    """A branching path."""

    def __init__(self, run: Run, graph: MessageDag) -> None:
        self.messages = graph
        self.dropped = dropped_of(run, graph.path)
        self._parts: dict[tuple[int, int], MeasuredFlow] = {}

    @cached_property
    def as_list(self) -> Messages | None:
        """Its messages until their first uses, as those of a list of events.

        None where several ways lead from its beginnings to its ends.
        """
        way = only_way(self.messages.path, self.messages.path.ends)
        return None if way is None else self.messages.along(way)

    @property
    def loop(self) -> MeasuredFlow:
        """Flow from its beginning to its end. Raises `ValueError` where it has several."""
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
            columns = flow(self.messages, ends)
            self._parts[ends] = MeasuredFlow(self.messages, ends, self.dropped, columns)
        return self._parts[ends]

    def windowed(
        self, hop: Hop | None, window: TimeWindow, times: RepeatTimes
    ) -> list[MeasuredFlow]:
        """The loop, or a part, in a window, in ways that cover what its edges leave open.

        It is of the messages that were at its first event in the window, and of what was used at
        its last one in it.
        """
        ends = self.messages.path.loop if hop is None else (hop.start, hop.end)
        whole = self.loop if hop is None else self.part(ends)
        sent, used = (
            choices(*times.within(window, of.repeat, (of.ts, of.err)))
            for of in (whole.sent, whole.used)
        )
        # Every statistic is of one of both.
        ways = zip_longest(sent, used)
        return [
            MeasuredFlow(
                self.messages,
                ends,
                self.dropped,
                (chosen(whole.sent, (a or sent[0])[0]), chosen(whole.used, (b or used[0])[0])),
                unseen=((a or sent[0])[1], (b or used[0])[1]),
            )
            for a, b in ways
        ]

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
    """The rule by which an event uses another: `frame`, `latest by time`, `last 100.0 ms`."""
    if edge.window_ns is not None:
        return f"last {duration(edge.window_ns)}"
    by = edge.field or "time"
    if edge.use == "key":
        # A new number is said with the old.
        return by if by == path.keys[edge.end] else f"{by} as {path.keys[edge.end]}"
    return f"{edge.use} by {by}"
