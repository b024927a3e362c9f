"""A path or a part of it with all that its statistics need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.bounded_statistics import Bracket, Exact, Sample
from loopscope.analysis.hop_decomposition import HopDecompositions
from loopscope.analysis.missing_events import UNACCOUNTED, Missing, missing_events
from loopscope.analysis.quantity_text import duration, maximum_error, number
from loopscope.analysis.regularity import regularity
from loopscope.analysis.results import TIMES, IntervalResult, PathResult
from loopscope.analysis.window import choices
from loopscope.experiment.statistic_names import COUNTS

if TYPE_CHECKING:
    from loopscope.analysis.hop_decomposition import LinkEvents
    from loopscope.analysis.messages import Intervals, Messages
    from loopscope.analysis.regularity import Arrivals
    from loopscope.analysis.window import RepeatTimes
    from loopscope.experiment import Hop, MessagePath, TimeWindow
    from loopscope.timeline import Run

SETTLED_OF, _SETTLED = 50, 45
"""Messages in succession, and how many of these must be within the band to have settled."""


class MeasuredInterval:
    """A path or a hop with all that its statistics need."""

    def __init__(self, messages: Messages, ends: tuple[int, int], dropped: Sequence[int]) -> None:
        """`ends` are indices of events, `dropped` how many of each event may be missing."""
        first, last = ends
        self._messages, self._last = messages, last
        self.intervals: Intervals = messages.intervals(first, last)
        # A message whose first event is missing is in no row, so at no later event either.
        before = dropped[0] + (dropped[first] if first else 0)
        self.missing = Missing(before, after=dropped[last])
        self.at_first = int(messages.seen[first].sum())
        self.complete = len(self.intervals.length)
        self.lost = self.at_first - self.complete
        arrived = messages.seen[first] & messages.seen[last]
        self.duplicates = int((messages.occurrences[last][arrived] - 1).sum())
        self.hidden = self.missing.unseen_arrivals(self.lost)
        self.sample = Sample(self.intervals.length, self.intervals.err, self.hidden)

    @property
    def name(self) -> str:
        return f"{self.intervals.first} → {self.intervals.last}"

    def bracket(self, stat: str) -> Bracket | None:
        """None where there is nothing to measure. Raises `ValueError` for an unknown statistic."""
        before, after = self.missing.before, self.missing.after
        if stat == "count":
            return Bracket(self.count, self.count, self.count + self.uncounted)
        if stat == "sent":
            before = self.missing.before
            return Bracket(self.at_first, self.at_first, self.at_first + before)
        if stat == "received":
            return Bracket(self.received, self.received, self.received + self.hidden)
        if stat in COUNTS and self.at_first == 0:
            return None
        if stat == "lost":
            return Bracket(self.lost, self.lost - min(self.lost, after), self.lost + before)
        if stat == "duplicates":
            # A message unknown at the first end may have been duplicated any number of times.
            most = None if before else self.duplicates + after
            return Bracket(self.duplicates, self.duplicates, most)
        if stat in ("superseded", "age"):
            raise ValueError(f"{stat} is of a branching path")
        if stat in ("rate", "jitter"):
            return regularity(stat, self.arrivals(), before + after)
        return self.sample.bracket(stat)

    def arrivals(self) -> Arrivals:
        """When messages were at the last event."""
        return self._messages.arrivals(self._last)

    def doubt(self) -> str:
        """Reason why a statistic is open, as text before the span that is left."""
        if unknown := self.sample.unknown:
            return (
                f"a clock was disturbed: nothing is known of the time of {number(unknown)} "
                "messages, which leaves"
            )
        if dropped := self.missing.before + self.missing.after:
            return f"{some_dropped(dropped)} events may be missing from the trace, which leaves"
        return "the clock's error leaves"

    def settling(self) -> int | None:
        """Settling time: the time from the first message to the first one that is settled, ns.

        Settled is the first message of the first 50 in succession of which 45 are within 5 % of the
        largest excursion from the median of the messages of the second half of the time, or between
        the p1 and p99 of those where that is wider. Of several repeats the longest; None where one
        has too few messages.
        """
        longest = 0
        for repeat in np.unique(self.intervals.repeat):
            here = np.flatnonzero(self.intervals.repeat == repeat)
            here = here[np.argsort(self.intervals.start[here], kind="stable")]
            start, length = self.intervals.start[here], self.intervals.length[here]
            final = np.sort(length[start - start[0] >= (start[-1] - start[0]) // 2])
            if len(final) < SETTLED_OF or len(start) < 2 * SETTLED_OF:
                return None
            middle = final[len(final) // 2]
            band = int(np.abs(length - middle).max()) // 20
            low = min(final[len(final) // 100], middle - band)
            high = max(final[len(final) - 1 - len(final) // 100], middle + band)
            within = np.cumsum(np.r_[0, (length >= low) & (length <= high)])
            settled = np.flatnonzero(within[SETTLED_OF:] - within[:-SETTLED_OF] >= _SETTLED)
            # There is a first one: windows of the second half are within what 98 % of it is.
            longest = max(longest, int(start[settled[0]] - start[0]))
        return longest if len(self.intervals.repeat) else None

    @property
    def count(self) -> int:
        return self.complete

    @property
    def uncounted(self) -> int:
        """The most messages that `count` may lack."""
        return self.hidden

    @property
    def received(self) -> int:
        """Messages that were at both ends."""
        return self.at_first - self.lost

    def result(self) -> IntervalResult:
        brackets = {name: self.sample.bracket(name) for name in TIMES}
        return IntervalResult(
            first=str(self.intervals.first),
            last=str(self.intervals.last),
            count=self.count,
            sent=self.at_first,
            received=self.received,
            lost=self.lost,
            duplicates=self.duplicates,
            times={name: printed(bracket) for name, bracket in brackets.items()},
            err_ns=self.sample.largest_error,
        )


class MeasuredLoop(MeasuredInterval):
    """Interval from a path's first event to its last. Its count is of the messages that set out."""

    legs: tuple[MeasuredInterval, MeasuredInterval]
    """Its first hop and its last."""

    def bracket(self, stat: str) -> Bracket | None:
        if stat == "asymmetry":
            return self._asymmetry()
        return super().bracket(stat)

    def _asymmetry(self) -> Bracket | None:
        """Difference of the medians of the way there and the way back.

        What one host's clock is off by lengthens one and shortens the other.
        """
        if self.legs[0] is self.legs[1]:
            raise ValueError("a path of one hop has no way back that could be alike")
        there, back = self.legs[0].bracket("p50"), self.legs[1].bracket("p50")
        if there is None or back is None:
            return None
        difference: Exact = there.value - back.value
        if there.upper is None or back.upper is None:
            return Bracket(max(difference, -difference), 0, None)
        low, high = there.lower - back.upper, there.upper - back.lower
        return Bracket(max(difference, -difference), max(0, low, -high), max(-low, high))

    @property
    def count(self) -> int:
        return self.at_first

    @property
    def uncounted(self) -> int:
        return self.missing.before


class MeasuredPath:
    def __init__(
        self,
        messages: Messages,
        dropped: Sequence[int],
        link_events: LinkEvents | None = None,
    ) -> None:
        """`dropped` as `dropped_of` gives it."""
        path = messages.path
        self._link_events = link_events
        self.messages = messages
        self.dropped = dropped
        self.loop = MeasuredLoop(messages, path.loop, dropped)
        self.hops = [self.part(hop) for hop in path.hops]
        self.loop.legs = (self.hops[0], self.hops[-1])

    @property
    def as_list(self) -> Messages:
        """Its messages, see `MeasuredDag.as_list`."""
        return self.messages

    def windowed(
        self, hop: Hop | None, window: TimeWindow, times: RepeatTimes
    ) -> list[MeasuredInterval]:
        """The loop, or a part, of the messages that set out in a window.

        There is one for every way that the window's edges leave open.
        """
        messages, found = self.messages, []
        set_out = (messages.ts[0], messages.err[0])
        for rows, unseen in choices(*times.within(window, messages.repeat, set_out)):
            path = MeasuredPath(
                messages.chosen(rows), [self.dropped[0] + unseen, *self.dropped[1:]]
            )
            found.append(path.loop if hop is None else path.part((hop.start, hop.end)))
        return found

    def part(self, ends: tuple[int, int]) -> MeasuredInterval:
        """Between any two of its events. Raises `ValueError` where it does not have them."""
        last = self.messages.path.loop[1]
        if not 0 <= ends[0] < ends[1] <= last:
            raise ValueError(f"its events are 0 to {last}, in this order")
        return MeasuredInterval(self.messages, ends, self.dropped)

    @cached_property
    def _splits(self) -> HopDecompositions:
        if self._link_events is None:
            return HopDecompositions(((),) * len(self.hops))
        return self._link_events.splits(self.messages)

    def result(self) -> PathResult:
        repeats = np.unique(self.messages.repeat).tolist()
        alone = {}
        if len(repeats) > 1:
            chosen = {each: self.messages.chosen(self.messages.repeat == each) for each in repeats}
            alone = {each: MeasuredPath(of, self.dropped) for each, of in chosen.items()}
        hops = tuple(
            replace(
                hop.result(),
                splits=self._splits.hops[i],
                by_repeat={n: each.hops[i].result() for n, each in alone.items()} or None,
            )
            for i, hop in enumerate(self.hops)
        )
        loops = {n: each.loop.result() for n, each in alone.items()} or None
        loop = replace(self.loop.result(), by_repeat=loops)
        return PathResult(self.messages.path.name, loop, hops, self._splits.unsplit)

    def problems(self) -> list[str]:
        found = path_problems(self.messages.path, self.dropped, [self.loop, *self.hops])
        return [*found, *self._splits.problems]


def dropped_of(run: Run, path: MessagePath) -> list[int]:
    """Numbers of occurrences that may be missing, for each event of the path."""
    return [missing_events(run, event.component, event.entity) for event in path.events]


def path_problems(
    path: MessagePath, dropped: Sequence[int], parts: Sequence[MeasuredInterval]
) -> list[str]:
    """Events that are missing from the trace, and messages that came before they were sent."""
    found = []
    for event, missing in zip(path.events, dropped, strict=True):
        if missing:
            found.append(
                f"path {path.name}: {some_dropped(missing)} {event} may be missing from the "
                "trace; verdicts allow for it, the statistics are of what was recorded"
            )
    for part in parts:
        intervals = part.intervals
        if len(backwards := intervals.contradictions):
            worst = backwards[intervals.length[backwards].argmin()]
            key = intervals.keys.shown(int(intervals.id[worst]))
            found.append(
                f"path {path.name}, {part.name}: {len(backwards)} messages arrived before they "
                f"were sent by more than the clock's error (worst: {path.key} {key} "
                f"of repeat {intervals.repeat[worst]}, "
                f"{duration(int(intervals.length[worst]))} "
                f"{maximum_error(int(intervals.err[worst]))}); that error was too small"
            )
    return found


def some_dropped(n: int) -> str:
    """`up to 3`, for before the word events."""
    return "an unknown number of" if n >= UNACCOUNTED else f"up to {number(n)}"


def printed(bracket: Bracket | None) -> int | float | None:
    """A value as results hold it: whole, or rounded to a tenth."""
    if bracket is None:
        return None
    return bracket.value if isinstance(bracket.value, int) else float(round(bracket.value, 1))


def significant(bracket: Bracket) -> float:
    """A value that is no time, as results hold it."""
    return float(f"{float(bracket.value):.6g}")
