"""Statistics of intervals, each with the bracket in which its true value lies.

Every interval x is known to within its maximum error e, so each true interval lies in [x − e, x +
e]. Order statistics and the mean never decrease when a value grows; the statistic of all x − e and
that of all x + e therefore enclose the true one.

Percentiles are by nearest rank: p99 of n values is the ⌈0.99·n⌉-th smallest, always a value that
was measured.

Where the trace itself dropped events, up to `hidden` further messages may have arrived unseen. They
may have taken anything from nothing to for ever, and the bracket allows for that. The same goes for
messages of which a stamp has an unknown error, because a clock was disturbed about then.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loopscope.analysis.quantity_text import UNKNOWN_NS

if TYPE_CHECKING:
    import numpy.typing as npt

    Nanoseconds: TypeAlias = npt.NDArray[np.int64]

Exact: TypeAlias = "int | Fraction"


@dataclass(frozen=True)
class Bracket:
    """A value as measured and the ends, both possible, between which the true one lies."""

    value: Exact
    lower: Exact
    upper: Exact | None
    """None where nothing bounds it."""

    @property
    def err(self) -> int | None:
        """The farther end's distance from the value, rounded up."""
        if self.upper is None:
            return None
        return math.ceil(max(self.upper - self.value, self.value - self.lower))

    @staticmethod
    def exact(value: int) -> Bracket:
        return Bracket(value, value, value)


def quantile(statistic: str) -> Fraction | None:
    """Quantile for which `p50`, `p99`, `p999` (99.9 %), `p9999` … stand; None for other words."""
    match = re.fullmatch(r"p(\d{1,2})(\d*)", statistic)
    if match is None:
        return None
    whole, fraction = match.groups()
    found = Fraction(int(whole), 100) + Fraction(int(fraction or 0), 100 * 10 ** len(fraction))
    return found if found > 0 else None


class Sample:
    """Intervals in ns with their maximum errors, of the messages that were seen at both ends."""

    def __init__(
        self, intervals: Nanoseconds, maximum_errors: Nanoseconds, hidden: int = 0
    ) -> None:
        unknown = maximum_errors >= UNKNOWN_NS
        self.unknown = int(unknown.sum())
        """Number of intervals whose error is not known."""
        width = np.where(unknown, 0, maximum_errors)
        self._value = np.sort(intervals)
        self._low = np.sort(np.where(unknown, np.minimum(intervals, 0), intervals - width))
        # The unknown ones are the last, and never asked for.
        self._high = np.sort(np.where(unknown, np.iinfo(np.int64).max, intervals + width))
        self._hidden = hidden
        # The standard deviation is a distance from the mean over √n, so errors of these maximum
        # errors move it by their root mean square at most; 0.1 ns is for rounding.
        squares = np.square(width, dtype=np.float64)
        self._reach = (
            Fraction(math.ceil(math.sqrt(squares.mean()) * 10) + 1, 10) if len(squares) else 0
        )
        bounded = len(maximum_errors) and not self.unknown
        self.largest_error = int(maximum_errors.max()) if bounded else None
        """None where there is none, and where one is unknown."""

    def __len__(self) -> int:
        return len(self._value)

    def bracket(self, statistic: str) -> Bracket | None:
        """`min`, `max`, `mean`, `deviation` or a percentile; None where there is no interval.

        Raises `ValueError` for another word.
        """
        n, hidden = len(self), self._hidden
        if statistic == "mean":
            return self._mean() if n else None
        if statistic == "deviation":
            return self._deviation() if n else None
        if statistic == "min":
            value, low, high = 1, 1, 1
        elif statistic == "max":
            value, low, high = n, n + hidden, n + hidden
        elif (q := quantile(statistic)) is not None:
            value = nearest_rank(q, n)
            low = high = nearest_rank(q, n + hidden)
        else:
            raise ValueError(f"no statistic {statistic!r}: min, mean, max, deviation, a percentile")
        if n == 0:
            return None
        return Bracket(
            value=int(self._value[value - 1]),
            lower=self._lower(low - hidden),
            upper=int(self._high[high - 1]) if high <= n - self.unknown else None,
        )

    def _lower(self, rank: int) -> int:
        """The order statistic of the lower ends, the hidden messages all before the first."""
        return int(self._low[rank - 1]) if rank > 0 else min(0, int(self._low[0]))

    def _mean(self) -> Bracket:
        n, hidden = len(self), self._hidden
        low = exact_sum(self._low)
        return Bracket(
            value=Fraction(exact_sum(self._value), n),
            lower=min(Fraction(low, n), Fraction(low, n + hidden)),
            upper=None if hidden or self.unknown else Fraction(exact_sum(self._high), n),
        )

    def _deviation(self) -> Bracket:
        """The standard deviation, of these messages and not of a larger population."""
        value = Fraction(round(float(np.std(self._value - self._value[0])), 1))
        if self._hidden or self.unknown:
            return Bracket(value, Fraction(0), None)
        return Bracket(value, max(Fraction(0), value - self._reach), value + self._reach)


def nearest_rank(q: Fraction, n: int) -> int:
    return max(1, math.ceil(q * n))


def exact_sum(values: Nanoseconds) -> int:
    """The halves' sums stay within 64 bits for up to 2³¹ values."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFF_FFFF).sum())
