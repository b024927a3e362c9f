"""Events that are to occur periodically.

`every T within W` bounds the deviation of each interval from T, which Buttazzo calls relative
release jitter. An interval lies in a window if both its occurrences do; what follows a repeat's
last occurrence is no interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.deadline import Cases, Doubt, compare
from loopscope.analysis.keys import PLAIN
from loopscope.analysis.maximum_error import COUNTER, NO_COUNTER
from loopscope.analysis.messages import by_host, counters, host_codes
from loopscope.analysis.missing_events import missing_events
from loopscope.analysis.occurrences import read_occurrences
from loopscope.analysis.regularity import Arrivals, regularity

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Bracket
    from loopscope.analysis.messages import Mask, Rows
    from loopscope.analysis.window import RepeatTimes
    from loopscope.experiment import PathEvent, TimeWindow
    from loopscope.timeline import Run


@dataclass(frozen=True)
class Recurrence:
    """An event's occurrences, and its intervals in a window."""

    arrivals: Arrivals
    id: npt.NDArray[np.int64]
    """Id of each occurrence, 0 where it has none."""
    intervals: Rows
    """Those that may lie in the window."""
    sure: Mask
    """Those of them that do."""
    count: int
    """Occurrences in the window, those at its edges included."""
    dropped: int
    """Largest number of further occurrences that were dropped."""

    def cases(self, period_ns: int, limit_ns: int) -> Cases:
        """`every PERIOD within LIMIT`."""
        length, err = self.arrivals.lengths(self.intervals)
        deviation = np.abs(length - period_ns)
        may_meet, may_miss = compare(deviation, err, "<=", limit_ns)
        n = len(self.intervals)
        return Cases(
            repeat=self.arrivals.repeat[self.intervals],
            id=self.id[self.intervals + 1],
            time=self.arrivals.ts[self.intervals],
            value=length,
            err=err,
            lost=np.zeros(n, np.bool_),
            may_meet=may_meet,
            may_miss=may_miss,
            optional=~self.sure,
            open=np.ones(n, np.bool_),
            excess=deviation,
            doubt=Doubt(self.dropped, self.dropped, self.dropped),
        )

    def bracket(self, stat: str) -> Bracket | None:
        """`rate`, Hz, or `jitter`, ns; None of no interval."""
        return regularity(stat, self.arrivals, self.dropped, self.intervals, self.sure)


def recurrence(
    run: Run, event: PathEvent, window: TimeWindow | None, times: RepeatTimes
) -> Recurrence | None:
    """The recurrence of an event at its component; None where no such event was recorded at all."""
    hosts = host_codes(run)
    bounds = by_host(counters(run), hosts, max(run.repeats, default=0), COUNTER, NO_COUNTER)
    columns: list[tuple[npt.NDArray[Any], ...]] = []
    for repeat in run.repeats:
        here = read_occurrences(run, repeat, event, None, hosts, {"id": PLAIN})
        if here is None:
            return None
        of = np.full(len(here), repeat, np.int32)
        counter = bounds[repeat][here.host]
        columns.append((of, here.ts, here.err, here.host, counter, here.fields["id"].values))
    repeats, ts, err, host, counter, number = map(np.concatenate, zip(*columns, strict=True))
    arrivals = Arrivals(repeats, ts, err, host, counter)
    at = arrivals.intervals
    begin, end = (ts[at], err[at]), (ts[at + 1], err[at + 1])
    possible, edge = times.within(window, repeats[at], begin, end)
    counted, _ = times.within(window, repeats, (ts, err))
    return Recurrence(
        arrivals=arrivals,
        id=number,
        intervals=at[possible],
        sure=~edge[possible],
        count=int(counted.sum()),
        dropped=missing_events(run, event.component, event.entity),
    )
