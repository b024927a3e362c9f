"""Maximum errors of the times between two stamps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds

COUNTER = np.dtype([("drift_ppm", np.float64), ("apart_ns", np.float64)])
"""Claims of a host's counter.

The bound on the difference between its rate and its mean (NaN: not known), and how far those of two
processors may be apart, in whole ns (0: nobody measured it).
"""
NO_COUNTER = (np.nan, 0.0)


def maximum_errors(
    length: Nanoseconds,
    sum_of_stamps: Nanoseconds,
    counter: npt.NDArray[np.void],
    one_host: npt.NDArray[np.bool_],
) -> Nanoseconds:
    """Maximum errors of intervals: those of both stamps together.

    Where both are of one host's `counter` (`COUNTER`), what that one claims, if that is less.
    """
    wander = on_one_host(length, counter)
    return np.where(one_host & (wander < sum_of_stamps), wander, sum_of_stamps).astype(np.int64)


def on_one_host(length: Any, counter: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Maximum errors of intervals Δ between two stamps of one host.

    2·drift·Δ, rounded up, what its processors' counters are apart, as the stamps may be of two, and
    1 ns. NaN: not known.
    """
    wander = np.ceil(2e-6 * counter["drift_ppm"] * np.abs(length))
    found: npt.NDArray[np.float64] = wander + counter["apart_ns"] + 1
    return found


def nearest(counter: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Distance within which the order of two stamps of a host is open, ns.

    The greatest Δ that is no more than its maximum error (`on_one_host`). NaN where the drift is
    not known.
    """
    share = 2e-6 * counter["drift_ppm"]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.ceil((2 + counter["apart_ns"]) / (1 - share)) - 1
    return np.where(share < 1, found, np.nan)
