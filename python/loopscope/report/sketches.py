"""The kinds of figures that any table can be drawn as: what each shows, as numbers and as marks.

Binning keeps extremes: a scatter plot has a point wherever a dot of its raster has one, and of each
column exactly the least and the greatest; a heat map shows a single sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.quantity import half_width, number, quantity
from loopscope.analysis.statistic import exact_sum
from loopscope.report.axis import Axis, axis_of, in_legend
from loopscope.report.palette import SERIES
from loopscope.report.samples import Column, FigureError, Samples, Series
from loopscope.report.series import histogram_of
from loopscope.report.thin import cells, seen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loopscope.report.samples import Floats, Numbers

Row = Sequence[str | int | float]
_DOTS_PER_INCH = 150
"""Of the raster that a scatter plot's points are told apart on."""
_RANKS = 600
_MARKERS = "os^Dv<>P"
_CELLS_PER_INCH = 20
_FEW_BARS = 400


@dataclass(frozen=True)
class Sketch:
    """A figure but for its title, its files and its size."""

    x: Axis
    y: Axis
    heading: Row
    rows: Iterable[Row]
    """Of the CSV, in base units."""
    notes: Sequence[str]
    paint: Callable[[Axes], None]
    key: str = ""
    """What the series differ in, with its unit: the title of the legend."""


def scatter(samples: Samples, options: Mapping[str, str], size: tuple[float, float]) -> Sketch:
    """`size` is that of the axes in inches."""
    log = _logarithmic(samples, options)
    x, y = _axis(samples, "x", "x" in log), _axis(samples, "y", "y" in log)
    columns, rows = (max(2, round(_DOTS_PER_INCH * length)) for length in size)
    kept = []
    for each in samples.series:
        across = _flat(each.values["x"], x.logarithmic)
        up = _flat(each.values["y"], y.logarithmic)
        index = seen(across, up, columns, rows)
        kept.append(
            Series(each.label, {role: values[index] for role, values in each.values.items()})
        )
    total, shown = len(samples), sum(map(len, kept))
    notes = [f"n = {number(total)}"]
    if shown < total:
        notes.append(f"{number(shown)} points shown, extremes kept")
    notes += _doubt(samples)

    def paint(axes: Axes) -> None:
        from loopscope.report.canvas import FEW

        for place, each in enumerate(kept):
            colour = SERIES[place % len(SERIES)]
            at, of = each.values["x"] / x.scale, each.values["y"] / y.scale
            # Of many points the bars would be a smear: the notes tell the largest.
            few = shown <= FEW
            if "err" in each.values and few and _visible(samples, size[1], log):
                wide = np.nan_to_num(each.values["err"]) / y.scale
                axes.vlines(at, of - wide, of + wide, color=colour, alpha=0.3, lw=0.8)
            axes.plot(
                at,
                of,
                ".",
                ms=2 if shown > _FEW_BARS else 4,
                mew=0,
                color=colour,
                rasterized=not few,
                label=in_legend(each.label) or None,
            )

    heading, lines = _columns(samples, kept, ("x", "y", "err"))
    return Sketch(x, y, heading, lines, [*notes, *samples.notes], paint, samples.key)


def histogram(samples: Samples, options: Mapping[str, str], size: tuple[float, float]) -> Sketch:
    log = options.get("log", "")
    values = samples.every("x")
    if "x" in log and not (values > 0).any():
        raise FigureError(f"log: no {samples.columns['x'].name} is above zero")
    whole = histogram_of(values, _number(options, "bins"), "x" in log)
    edges = whole.edges
    x = _axis(samples, "x", "x" in log)
    y = Axis(options.get("y_label", "samples"), "", 1, "", "y" in log)
    counts = [np.histogram(each.values["x"], bins=edges)[0] for each in samples.series]
    notes = [f"n = {number(len(samples))}"]
    outside = ((whole.below, "below", edges[0]), (whole.beyond, "above", edges[-1]))
    for left_out, word, end in outside:
        if left_out:
            shown = quantity(float(end), samples.columns["x"].unit)
            notes.append(f"{number(left_out)} {word} {shown} not shown")
    notes += _doubt(samples)
    several = len(counts) > 1

    def paint(axes: Axes) -> None:
        for place, (each, of) in enumerate(zip(samples.series, counts, strict=True)):
            axes.stairs(
                of,
                edges / x.scale,
                fill=not several,
                color=SERIES[place % len(SERIES)],
                label=in_legend(each.label) or None,
            )
        # A bin with a single sample is to be seen on a logarithmic axis too.
        axes.set_ylim(bottom=0.5 if y.logarithmic else 0)

    unit = samples.columns["x"].unit
    heading = ["series"] if several else []
    heading += [f"{end} ({unit})" if unit else end for end in ("from", "to")] + ["samples"]

    def rows() -> Iterable[Row]:
        for each, of in zip(samples.series, counts, strict=True):
            name = [each.label] if several else []
            for low, high, n in zip(edges[:-1], edges[1:], of.tolist(), strict=True):
                yield [*name, _short(float(low)), _short(float(high)), n]

    return Sketch(x, y, heading, rows(), [*notes, *samples.notes], paint, samples.key)


def ccdf(samples: Samples, options: Mapping[str, str], size: tuple[float, float]) -> Sketch:
    log = options.get("log", "x,y")
    x = _axis(samples, "x", "x" in log and bool((samples.every("x") > 0).any()))
    y = Axis(options.get("y_label", "share of samples at least as large"), "", 1, "", "y" in log)
    tails = [tail(each) for each in samples.series]
    notes = [] if len(tails) > 1 else [f"n = {number(len(samples))}"]
    if x.logarithmic and (below := int((samples.every("x") <= 0).sum())):
        notes.append(f"{number(below)} of zero or less have no place on the axis")
    notes += _doubt(samples)

    def paint(axes: Axes) -> None:
        for place, (each, of) in enumerate(zip(samples.series, tails, strict=True)):
            colour = SERIES[place % len(SERIES)]
            label = f"{in_legend(each.label)} (n = {number(of.total)})" if len(tails) > 1 else None
            value, share = of.value / x.scale, of.count / of.total
            # The line goes on to the left at 1, and ends at the largest.
            axes.step(value, share, where="pre", lw=1.1, color=colour, label=label)
            axes.plot(value[-1:], share[-1:], ".", ms=4, color=colour)
            if of.low is not None and of.high is not None:
                ends = of.low / x.scale, of.high / x.scale
                axes.fill_betweenx(share, *ends, step="post", color=colour, alpha=0.25, lw=0)
        if x.logarithmic:
            least = min(float(of.value[of.value > 0].min()) for of in tails if of.value.max() > 0)
            most = max(float(of.value.max()) for of in tails)
            axes.set_xlim(least / x.scale / 1.1, most / x.scale * 1.2)

    name = ["series"] if len(tails) > 1 else []
    unit = samples.columns["x"].unit
    ends = ["least by the clocks", "most by the clocks"] if tails[0].low is not None else []
    told = [f"{each} ({unit})" if unit else each for each in (samples.columns["x"].name, *ends)]

    def rows() -> Iterable[Row]:
        for each, of in zip(samples.series, tails, strict=True):
            bounds = [of.low, of.high] if of.low is not None else []
            parts = [of.value, *bounds, of.count]
            for line in zip(*(part.tolist() for part in parts if part is not None), strict=True):
                told = map(_short, line)
                yield [*([each.label] if name else []), *told, _short(line[-1] / of.total)]

    heading = [*name, *told, "samples at least as large", "share"]
    return Sketch(x, y, heading, rows(), [*notes, *samples.notes], paint, samples.key)


@dataclass(frozen=True)
class Tail:
    """How many of `total` are at least `value`, for so many of them as a line needs: every one of
    the largest, and evenly in their logarithm of the others."""

    value: Numbers
    count: Numbers
    total: int
    low: Floats | None
    """The same order statistic of all values less their half-widths; None without half-widths."""
    high: Floats | None


def tail(series: Series, ranks: int = _RANKS) -> Tail:
    values = np.sort(series.values["x"])
    n = len(values)
    steps = np.r_[np.geomspace(1, n, ranks), np.linspace(1, n, ranks // 2), np.arange(1, 101)]
    count = np.unique(np.minimum(steps, n).astype(np.int64))[::-1]
    low = high = None
    if "err" in series.values:
        err = series.values["err"]
        # Of what is not known nothing is known: it may be the least or the greatest.
        ends = np.where(np.isnan(err), -np.inf, series.values["x"] - err)
        tops = np.where(np.isnan(err), np.inf, series.values["x"] + err)
        least, most = float(values[0]), float(values[-1])
        reach = float(np.nanmax(err)) if not np.isnan(err).all() else 0.0
        low = np.clip(np.sort(ends)[n - count], min(least - reach, least), None)
        high = np.clip(np.sort(tops)[n - count], None, most + reach)
    # Of several alike all are at least as large as each.
    value = values[n - count]
    at_least = n - np.searchsorted(values, value, side="left")
    return Tail(value, at_least, n, low, high)


def mean_deviation(
    samples: Samples, options: Mapping[str, str], size: tuple[float, float]
) -> Sketch:
    log = _checked(samples, options.get("log", ""))
    given = "deviation" in samples.columns
    curves = [(each.label, _given(each) if given else grouped(each)) for each in samples.series]
    column = samples.columns["x"]
    at = np.array([point.x for _, points in curves for point in points])
    x = _axis_of(column, at, "x" in log)
    means = np.array([float(point.mean) for _, points in curves for point in points])
    y = _axis_of(samples.columns["y"], means, "y" in log)
    y = replace(y, name=f"mean {y.name} ± standard deviation")
    counts = sorted({point.count for _, points in curves for point in points if point.count})
    notes = []
    if counts:
        least, most = number(counts[0]), number(counts[-1])
        notes = [f"n = {least} for each" if least == most else f"n = {least} to {most} for each"]
    notes += _doubt(samples)

    def paint(axes: Axes) -> None:
        for place, (name, points) in enumerate(curves):
            label = in_legend(name)
            colour = SERIES[place % len(SERIES)]
            across = np.array([point.x for point in points]) / x.scale
            mean = np.array([float(point.mean) for point in points]) / y.scale
            err = np.array([point.err for point in points], dtype=np.float64) / y.scale
            if np.isfinite(err).any():
                known = np.isfinite(err)
                axes.errorbar(
                    across[known], mean[known], err[known], fmt="none", ecolor=colour, elinewidth=3,
                    alpha=0.3,
                )  # fmt: skip
            axes.errorbar(
                across,
                mean,
                [point.deviation / y.scale for point in points],
                color=colour,
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=3.5,
                linewidth=1.1,
                elinewidth=0.8,
                capsize=2.5,
                label=label or None,
            )
        if not y.logarithmic and means.min() >= 0:
            axes.set_ylim(bottom=0)

    name = ["series"] if len(curves) > 1 else []
    unit = samples.columns["y"].unit
    what = [f"mean {samples.columns['y'].name}", "standard deviation", "clock error of the mean"]
    heading = [*name, column.heading, *(f"{each} ({unit})" if unit else each for each in what), "n"]

    def rows() -> Iterable[Row]:
        for label, points in curves:
            for point in points:
                shown: str | float = point.x
                if column.categories:
                    shown = column.categories[int(point.x)]
                err = "" if math.isnan(point.err) else point.err
                mean = float(point.mean)
                n = "" if point.count is None else point.count
                yield [*([label] if name else []), shown, mean, point.deviation, err, n]

    return Sketch(x, y, heading, rows(), [*notes, *samples.notes], paint, samples.key)


@dataclass(frozen=True)
class Point:
    """Of the samples at one x."""

    x: float
    mean: Fraction | float
    deviation: float
    """Standard deviation of these samples."""
    err: float
    """How far clocks may have moved the mean; NaN where unknown."""
    count: int | None


def grouped(series: Series) -> list[Point]:
    """Mean and deviation of y at each x. Whole numbers are added exactly, and others exactly before
    they are rounded, so the order of rows does not matter."""
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
    """Of whole numbers of up to 62 bits, and of their squares."""
    high, low = values >> 31, values & 0x7FFF_FFFF
    squares = (exact_sum(high * high) << 62) + (exact_sum(high * low) << 32) + exact_sum(low * low)
    return exact_sum(values), squares


def _given(series: Series) -> list[Point]:
    err = series.values.get("err", np.full(len(series), np.nan))
    parts = (series.values["x"], series.values["y"], series.values["deviation"], err)
    lines = sorted(zip(*(part.tolist() for part in parts), strict=True))
    return [Point(x, mean, deviation, err, None) for x, mean, deviation, err in lines]


def heatmap(samples: Samples, options: Mapping[str, str], size: tuple[float, float]) -> Sketch:
    log = _logarithmic(samples, options)
    x, y = _axis(samples, "x", "x" in log), _axis(samples, "y", "y" in log)
    columns, rows = (max(10, round(_CELLS_PER_INCH * length)) for length in size)
    counts, x_edges, y_edges = grid(samples.every("x"), samples.every("y"), (columns, rows), log)
    notes = [f"n = {number(len(samples))}", *_doubt(samples)]

    def paint(axes: Axes) -> None:
        import matplotlib as mpl
        from matplotlib.colors import LogNorm, Normalize

        most = max(2, int(counts.max()))
        scale = LogNorm(1, most) if most > 20 else Normalize(0, most)
        # Its first colour stands out from the ground: a single sample is seen.
        shades = mpl.colormaps["viridis_r"]
        shown = axes.pcolormesh(
            x_edges / x.scale,
            y_edges / y.scale,
            np.where(counts.T > 0, counts.T, np.nan),
            norm=scale,
            cmap=shades,
            rasterized=True,
        )
        figure = axes.figure
        bar = figure.colorbar(shown, ax=axes, pad=0.02, aspect=30, format="{x:g}")
        bar.set_label(options.get("z_label", "samples per cell"))

    def lines() -> Iterable[Row]:
        for i, j in np.argwhere(counts).tolist():
            ends = (x_edges[i], x_edges[i + 1], y_edges[j], y_edges[j + 1])
            yield [*map(_short, map(float, ends)), int(counts[i, j])]

    heading = []
    for role in ("x", "y"):
        column = samples.columns[role]
        heading += [f"{column.heading} {end}" for end in ("from", "to")]
    return Sketch(
        x, y, [*heading, "samples"], lines(), [*notes, *samples.notes], paint, samples.key
    )


def grid(
    x: Numbers, y: Numbers, size: tuple[int, int], log: str
) -> tuple[Numbers, Numbers, Numbers]:
    """How many samples lie in each of so many columns and rows; the edges of these."""
    columns, rows = size
    place = cells(_flat(x, "x" in log), columns) * rows
    place += cells(_flat(y, "y" in log), rows)
    counts = np.bincount(place, minlength=columns * rows).reshape(columns, rows)
    return counts, _edges(x, columns, "x" in log), _edges(y, rows, "y" in log)


def _edges(values: Numbers, parts: int, logarithmic: bool) -> Numbers:
    low, high = float(values.min()), float(values.max())
    if high <= low:
        high = low * 1.1 if logarithmic else low + 1
    spaced = np.geomspace if logarithmic else np.linspace
    edges: Numbers = spaced(low, high, parts + 1)
    return edges


def _columns(
    samples: Samples, kept: Sequence[Series], roles: Sequence[str]
) -> tuple[Row, Iterable[Row]]:
    """Heading and lines of the points that are shown."""
    there = [role for role in roles if role in samples.columns]
    named = any(each.label for each in kept)

    def lines() -> Iterable[Row]:
        for each in kept:
            parts = [each.values[role].tolist() for role in there]
            for line in zip(*parts, strict=True):
                told = ["" if part != part else _short(part) for part in line]
                yield [each.label, *told] if named else told

    headings = [samples.columns[role].heading for role in there]
    return [*(["series"] if named else []), *headings], lines()


def _short(value: float) -> int | float:
    """Ten digits, and none behind the point where there are none."""
    value = float(f"{value:.10g}") if isinstance(value, float) else value
    return int(value) if value == int(value) else value


def _axis(samples: Samples, role: str, logarithmic: bool) -> Axis:
    return _axis_of(samples.columns[role], samples.every(role), logarithmic)


def _axis_of(column: Column, values: Numbers, logarithmic: bool) -> Axis:
    return axis_of(column.told, column.unit, values, logarithmic, column.categories)


def _logarithmic(samples: Samples, options: Mapping[str, str]) -> str:
    """The axes that are logarithmic: as asked, else y where its greatest value would flatten the
    others."""
    asked = options.get("log")
    y = samples.every("y")
    if asked is None:
        return "y" if y.min() > 0 and y.max() > 8 * np.median(y) else ""
    return _checked(samples, asked)


def _checked(samples: Samples, asked: str) -> str:
    """Raises `FigureError` for an axis that cannot be logarithmic."""
    for role in ("x", "y"):
        if role in asked and samples.every(role).min() <= 0:
            raise FigureError(f"log: {samples.columns[role].name} has values of zero or less")
    return asked


def _flat(values: Numbers, logarithmic: bool) -> Floats:
    found: Floats = np.log10(values) if logarithmic else values.astype(np.float64)
    return found


def _visible(samples: Samples, height: float, log: str) -> bool:
    """Whether half-widths would be longer than a dot."""
    y, err = samples.every("y"), np.nan_to_num(samples.every("err"))
    if "y" in log:
        return bool(err.max() > float(y.min()) / 20)
    span = float(y.max() - y.min())
    return bool(span > 0 and err.max() / span * height * _DOTS_PER_INCH > 1)


def _doubt(samples: Samples) -> list[str]:
    """What is said of half-widths."""
    if "err" not in samples.columns:
        return []
    err = samples.every("err")
    unknown = int(np.isnan(err).sum())
    notes = []
    if unknown < len(err):
        most = float(np.nanmax(err))
        unit = samples.columns["err"].unit
        told = half_width(math.ceil(most)) if unit == "ns" else f"± {quantity(most, unit)}"
        notes.append(f"clock error {told} at most")
    if unknown:
        notes.append(f"of {number(unknown)} unknown")
    return notes


def _number(options: Mapping[str, str], name: str) -> int | None:
    given = options.get(name)
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= 1000:
        raise FigureError(f"{name}: {given} is no whole number from 1 to 1000")
    return int(given)


KINDS: dict[str, Callable[[Samples, Mapping[str, str], tuple[float, float]], Sketch]] = {
    "scatter": scatter,
    "histogram": histogram,
    "ccdf": ccdf,
    "mean-deviation": mean_deviation,
    "heatmap": heatmap,
}
