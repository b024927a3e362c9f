"""The messages of an input that each message of an event is made of.

Messages are places in an event's `Occurrences`, so in order of time. What an event used of an input
is a span of places there: one place where it follows or takes the latest, several in a window, none
where nothing had come. The clock leaves a message's place before or after an instant open when both
are within their maximum error of each other; so there are two spans, of what surely was used and of
what may have been. Where they differ it is not known what was used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.occurrences import NOWHERE, Occurrences

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.occurrences import Places

    Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Spans:
    """Spans from `start` to before `stop`, one for each message that uses; empty: nothing."""

    start: Places
    stop: Places

    @cached_property
    def empty(self) -> Mask:
        return self.start >= self.stop

    def over(self, values: npt.NDArray[Any], reduce: np.ufunc, nothing: int) -> npt.NDArray[Any]:
        """The least (or greatest) value of the input in each span; `nothing` for an empty one."""
        width = self.stop - self.start
        found = np.full(len(width), nothing, values.dtype)
        # Two stretches of 2ᵏ values, of which the least is known, make up any span.
        level = values
        for k in range(int(width.max(initial=0)).bit_length()):
            step = 1 << k
            if k:
                level = reduce(level[: len(level) - step // 2], level[step // 2 :])
            here = np.flatnonzero((width >= step) & (width < 2 * step))
            first = level[self.start[here]]
            found[here] = reduce(first, level[self.stop[here] - step]) if k else first
        return found

    def onto(
        self, values: npt.NDArray[Any], size: int, reduce: np.ufunc, nothing: int
    ) -> npt.NDArray[Any]:
        """The least (or greatest) value of the messages in whose spans each of the input is.

        The input has `size` messages; a message that is in no span has `nothing`.
        """
        width = self.stop - self.start
        widest = int(width.max(initial=0)).bit_length() - 1
        level = np.full(size, nothing, values.dtype)
        for k in range(widest, -1, -1):
            step = 1 << k
            here = (width >= step) & (width < 2 * step)
            reduce.at(level, self.start[here], values[here])
            if k:
                reduce.at(level, self.stop[here] - step, values[here])
                # What holds for a stretch holds for both its halves.
                half = step // 2
                lower = level
                level = lower.copy()
                reduce(level[half:], lower[: size - half], out=level[half:])
        return level


@dataclass(frozen=True)
class Link:
    """Use of one input by the messages of an event."""

    sure: Spans
    possible: Spans
    strangers: Mask
    """Whether they say that they used a message that was not seen at the input."""

    @property
    def single(self) -> bool:
        """Whether no message surely used several."""
        return int((self.sure.stop - self.sure.start).max(initial=0)) <= 1

    @property
    def repeated(self) -> bool:
        """Whether several messages surely used one."""
        used = self.sure.start[~self.sure.empty]
        return bool((np.bincount(used) > 1).any()) if len(used) else False

    @cached_property
    def undecided(self) -> Mask:
        """Whether the clock leaves open what they used."""
        differ = (self.sure.start != self.possible.start) | (self.sure.stop != self.possible.stop)
        decided: Mask = differ & ~self.possible.empty
        return decided


def by_number(used: Occurrences, field: str | None, input: Occurrences) -> Link:
    """The message of the input with the number that a field holds; `None`: their own."""
    if field is None:
        place = input.find(used.id)
        strangers = place == NOWHERE
    else:
        given = used.fields[field]
        place = np.where(given.known, input.find(given.values), NOWHERE)
        strangers = given.known & (place == NOWHERE)
    # An empty span begins at 0, so that it is in order as well.
    start = np.maximum(place, 0)
    spans = Spans(start, np.where(place == NOWHERE, start, start + 1))
    return Link(spans, spans, strangers)


def latest(
    used: Occurrences,
    input: Occurrences,
    nearest_ns: npt.NDArray[np.float64],
    nearest_input_ns: npt.NDArray[np.float64],
) -> Link:
    """The newest that had come. `nearest_ns` as for `open_within`, by message of either."""
    width = open_within(used, input, used.ts, nearest_ns)
    before = np.searchsorted(input.ts, used.ts - width, "left") - 1
    perhaps = np.searchsorted(input.ts, used.ts + width, "right") - 1
    # The newest one that surely had come, and those that may have come after it.
    first = np.maximum(before, 0)
    if len(input):
        first = np.minimum(first, tied(input, nearest_input_ns)[0][first])
    possible = Spans(first, np.maximum(perhaps + 1, first))
    decided = (before == perhaps) & (possible.stop - first <= 1)
    sure = Spans(first, np.where(decided, possible.stop, first))
    return Link(sure, possible, np.zeros(len(used), np.bool_))


def tied(input: Occurrences, nearest_ns: npt.NDArray[np.float64]) -> tuple[Places, Places]:
    """The messages of an input that the clock cannot order against each one of them.

    For each message: the first place, and the one after the last.
    """
    width = open_within(input, input, input.ts, nearest_ns)
    return (
        np.searchsorted(input.ts, input.ts - width, "left"),
        np.searchsorted(input.ts, input.ts + width, "right"),
    )


def window(
    used: Occurrences,
    input: Occurrences,
    length_ns: int,
    nearest_ns: npt.NDArray[np.float64],
    wander: npt.NDArray[np.float64],
) -> Link:
    """All that had come, `length_ns` ago at most.

    `nearest_ns` as for `open_within`, `wander` what the rate may be off by over the window, ns.
    """
    end = open_within(used, input, used.ts, nearest_ns)
    begin = open_within(used, input, used.ts - length_ns, wander)
    start = used.ts - length_ns
    sure_start = np.searchsorted(input.ts, start + begin, "right")
    sure = Spans(
        sure_start, np.maximum(np.searchsorted(input.ts, used.ts - end, "left"), sure_start)
    )
    possible_start = np.searchsorted(input.ts, start - begin, "left")
    possible = Spans(
        possible_start,
        np.maximum(np.searchsorted(input.ts, used.ts + end, "right"), possible_start),
    )
    return Link(sure, possible, np.zeros(len(used), np.bool_))


def open_within(
    used: Occurrences, input: Occurrences, at: Nanoseconds, most_ns: npt.NDArray[np.float64]
) -> Nanoseconds:
    """Distance from an instant within which a message's place before or after it is open, ns.

    Both stamps' maximum errors, the wider one's of the messages around the instant; `most_ns` (by
    the user's message; NaN: nothing) where that is less, as it is between stamps of one clock.
    """
    if not len(input):
        return np.zeros(len(used), np.int64)
    after = np.searchsorted(input.ts, at, "right")
    around = np.maximum(
        input.err[np.maximum(after - 1, 0)], input.err[np.minimum(after, len(input) - 1)]
    )
    stamps = used.err + around
    return np.where(most_ns < stamps, most_ns, stamps).astype(np.int64)
