"""When a run's repeats begin and end, and what lies within a time of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.bounded_statistics import Bracket
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.timeline.relation import literals

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.measured import MeasuredInterval, MeasuredPath
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.messages import Mask
    from loopscope.experiment import Expectation, MessagePath, PathEvent, TimeWindow
    from loopscope.timeline import Run

ENUMERATED = 4
"""Up to so many messages at the edges of a time are each taken in and left out in turn."""


class RepeatTimes:
    """For each repeat: its time zero, and until when it surely went on.

    Time zero is the first occurrence of any of some events; the end, of a path, that of the last
    event of the programs that it goes through. What others recorded afterwards, the links' router
    among them, does not say that these still ran.
    """

    def __init__(self, run: Run, events: Iterable[PathEvent]) -> None:
        self._run = run
        self._events = dict.fromkeys((each.table, each.component) for each in events)
        self._size = max(run.repeats, default=0) + 1
        self._ends: dict[frozenset[str], Nanoseconds] = {}
        self._whole: MessagePath | None = None

    @property
    def zero(self) -> Nanoseconds:
        """Time that counts as 0, by number of repeat; 0 where none of the events occurred."""
        return self._zeros[0]

    def of_parts(self, whole: MessagePath) -> RepeatTimes:
        """Times for parts of a path, which go on for as long as the whole path does."""
        times = copy(self)
        times._whole = whole
        return times

    def end(self, path: MessagePath) -> Nanoseconds:
        """By number of repeat."""
        programs = frozenset(event.component for event in (self._whole or path).events)
        if programs not in self._ends:
            self._ends[programs] = self._end(programs)
        return self._ends[programs]

    def _end(self, programs: frozenset[str]) -> Nanoseconds:
        found = np.full(self._size, -UNKNOWN_NS)
        of_programs = f"process IN ({literals(*sorted(programs))})"
        for name in self._run.tables:
            here = self._run.relation(name).filter(of_programs)
            for repeat, end in here.aggregate("repeat, max(ts - err_ns)").fetchall():
                found[repeat] = max(found[repeat], end)
        return found

    def within(
        self,
        window: TimeWindow | None,
        repeat: npt.NDArray[np.int32],
        begin: tuple[Nanoseconds, Nanoseconds],
        end: tuple[Nanoseconds, Nanoseconds] | None = None,
    ) -> tuple[Mask, Mask]:
        """Masks of what may lie in a window, and of what of that may not.

        A row is from its beginning to its `end` (None: at its beginning). Times with their maximum
        errors.
        """
        possible, sure = np.ones((2, len(repeat)), np.bool_)
        if window is None:
            return possible, ~sure
        if window.after_ns:
            low, high = self._since(repeat, *begin)
            possible, sure = high >= window.after_ns, low >= window.after_ns
        if window.until_ns is not None:
            low, high = self._since(repeat, *(end or begin))
            possible, sure = possible & (low < window.until_ns), sure & (high < window.until_ns)
        return possible, possible & ~sure

    def until(
        self, window: TimeWindow | None, path: MessagePath
    ) -> tuple[Nanoseconds, Nanoseconds]:
        """The earlier of the window's end and the path's for each repeat, and the maximum error."""
        end = self.end(path)
        err = np.zeros_like(end)
        if window is None or window.until_ns is None:
            return end, err
        zero, low, high = self._zeros
        at = zero + window.until_ns
        widths = np.maximum(zero - low, high - zero)
        return np.minimum(end, at), np.where(at < end, widths, err)

    def _since(
        self, repeat: npt.NDArray[np.int32], at: Nanoseconds, err: Nanoseconds
    ) -> tuple[Nanoseconds, Nanoseconds]:
        """The least and the most time since time zero."""
        _, low, high = self._zeros
        return at - err - high[repeat], at + err - low[repeat]

    @cached_property
    def _zeros(self) -> tuple[Nanoseconds, Nanoseconds, Nanoseconds]:
        """Earliest stamp and the two instants between which it lies, by number of repeat."""
        never = np.iinfo(np.int64).max
        zero, low, high = (np.full(self._size, never) for _ in range(3))
        for name, component in self._events:
            if name not in self._run.tables:
                continue
            here = self._run.relation(name).filter(f"process = {literals(component)}")
            ends = here.aggregate("repeat, min(ts), min(ts - err_ns), min(ts + err_ns)")
            for repeat, *row in ends.fetchall():
                for of, value in zip((zero, low, high), row, strict=True):
                    of[repeat] = min(of[repeat], value)
        nothing = zero == never
        return np.where(nothing, 0, zero), np.where(nothing, 0, low), np.where(nothing, 0, high)


def choices(possible: Mask, unsure: Mask) -> list[tuple[Mask, int]]:
    """The ways to take what may lie in a window: the rows, and how many more may belong to them."""
    sure = possible & ~unsure
    edge = np.flatnonzero(unsure)
    if len(edge) > ENUMERATED:
        return [(sure, len(edge))]
    found = []
    for taken in product((False, True), repeat=len(edge)):
        rows = sure.copy()
        rows[edge] = taken
        found.append((rows, 0))
    return found


def bracket_of(
    expectation: Expectation, path: MeasuredPath | MeasuredDag, times: RepeatTimes
) -> tuple[MeasuredInterval, Bracket | None]:
    """The part of a path that an expectation of one number is about, and its bracket.

    The bracket holds whichever messages its window has; None where there is nothing to measure.

    Raises `ValueError` where the path has no such part or statistic.
    """
    window, hop = expectation.window, expectation.hop
    parts: Sequence[MeasuredInterval]
    if window is not None:
        parts = path.windowed(hop, window, times)
    else:
        parts = [path.loop if hop is None else path.part((hop.start, hop.end))]
    assert expectation.stat is not None
    brackets = [part.bracket(expectation.stat) for part in parts]
    known = [each for each in brackets if each is not None]
    if len(known) < len(brackets):
        return parts[0], None
    highest = [each.upper for each in known]
    return parts[0], Bracket(
        value=known[0].value,
        lower=min(each.lower for each in known),
        upper=None if None in highest else max(high for high in highest if high is not None),
    )
