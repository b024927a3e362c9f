"""Regularity of arrivals: messages at an event, or the occurrences of one.

An interval is between two in succession within a repeat.
**Rate**: the number of intervals by the time that they take together, so the mean rate.
**Jitter**: peak-to-peak period jitter, the longest interval less the shortest (the distance of the
extremes of what JEDEC's JESD65B calls period jitter).

What is missing from the trace divides an interval, or came before the first or after the last: each
makes one interval more, and changes one at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.bounded_statistics import Bracket
from loopscope.analysis.maximum_error import maximum_errors
from loopscope.analysis.missing_events import UNACCOUNTED
from loopscope.analysis.quantity_text import UNKNOWN_NS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds

    Mask = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.intp]

SECOND = 10**9


@dataclass(frozen=True)
class Arrivals:
    """An entry each, in the order of repeats and time."""

    repeat: npt.NDArray[np.int32]
    ts: Nanoseconds
    err: Nanoseconds
    host: npt.NDArray[np.int16]
    """Codes."""
    counter: npt.NDArray[np.void]
    """Claims of each one's counter (`maximum_error.COUNTER`)."""

    @property
    def intervals(self) -> Rows:
        """Where they begin; each ends at the next entry."""
        return np.flatnonzero(self.repeat[1:] == self.repeat[:-1])

    def lengths(self, at: Rows) -> tuple[Nanoseconds, Nanoseconds]:
        """The lengths of some intervals and their maximum errors, in ns."""
        return self._between(at, at + 1)

    def together(self, at: Rows) -> tuple[int, int]:
        """The time that some intervals take, and its maximum error; stamps within do not count."""
        apart = np.diff(at) != 1
        first, last = at[np.r_[True, apart][: len(at)]], at[np.r_[apart, True][: len(at)]] + 1
        length, err = self._between(first, last)
        return int(length.sum()), sum(err.tolist())

    def _between(self, first: Rows, last: Rows) -> tuple[Nanoseconds, Nanoseconds]:
        length = self.ts[last] - self.ts[first]
        one_clock = self.host[first] == self.host[last]
        stamps = self.err[first] + self.err[last]
        return length, maximum_errors(length, stamps, self.counter[first], one_clock)


def regularity(
    stat: str,
    arrivals: Arrivals,
    missing: int,
    judged: Rows | None = None,
    sure: Mask | None = None,
) -> Bracket | None:
    """`rate`, Hz, or `jitter`, ns; None where no interval surely is judged.

    `judged` are intervals, all where it is None; those of them that are not `sure` may not belong.
    """
    at = arrivals.intervals if judged is None else judged
    surely = at if sure is None else at[sure]
    if not len(surely):
        return None
    return (_rate if stat == "rate" else _jitter)(arrivals, missing, at, surely)


def _rate(arrivals: Arrivals, missing: int, at: Rows, surely: Rows) -> Bracket | None:
    (time, err), (least, less) = arrivals.together(at), arrivals.together(surely)
    if time <= 0:
        return None
    bounded = least > less and missing < UNACCOUNTED
    return Bracket(
        value=Fraction(len(at) * SECOND, time),
        # What is missing may have come long before the first or after the last.
        lower=Fraction(0) if missing else Fraction(len(surely) * SECOND, time + err),
        upper=Fraction((len(at) + missing) * SECOND, least - less) if bounded else None,
    )


def _jitter(arrivals: Arrivals, missing: int, at: Rows, surely: Rows) -> Bracket:
    length, err = arrivals.lengths(at)
    sure_length, sure_err = arrivals.lengths(surely)
    # Each that is missing may divide one of the longest, or have come long after the last.
    longest = np.sort(sure_length - sure_err)
    least = int(longest[-1 - missing]) if missing < len(longest) else 0
    known = bool((err < UNKNOWN_NS).all()) and not missing
    spread = int((length + err).max()) - max(0, int((length - err).min()))
    return Bracket(
        value=int(length.max() - length.min()),
        lower=max(0, least - int((sure_length + sure_err).min())),
        upper=spread if known else None,
    )
