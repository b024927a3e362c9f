"""Fewer points than were measured, and every outlier among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Indices = npt.NDArray[np.intp]


def thin(values: npt.NDArray[np.generic], limit: int) -> Indices:
    """Ascending indices of at most `limit` values, each stretch's greatest and least among them."""
    n = len(values)
    if n <= limit:
        return np.arange(n)
    kept: list[Indices] = []
    for stretch in np.array_split(np.arange(n), max(1, limit // 4)):
        here = values[stretch]
        of_stretch = [here.argmin(), here.argmax(), 0, len(stretch) // 2]
        kept.append(stretch[of_stretch])
    return np.unique(np.concatenate(kept))


def seen(x: Floats, y: Floats, columns: int, rows: int) -> Indices:
    """Ascending indices of the points that a raster of `columns` by `rows` dots can tell apart.

    Of each dot that any point lies on the first one, and of each column exactly the least and the
    greatest y: no outlier moves, none disappears. All must be finite; for logarithmic axes give
    logarithms.
    """
    n = len(x)
    if n <= 2 * columns:
        return np.arange(n)
    column, row = cells(x, columns), cells(y, rows)
    dot = column * rows + row
    first = np.full(columns * rows, n, dtype=np.intp)
    first[dot[::-1]] = np.arange(n - 1, -1, -1)
    order = np.argsort(column, kind="stable")
    begins = np.flatnonzero(np.r_[True, np.diff(column[order]) != 0])
    ends: list[Indices] = []
    for extreme in (np.minimum, np.maximum):
        reached = extreme.reduceat(y[order], begins)
        widths = np.diff(np.r_[begins, n])
        hit = np.flatnonzero(y[order] == np.repeat(reached, widths))
        # The first that reaches it in each column.
        ends.append(order[hit[np.searchsorted(hit, begins)]])
    kept: Indices = np.unique(np.concatenate([first[first < n], *ends]))
    return kept


def cells(values: npt.NDArray[Any], number: int) -> Indices:
    """In which of so many equal parts of their range each value lies."""
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return np.zeros(len(values), dtype=np.intp)
    part = np.minimum((values - low) * (number / (high - low)), number - 1)
    found: Indices = part.astype(np.intp)
    return found
