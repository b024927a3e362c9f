"""Where the mean of a series of values changes: exact segmentation by dynamic programming.

The squared distances of all values from the mean of their segment are least in sum (Jackson et al.,
*An algorithm for optimal partitioning of data on an interval*, 2005).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopscope.analysis.findings.series import Floats


def changes(values: Floats, most: int, least: int) -> Iterator[list[int]]:
    """For 1, 2, ... ``most`` changes, the places at which new segments begin, in their order.

    Each segment has ``least`` values or more; there are enough of them for that. Time and memory
    grow with the square of the number of values.
    """
    count = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values**2)])
    # Matrices with a row for each begin of a segment, and a column for each end.
    length = np.arange(count + 1)[None, :] - np.arange(count + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = squares - squares[:, None] - (sums - sums[:, None]) ** 2 / length
    cost[length < least] = np.inf
    # For each end: the least cost of all segments until there, and the begin of the last one.
    total = cost[0]
    begins = []
    for number in range(1, most + 1):
        sum_at = total[:, None] + cost
        begins.append(np.argmin(sum_at, axis=0))
        total = np.min(sum_at, axis=0)
        places, end = [], count
        for begin in reversed(begins[:number]):
            end = int(begin[end])
            places.append(end)
        yield places[::-1]
