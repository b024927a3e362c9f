"""Statistics that charts of samples show: tails, means at each x, counts in cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.bounded_statistics import exact_sum
from loopscope.report.decimation import cells

if TYPE_CHECKING:
    from loopscope.report.samples import Floats, Numbers, Series


@dataclass(frozen=True)
class Tail:
    """Numbers of `total` that are at least `value`, for as many values as a line needs.

    They are every one of the largest, and of the others some evenly in their logarithm.
    """

    value: Numbers
    count: Numbers
    total: int
    low: Floats | None
    """Order statistic of all values less their maximum errors; None without these."""
    high: Floats | None


def tail(series: Series, ranks: int, banded: bool = True) -> Tail:
    """`banded`: with the order statistics of the ends."""
    values = np.sort(series.values["x"])
    n = len(values)
    steps = np.r_[np.geomspace(1, n, ranks), np.linspace(1, n, ranks // 2), np.arange(1, 101)]
    count = np.unique(np.minimum(steps, n).astype(np.int64))[::-1]
    low = high = None
    if banded and "err" in series.values:
        err = series.values["err"]
        # A value without a known maximum error may be the least or the greatest.
        ends = np.where(np.isnan(err), -np.inf, series.values["x"] - err)
        tops = np.where(np.isnan(err), np.inf, series.values["x"] + err)
        least, most = float(values[0]), float(values[-1])
        reach = float(np.nanmax(err)) if not np.isnan(err).all() else 0.0
        low = np.clip(np.sort(ends)[n - count], min(least - reach, least), None)
        high = np.clip(np.sort(tops)[n - count], None, most + reach)
    # Equal values are all at least as large as each other.
    value = values[n - count]
    at_least = n - np.searchsorted(values, value, side="left")
    return Tail(value, at_least, n, low, high)


@dataclass(frozen=True)
class Point:
    """The statistics of the samples at one x."""

    x: float
    mean: Fraction | float
    deviation: float
    """Standard deviation of these samples."""
    err: float
    """Maximum error of the mean because of the clocks; NaN where unknown."""
    count: int | None


def grouped(series: Series) -> list[Point]:
    """Mean and deviation of y at each x.

    Whole numbers are added exactly, and others exactly before they are rounded, so the order of
    rows does not matter.
    """
    x, y = series.values["x"], series.values["y"]
    err = series.values.get("err")
    order = np.argsort(x, kind="stable")
    begins = np.flatnonzero(np.r_[True, np.diff(x[order]) != 0])
    points = []
    for here in np.split(order, begins[1:]):
        n = len(here)
        doubt = math.nan if err is None else math.fsum(err[here]) / n
        if y.dtype.kind == "i":
            first = int(y[here[0]])
            total, squares = exact_sums(y[here] - first)
            # The root of whole numbers, to more digits than a float has.
            deviation = math.isqrt((n * squares - total * total) << 64) / (n << 32)
            mean: Fraction | float = first + Fraction(total, n)
        else:
            mean = math.fsum(y[here]) / n
            deviation = math.sqrt(math.fsum((y[here] - mean) ** 2) / n)
        points.append(Point(float(x[here[0]]), mean, deviation, doubt, n))
    return points


def exact_sums(values: Numbers) -> tuple[int, int]:
    """The exact sums of whole numbers of up to 62 bits, and of their squares."""
    high, low = values >> 31, values & 0x7FFF_FFFF
    squares = (exact_sum(high * high) << 62) + (exact_sum(high * low) << 32) + exact_sum(low * low)
    return exact_sum(values), squares


def given(series: Series) -> list[Point]:
    err = series.values.get("err", np.full(len(series), np.nan))
    parts = (series.values["x"], series.values["y"], series.values["deviation"], err)
    lines = sorted(zip(*(part.tolist() for part in parts), strict=True))
    return [Point(x, mean, deviation, err, None) for x, mean, deviation, err in lines]


def grid(
    x: Numbers, y: Numbers, size: tuple[int, int], log: str
) -> tuple[Numbers, Numbers, Numbers]:
    """Numbers of samples in each of so many columns and rows, and the edges of these."""
    columns, rows = size
    place = cells(flat(x, "x" in log), columns) * rows
    place += cells(flat(y, "y" in log), rows)
    counts = np.bincount(place, minlength=columns * rows).reshape(columns, rows)
    return counts, _edges(x, columns, "x" in log), _edges(y, rows, "y" in log)


def _edges(values: Numbers, parts: int, logarithmic: bool) -> Numbers:
    low, high = float(values.min()), float(values.max())
    if high <= low:
        high = low * 1.1 if logarithmic else low + 1
    spaced = np.geomspace if logarithmic else np.linspace
    edges: Numbers = spaced(low, high, parts + 1)
    return edges


def flat(values: Numbers, logarithmic: bool) -> Floats:
    found: Floats = np.log10(values) if logarithmic else values.astype(np.float64)
    return found
