"""The kinds of figures that any table can be drawn as.

Binning keeps extremes: a scatter plot has a point wherever a dot of its raster has one, and of each
column exactly the least and the greatest; a heat map shows a single sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.quantity_text import UNKNOWN_NS, maximum_error, number, quantity
from loopscope.report.axis import Axis, axis_of, time_axis
from loopscope.report.chart import (
    FEW,
    SYMBOLS,
    Band,
    Cells,
    Chart,
    Histogram,
    Hover,
    Layer,
    Panel,
    Row,
    Trace,
    Whiskers,
)
from loopscope.report.decimation import histogram_of, seen, thin
from loopscope.report.palette import SERIES
from loopscope.report.sample_statistics import Tail, flat, given, grid, grouped, tail
from loopscope.report.samples import Column, FigureError, Samples, Series

if TYPE_CHECKING:
    from loopscope.report.samples import Numbers

_DOTS_PER_INCH = 150
"""Resolution of the raster on which points of a scatter plot are distinguished."""
_CELLS_PER_INCH = 20
_FEW_BARS = 400


@dataclass(frozen=True)
class Detail:
    """Amount of detail in a figure of samples, and the page's names of these."""

    size: tuple[float, float] = (7.16, 3.0)
    """Size of a file in inches."""
    points: int | None = None
    """At most so many, extremes kept; None: all that a raster of the size can tell apart."""
    ranks: int = 600
    """Approximate number of points of a tail's line."""
    cells: tuple[int, int] | None = None
    """Columns and rows of a heat map; None: as many as suit the size."""
    what: str = "sample"
    key: Callable[[int], str | int] | None = None
    """Name for people of the sample with this number in the role `key`."""
    keyed: bool = False
    """Whether the CSV of a scatter plot has these numbers."""
    since: bool = False
    """Whether x is the time since a beginning: in the unit of its last."""
    first: bool = False
    """Whether the first series stands out; the others have no band."""


def scatter(samples: Samples, options: Mapping[str, str], detail: Detail) -> Chart:
    log = _logarithmic(samples, options)
    x, y = _across(samples, detail, log), _axis(samples, "y", "y" in log)
    kept = shown_points(samples, detail, (x, y))
    total, shown = len(samples), sum(map(len, kept))
    notes = [f"n = {number(total)}"]
    if shown < total:
        notes.append(f"{number(shown)} points shown, extremes kept")
    notes += _doubt(samples)
    # The whiskers of many points would be a smear: the notes name the largest.
    few = shown <= (FEW if detail.points is None else _FEW_BARS)
    whiskers = "err" in samples.columns and few and _visible(samples, detail.size[1], log)
    layers: list[Layer] = []
    for place, each in enumerate(kept):
        colour = SERIES[place % len(SERIES)]
        at, of = each.values["x"], each.values["y"]
        if whiskers:
            layers.append(Whiskers(at, of, each.values["err"], colour, shade=True))
        size = 1 if shown > _FEW_BARS else 1.8
        layers.append(
            Trace(at, of, colour, each.label, symbol="circle", size=size, opacity=0.65,
                  picture=shown > FEW, hover=_hover(each, samples, detail, (x, y)))
        )  # fmt: skip
    heading, lines = _columns(samples, kept, ("x", "y", "err", *(("key",) if detail.keyed else ())))
    return _chart(samples, Panel(x, y, tuple(layers), grid=True), notes, heading, lines)


def shown_points(samples: Samples, detail: Detail, axes: tuple[Axis, Axis]) -> list[Series]:
    """The samples that a scatter plot shows."""
    columns, rows = (max(2, round(_DOTS_PER_INCH * length)) for length in detail.size)
    kept = []
    for each in samples.series:
        if detail.points is None:
            x, y = (flat(each.values[a], of.logarithmic) for a, of in zip("xy", axes, strict=True))
            index = seen(x, y, columns, rows)
        else:
            index = thin(each.values["y"], max(4, detail.points // len(samples.series)))
        kept.append(
            Series(each.label, {role: values[index] for role, values in each.values.items()})
        )
    return kept


def _hover(series: Series, samples: Samples, detail: Detail, axes: tuple[Axis, Axis]) -> Hover:
    """The sample's key and its maximum error, should it have them."""
    unit = samples.columns["y"].unit
    named = detail.key is not None and "key" in series.values

    def details() -> list[list[str | int]]:
        err = series.values.get("err", np.empty(0)).tolist()
        texts = {each: _doubt_text(each, unit) for each in set(err)}
        keys = [detail.key(key) for key in series.values["key"].tolist()] if detail.key else []
        doubts = [texts[each] for each in err]
        return [list(pair) for pair in zip(*filter(None, (keys, doubts)), strict=True)]

    key = " %{customdata[0]}" if named else ""
    doubt = f" %{{customdata[{int(named)}]}}" if "err" in series.values else ""
    x, y = axes
    template = f"{detail.what}{key} at %{{x}} {x.shown}: %{{y}} {y.shown}{doubt}"
    return Hover(template, details if named or doubt else None)


def histogram(samples: Samples, options: Mapping[str, str], detail: Detail) -> Chart:
    log = options.get("log", "")
    values = samples.every("x")
    if "x" in log and not (values > 0).any():
        raise FigureError(f"log: no {samples.columns['x'].name} is above zero")
    whole = histogram_of(values, _number(options, "bins"), "x" in log)
    edges = whole.edges
    x = _axis(samples, "x", "x" in log)
    y = Axis(options.get("y_label", "samples"), "", 1, "", "y" in log, from_zero="zero")
    counts = [whole.counts]
    if len(samples.series) > 1:
        counts = [np.histogram(each.values["x"], bins=edges)[0] for each in samples.series]
    notes = [f"n = {number(len(samples))}"]
    outside = ((whole.below, "below", edges[0]), (whole.beyond, "above", edges[-1]))
    for left_out, word, end in outside:
        if left_out:
            shown = quantity(float(end), samples.columns["x"].unit)
            notes.append(f"{number(left_out)} {word} {shown} not shown")
    notes += _doubt(samples)
    several = len(counts) > 1
    layers = tuple(
        Histogram(edges, of, SERIES[place % len(SERIES)], each.label, not several)
        for place, (each, of) in enumerate(zip(samples.series, counts, strict=True))
    )
    unit = samples.columns["x"].unit
    heading = ["series"] if several else []
    heading += [f"{end} ({unit})" if unit else end for end in ("from", "to")] + ["samples"]

    def rows() -> Iterable[Row]:
        for each, of in zip(samples.series, counts, strict=True):
            name = [each.label] if several else []
            for low, high, n in zip(edges[:-1], edges[1:], of.tolist(), strict=True):
                yield [*name, _short(float(low)), _short(float(high)), n]

    return _chart(samples, Panel(x, y, layers, grid=True), notes, heading, rows(), pixels=280)


def ccdf(samples: Samples, options: Mapping[str, str], detail: Detail) -> Chart:
    log = options.get("log", "x,y")
    every = samples.every("x")
    # The unit is that of the series that stands out.
    values = samples.series[0].values["x"] if detail.first else every
    x = _axis_of(samples.columns["x"], values, "x" in log and bool((every > 0).any()))
    y = Axis(options.get("y_label", "share of samples at least as large"), "", 1, "", "y" in log,
             least=1 / len(samples), most=1.0)  # fmt: skip
    banded = 1 if detail.first else len(samples.series)
    tails = [tail(each, detail.ranks, i < banded) for i, each in enumerate(samples.series)]
    notes = [] if len(tails) > 1 else [f"n = {number(len(samples))}"]
    if x.logarithmic and (below := int((every <= 0).sum())):
        notes.append(f"{number(below)} of zero or less have no place on the axis")
    notes += _doubt(samples)
    if x.logarithmic:
        least = min(float(of.value[of.value > 0].min()) for of in tails if of.value.max() > 0)
        most = max(float(of.value.max()) for of in tails)
        x = replace(x, limits=(least / 1.1, most * 1.2), least=least, most=most)
    layers: list[Layer] = []
    for place, (each, of) in enumerate(zip(samples.series, tails, strict=True)):
        colour = SERIES[place % len(SERIES)]
        label = f"{each.label} (n = {number(of.total)})" if len(tails) > 1 or detail.first else ""
        # What is zero or less has no place on a logarithmic axis.
        there = of.value > 0 if x.logarithmic else np.ones(len(of.value), dtype=np.bool_)
        value, share = of.value[there], (of.count / of.total)[there]
        if of.low is not None and of.high is not None:
            layers.append(_tail_band(of, x, colour))
        hover = Hover(f"%{{y:.3g}} of {detail.what}s: %{{x}} {x.shown} or more")
        # The line goes on to the left at 1, and ends at the largest.
        width = 1.7 if place == 0 and detail.first else 1.1
        layers += [
            Trace(value, share, colour, label, line=width, step="before", hover=hover),
            Trace(value[-1:], share[-1:], colour, symbol="circle", size=2, hover=hover),
        ]
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
    panel = Panel(x, y, tuple(layers), grid=True)
    return _chart(samples, panel, notes, heading, rows(), pixels=420)


def _tail_band(of: Tail, x: Axis, colour: str) -> Band:
    """A staircase like the line: each share goes on to the next value."""
    assert of.low is not None and of.high is not None
    low, high = of.low, of.high
    if x.logarithmic and x.limits is not None:
        low = np.maximum(low, x.limits[0])
        high = np.maximum(high, x.limits[0])
    return Band(of.count / of.total, low, high, colour, sideways=True)


def _chart(
    samples: Samples, panel: Panel, notes: Sequence[str], heading: Row, rows: Iterable[Row],
    pixels: int = 380,
) -> Chart:  # fmt: skip
    return Chart((panel,), notes=(*notes, *samples.notes), key=samples.key,
                 rows=chain([heading], rows), pixels=pixels)  # fmt: skip


def mean_deviation(samples: Samples, options: Mapping[str, str], detail: Detail) -> Chart:
    log = _checked(samples, options.get("log", ""))
    means_given = "deviation" in samples.columns
    curves = [
        (each.label, given(each) if means_given else grouped(each)) for each in samples.series
    ]
    column = samples.columns["x"]
    at = np.array([point.x for _, points in curves for point in points])
    x = _axis_of(column, at, "x" in log)
    means = np.array([float(point.mean) for _, points in curves for point in points])
    y = _axis_of(samples.columns["y"], means, "y" in log)
    y = replace(y, name=f"mean {y.name} ± standard deviation")
    y = replace(y, from_zero="beyond" if means.min() >= 0 else "")
    counts = sorted({point.count for _, points in curves for point in points if point.count})
    notes = []
    if counts:
        least, most = number(counts[0]), number(counts[-1])
        notes = [f"n = {least} for each" if least == most else f"n = {least} to {most} for each"]
    notes += _doubt(samples)
    layers: list[Layer] = []
    for place, (label, points) in enumerate(curves):
        colour = SERIES[place % len(SERIES)]
        across = np.array([point.x for point in points])
        mean = np.array([float(point.mean) for point in points])
        err = np.array([point.err for point in points], dtype=np.float64)
        deviation = np.array([point.deviation for point in points], dtype=np.float64)
        hover = Hover(f"%{{x}} {x.shown}: mean %{{y}} {y.shown}".replace("  ", " "))
        layers += [
            Whiskers(across, mean, err, colour, shade=True),
            Whiskers(across, mean, deviation, colour),
            Trace(across, mean, colour, label, line=1.1, symbol=SYMBOLS[place % len(SYMBOLS)],
                  size=4.5, hover=hover),
        ]  # fmt: skip
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

    return _chart(samples, Panel(x, y, tuple(layers), grid=True), notes, heading, rows())


def heatmap(samples: Samples, options: Mapping[str, str], detail: Detail) -> Chart:
    log = _logarithmic(samples, options)
    x, y = _across(samples, detail, log), _axis(samples, "y", "y" in log)
    columns, rows = detail.cells or (max(10, round(_CELLS_PER_INCH * of)) for of in detail.size)
    counts, x_edges, y_edges = grid(samples.every("x"), samples.every("y"), (columns, rows), log)
    notes = [f"n = {number(len(samples))}", *_doubt(samples)]
    shown = Cells(x_edges, y_edges, counts, options.get("z_label", "samples per cell"))

    def lines() -> Iterable[Row]:
        for i, j in np.argwhere(counts).tolist():
            ends = (x_edges[i], x_edges[i + 1], y_edges[j], y_edges[j + 1])
            yield [*map(_short, map(float, ends)), int(counts[i, j])]

    heading = []
    for role in ("x", "y"):
        column = samples.columns[role]
        heading += [f"{column.heading} {end}" for end in ("from", "to")]
    panel = Panel(x, y, (shown,), grid=True)
    return _chart(samples, panel, notes, [*heading, "samples"], lines(), pixels=360)


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


def _across(samples: Samples, detail: Detail, log: str) -> Axis:
    if not detail.since:
        return _axis(samples, "x", "x" in log)
    x = time_axis(samples.columns["x"].title, samples.every("x"))
    return replace(x, logarithmic="x" in log)


def _axis_of(column: Column, values: Numbers, logarithmic: bool) -> Axis:
    return axis_of(column.title, column.unit, values, logarithmic, column.categories)


def _logarithmic(samples: Samples, options: Mapping[str, str]) -> str:
    """The axes that are logarithmic.

    As asked, else y where its greatest value would flatten the others.
    """
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


def _visible(samples: Samples, height: float, log: str) -> bool:
    """Whether maximum errors would be longer than a dot."""
    y, err = samples.every("y"), np.nan_to_num(samples.every("err"))
    if "y" in log:
        return bool(err.max() > float(y.min()) / 20)
    span = float(y.max() - y.min())
    return bool(span > 0 and err.max() / span * height * _DOTS_PER_INCH > 1)


def _doubt(samples: Samples) -> list[str]:
    """Notes on maximum errors."""
    if "err" not in samples.columns:
        return []
    err = samples.every("err")
    unknown = int(np.isnan(err).sum())
    notes = []
    if unknown < len(err):
        told = _doubt_text(float(np.nanmax(err)), samples.columns["err"].unit)
        notes.append(f"clock error {told} at most")
    if unknown:
        notes.append(f"of {number(unknown)} unknown")
    return notes


def _doubt_text(half: float, unit: str) -> str:
    if math.isnan(half):
        return maximum_error(UNKNOWN_NS)
    return maximum_error(math.ceil(half)) if unit == "ns" else f"± {quantity(half, unit)}"


def _number(options: Mapping[str, str], name: str) -> int | None:
    given = options.get(name)
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= 1000:
        raise FigureError(f"{name}: {given} is no whole number from 1 to 1000")
    return int(given)


KINDS: dict[str, Callable[[Samples, Mapping[str, str], Detail], Chart]] = {
    "scatter": scatter,
    "histogram": histogram,
    "ccdf": ccdf,
    "mean-deviation": mean_deviation,
    "heatmap": heatmap,
}
