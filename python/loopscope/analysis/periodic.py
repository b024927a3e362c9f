"""Events that are to occur periodically: their intervals, their rate and their jitter.

An interval is between consecutive occurrences at one component within a repeat; it lies in a window
if both do.
**Rate**: the number of intervals by the time that they take together, so the mean rate.
**Jitter**: peak-to-peak period jitter, the longest interval less the shortest (the distance of the
extremes of what JEDEC's JESD65B calls period jitter). `every T within W` bounds the deviation of
each interval from T, which Buttazzo calls relative release jitter. What follows a repeat's last
occurrence is no interval.

An occurrence that the trace dropped divides an interval, or lies before the first or behind the
last: each makes one interval more, and changes one at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.account import missing_events
from loopscope.analysis.deadline import Cases, Doubt, compare
from loopscope.analysis.half_width import half_widths
from loopscope.analysis.messages import drifts
from loopscope.analysis.quantity import UNKNOWN_NS
from loopscope.analysis.statistic import Bracket

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.messages import Mask
    from loopscope.analysis.statistic import Nanoseconds
    from loopscope.analysis.window import RepeatTimes
    from loopscope.experiment import PathEvent, TimeWindow
    from loopscope.timeline import Run

SECOND = 10**9


@dataclass(frozen=True)
class Occurrences:
    """Intervals between occurrences of an event in a window, in the order of repeats and time."""

    count: int
    """Occurrences in the window, those at its edges included."""
    repeat: npt.NDArray[np.int32]
    id: npt.NDArray[np.int64]
    """Of the one at the interval's end."""
    start: Nanoseconds
    length: Nanoseconds
    err: Nanoseconds
    optional: Mask
    """Those that may not lie in the window."""
    dropped: int
    """So many more occurrences there may be."""

    def cases(self, period_ns: int, limit_ns: int) -> Cases:
        """`every PERIOD within LIMIT`."""
        deviation = np.abs(self.length - period_ns)
        may_meet, may_miss = compare(deviation, self.err, "<=", limit_ns)
        n = len(self.id)
        return Cases(
            repeat=self.repeat,
            id=self.id,
            time=self.start,
            value=self.length,
            err=self.err,
            lost=np.zeros(n, np.bool_),
            may_meet=may_meet,
            may_miss=may_miss,
            optional=self.optional,
            open=np.ones(n, np.bool_),
            excess=deviation,
            doubt=Doubt(self.dropped, self.dropped, self.dropped),
        )

    def bracket(self, stat: str) -> Bracket | None:
        """`rate`, Hz, or `jitter`, ns; None of no interval."""
        sure = ~self.optional
        if not sure.any():
            return None
        return self._rate(sure) if stat == "rate" else self._jitter(sure)

    def _rate(self, sure: Mask) -> Bracket:
        time, least = int(self.length.sum()), int(self.length[sure].sum())
        # Within a repeat the widths of neighbours' common stamps cancel; their sum is at least
        # that of the whole.
        if (self.err >= UNKNOWN_NS).any():
            return Bracket(_rate(len(sure), time), Fraction(0), None)
        most, fewest = time + int(self.err.sum()), least - int(self.err[sure].sum())
        return Bracket(
            value=_rate(len(sure), time),
            # One that was dropped may have come long before the first or after the last.
            lower=Fraction(0) if self.dropped else _rate(int(sure.sum()), most),
            upper=_rate(len(sure) + self.dropped, fewest) if fewest > 0 else None,
        )

    def _jitter(self, sure: Mask) -> Bracket:
        low, high = self.length - self.err, self.length + self.err
        known = self.err < UNKNOWN_NS
        # Each dropped occurrence may divide one of the longest, or have come long after the last.
        longest = np.sort(low[sure])
        least = int(longest[-1 - self.dropped]) if self.dropped < len(longest) else 0
        shortest = max(0, int(low.min()))
        return Bracket(
            value=int(self.length.max() - self.length.min()),
            lower=max(0, least - int(high[sure].min())),
            upper=int(high.max()) - shortest if known.all() and not self.dropped else None,
        )


def occurrences(
    run: Run, event: PathEvent, window: TimeWindow | None, times: RepeatTimes
) -> Occurrences:
    """Of an event at its component. `UnknownTableError` where no such event was recorded at all."""
    table = run.table(event.table)
    here = table.filter(table.process == event.component)
    chosen = here.select("repeat", "ts", "err_ns", "host", "id").order_by("repeat", "ts", "id")
    rows = chosen.to_pyarrow()
    repeat, ts, err = (rows[name].to_numpy() for name in ("repeat", "ts", "err_ns"))
    number = rows["id"].fill_null(0).to_numpy()
    codes = rows["host"].combine_chunks().cast("string").dictionary_encode()
    host, names = codes.indices.to_numpy(), codes.dictionary.to_pylist()
    bounds = drifts(run)
    size = (int(repeat.max(initial=0)) + 1, len(names) + 1)
    drift = np.full(size, np.nan)
    for (of, name), ppm in bounds.items():
        if of < size[0] and name in names:
            drift[of, names.index(name)] = ppm
    length = np.diff(ts)
    widths = half_widths(
        length, err[:-1] + err[1:], drift[repeat[:-1], host[:-1]], host[:-1] == host[1:]
    )
    possible, edge = times.within(window, repeat[1:], (ts[:-1], err[:-1]), (ts[1:], err[1:]))
    possible &= repeat[:-1] == repeat[1:]
    counted, _ = times.within(window, repeat, (ts, err))
    return Occurrences(
        count=int(counted.sum()),
        repeat=repeat[1:][possible],
        id=number[1:][possible],
        start=ts[:-1][possible],
        length=length[possible],
        err=widths[possible],
        optional=edge[possible],
        dropped=missing_events(run, event.component, event.entity),
    )


def _rate(intervals: int, time_ns: int) -> Fraction:
    return Fraction(intervals * SECOND, max(1, time_ns))
