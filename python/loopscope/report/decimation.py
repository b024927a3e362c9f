"""Fewer points than were measured, and every outlier among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Indices = npt.NDArray[np.intp]

_BINS = (12, 90)
_FEWEST_LOGARITHMIC = 30
"""Bins over several decades; the rule for a width is blind to a long tail."""


@dataclass(frozen=True)
class Counts:
    """Counts of the values from `edges[0]` to `edges[-1]` ns; `below` and `beyond` lie outside."""

    edges: Floats
    counts: npt.NDArray[np.int64]
    below: int
    beyond: int
    logarithmic: bool = False
    """Whether bins have an equal width in the logarithm of the values."""


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


def histogram_of(
    values: npt.NDArray[Any], bins: int | None = None, logarithmic: bool = False
) -> Counts:
    """Counts in bins of equal width.

    The bins are by the rule of Freedman and Diaconis within limits, or as many as are given.

    A tail of at most 1 % above p99, or below p1, is left out and counted where it would take more
    than a third of the axis. Where `logarithmic`, bins have an equal width in the logarithm of the
    values, and values of zero or less are left out and counted.
    """
    if logarithmic:
        above = values > 0
        exponents = np.log10(values[above].astype(np.float64))
        of = histogram_of(exponents, bins)
        if bins is None and len(of.counts) < _FEWEST_LOGARITHMIC:
            of = histogram_of(exponents, _FEWEST_LOGARITHMIC)
        below = of.below + int((~above).sum())
        return replace(of, edges=10**of.edges, below=below, logarithmic=True)
    # Where large whole numbers differ little, floats tell only their differences apart.
    least = values.min() if values.dtype.kind == "i" else 0
    values = values - least
    low, p1, q1, q3, p99, high = (
        float(q) for q in np.quantile(values, [0, 0.01, 0.25, 0.75, 0.99, 1], method="inverted_cdf")
    )
    inner = p99 - p1
    end = high if high - p99 <= inner / 2 or not inner else p99 + inner / 20
    low = low if p1 - low <= inner / 2 or not inner else p1 - inner / 20
    width = 2 * (q3 - q1) / len(values) ** (1 / 3)
    fewest, most = _BINS
    if bins is None:
        bins = int(np.clip((end - low) / width, fewest, most)) if width > 0 else fewest
    counts, edges = np.histogram(values, bins=bins, range=(low, end if end > low else low + 1))
    below = int((values < edges[0]).sum())
    return Counts(
        edges + float(least),
        counts.astype(np.int64),
        below=below,
        beyond=len(values) - int(counts.sum()) - below,
    )
