"""How regularly messages come: their rate, and by how much the times between two differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.half_width import half_widths
from loopscope.analysis.statistic import Bracket, Exact, Sample

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.statistic import Nanoseconds

SECOND = 10**9


@dataclass(frozen=True)
class Arrivals:
    """Of one repeat, in order of time: the times between messages, and from the first to the last,
    each with its half-width; ns."""

    between: Nanoseconds
    between_err: Nanoseconds
    whole: int
    whole_err: int


def arrivals(
    ts: Nanoseconds,
    err: Nanoseconds,
    host: npt.NDArray[np.int16],
    drift_ppm: npt.NDArray[np.float64],
) -> Arrivals:
    """Of messages in order of time; `drift_ppm` by the code of a host."""

    def widths(length: Nanoseconds, first: slice, last: slice) -> Nanoseconds:
        drift = drift_ppm[host[first]]
        return half_widths(length, err[first] + err[last], drift, host[first] == host[last])

    between = np.diff(ts)
    spread = widths(between, slice(None, -1), slice(1, None))
    if len(ts) < 2:
        return Arrivals(between, spread, 0, 0)
    whole = ts[-1:] - ts[:1]
    return Arrivals(
        between, spread, int(whole[0]), int(widths(whole, slice(0, 1), slice(-1, None))[0])
    )


def rate(repeats: Sequence[Arrivals], missing: int) -> Bracket | None:
    """Messages a second: those after each repeat's first, in the time since. None where no repeat
    has two. `missing` further ones may have come."""
    known = [each for each in repeats if len(each.between)]
    count, whole = sum(len(each.between) for each in known), sum(each.whole for each in known)
    err = sum(each.whole_err for each in known)
    if not known or whole <= 0:
        return None
    lower = Fraction(count * SECOND, whole + err)
    # A message before the first or after the last makes the time longer, by no one knows how much.
    sure = not missing and whole > err
    return Bracket(
        value=Fraction(count * SECOND, whole),
        lower=Fraction(0) if missing else lower,
        upper=Fraction(count * SECOND, whole - err) if sure else None,
    )


def jitter(repeats: Sequence[Arrivals], missing: int) -> Bracket | None:
    """The longest time between two messages in succession less the shortest. None where no repeat
    has two. Where messages are `missing` the true one may be anything: what lies between is then
    of two times."""
    empty: Nanoseconds = np.empty(0, np.int64)
    sample = Sample(
        np.concatenate([empty, *(each.between for each in repeats)]),
        np.concatenate([empty, *(each.between_err for each in repeats)]),
    )
    least, most = sample.bracket("min"), sample.bracket("max")
    if least is None or most is None:
        return None
    value: Exact = most.value - least.value
    if missing or least.upper is None or most.upper is None:
        return Bracket(value, 0, None)
    return Bracket(value, max(0, most.lower - least.upper), most.upper - least.lower)
