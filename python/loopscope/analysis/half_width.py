"""Half-widths of the times between two stamps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.statistic import Nanoseconds


def half_widths(
    length: Nanoseconds,
    sum_of_stamps: Nanoseconds,
    drift_ppm: npt.NDArray[np.float64],
    one_host: npt.NDArray[np.bool_],
) -> Nanoseconds:
    """Of intervals: both stamps' half-widths together.

    Where both stamps are of one host, only the wander of its rate within the interval counts, if
    that is less: 2·drift·Δ, rounded up, plus 1 ns. NaN: a drift that is not known.
    """
    wander = np.ceil(2e-6 * drift_ppm * np.abs(length)) + 1
    return np.where(one_host & (wander < sum_of_stamps), wander, sum_of_stamps).astype(np.int64)
