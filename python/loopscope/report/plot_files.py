"""An experiment's own figures as files: SVG, PDF, PNG, and the numbers that they show as CSV."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from loopscope.report.axis import Axis
from loopscope.report.canvas import STYLE, WIDTHS, logarithmic, save, write_csv
from loopscope.report.marks import caption_of
from loopscope.report.marks_files import FORMS, draw_strokes
from loopscope.report.palette import SERIES, series_colour
from loopscope.report.plots import Curve, Drawn, Panels, Plot, fit_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", "--", ":", "-.")
_UNKNOWN = "bar unknown"
_MARKERS = "osD^vPX*"
_COLUMNS = 3
_FEW = 200
_TALL = 44
"""Characters along the vertical axis."""


def draw_plots(drawn: Iterable[Drawn], folder: Path) -> None:
    """Writes `<name>.svg`, `.pdf`, `.png` and `.csv` of each into `folder`."""
    folder.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for each in drawn:
            save(draw(each, WIDTHS["two"]), folder / each.figure.name)
            write_csv(folder / each.figure.name, rows(each))


def draw(drawn: Drawn, width: float) -> Figure:
    return _plot(drawn, width) if isinstance(drawn, Plot) else _panels(drawn, width)


def rows(drawn: Drawn) -> Iterable[Sequence[str | int | float]]:
    """The lines of the CSV, the heading first."""
    y = _heading(drawn.y)
    if isinstance(drawn, Panels):
        yield ["point", "repeat", "series", "time (s)", y]
        for panel in drawn.panels:
            for each in panel.stretches:
                for seconds, value in zip(each.seconds.tolist(), each.y.tolist(), strict=True):
                    yield [panel.point, each.repeat, each.label, seconds, value]
            for stroke in panel.strokes.every:
                yield [panel.point, "", "; ".join(stroke.texts), stroke.seconds, ""]
        return
    error = drawn.figure.error
    unit = f" ({drawn.y.unit})" if drawn.y.unit else ""
    bars = [error.text + unit] if error else []
    yield ["point", "series", _heading(drawn.x), y, *bars, f"clock error{unit}"]
    for curve in drawn.curves:
        for i, point in enumerate(curve.points):
            x: str | float = float(curve.x[i])
            if drawn.x.categories:
                x = drawn.x.categories[int(curve.x[i])]
            bar = [_number(curve.bar[i])] if curve.bar is not None else []
            yield [point, curve.label, x, float(curve.y[i]), *bar, _number(curve.doubt[i])]


def _heading(axis: Axis) -> str:
    return f"{axis.name} ({axis.unit})" if axis.unit else axis.name


def _number(value: float) -> str | float:
    return "" if math.isnan(value) else float(value)


def _plot(plot: Plot, width: float) -> Figure:
    figure = Figure(figsize=(width, 3.4))
    axes = figure.subplots()
    for curve in plot.curves:
        _draw_curve(axes, plot, curve)
    if plot.figure.compare == "identity":
        every = np.concatenate([curve.x for curve in plot.curves])
        ends = np.array([every.min(), every.max()])
        x, y = ends / plot.x.scale, ends / plot.y.scale
        axes.plot(x, y, label="as asked", color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    if plot.x.categories:
        axes.set_xticks(range(len(plot.x.categories)), plot.x.categories)
    _axes(axes, plot.x, plot.y)
    if not plot.y.logarithmic and min(float(curve.y.min()) for curve in plot.curves) >= 0:
        # Also where a bar, being symmetrical, reaches below.
        axes.set_ylim(bottom=0)
    axes.set_title(plot.title)
    labelled = len(axes.get_legend_handles_labels()[1])
    if labelled:
        outside = labelled > 5
        if outside:
            axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
        else:
            axes.legend(frameon=False, fontsize=7)
    return figure


def _draw_curve(axes: Axes, plot: Plot, curve: Curve) -> None:
    x, y = curve.x / plot.x.scale, curve.y / plot.y.scale
    colour = SERIES[curve.colour % len(SERIES)]
    label = curve.label
    fitted = curve.fit is not None
    if curve.fit is not None:
        intercept, slope = curve.fit
        text = fit_text(plot, curve)
        ends = np.array([curve.x.min(), curve.x.max()])
        line = (intercept + slope * ends) / plot.y.scale
        axes.plot(ends / plot.x.scale, line, color=colour, linewidth=0.8, linestyle="--")
        label = f"{label}: {text}" if label else text
    axes.errorbar(
        x,
        y,
        yerr=None if curve.bar is None else curve.bar / plot.y.scale,
        color=colour,
        linestyle="none" if fitted else _DASHES[curve.dash % len(_DASHES)],
        marker=_MARKERS[curve.colour % len(_MARKERS)],
        markersize=3.5,
        linewidth=1.1,
        elinewidth=0.8,
        capsize=2.5,
        label=label or None,
    )
    if (unknown := curve.without_bar).any():
        named = any(line.get_label() == _UNKNOWN for line in axes.lines)
        axes.plot(
            x[unknown], y[unknown], linestyle="none", zorder=3, color=colour,
            markerfacecolor="white", label=None if named else _UNKNOWN,
            marker=_MARKERS[curve.colour % len(_MARKERS)], markersize=3.5,
        )  # fmt: skip


def _panels(drawn: Panels, width: float) -> Figure:
    n = len(drawn.panels)
    columns = min(_COLUMNS if width > 5 else 1, n)
    lines = -(-n // columns)
    figure = Figure(figsize=(width, 0.5 + (2.6 if n == 1 else 1.7) * lines))
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    labels: list[str] = []
    # Of many points a line between them says nothing.
    few = max(len(each.y) for panel in drawn.panels for each in panel.stretches) <= _FEW
    for index, axes in enumerate(grid.flat):
        if index >= n:
            axes.set_visible(False)
            continue
        panel = drawn.panels[index]
        for each in panel.stretches:
            if each.label and each.label not in labels:
                labels.append(each.label)
            axes.plot(
                each.seconds,
                each.y / drawn.y.scale,
                ".-" if few else ".",
                ms=4 if few else 2,
                lw=0.8,
                color=SERIES[labels.index(each.label)]
                if each.label
                else series_colour(each.repeat),
                rasterized=not few,
                label=each.label or None,
            )
        draw_strokes(axes, panel.strokes, numbers=n == 1)
        axes.set_title(panel.title, fontsize=7)
        axes.tick_params(labelbottom=index + columns >= n)
    if drawn.y.logarithmic:
        logarithmic(grid.flat[0], grid.flat[0].yaxis)
    else:
        grid.flat[0].set_ylim(bottom=min(0.0, grid.flat[0].get_ylim()[0]))
    figure.supxlabel(drawn.x.label, fontsize=8)
    figure.supylabel(textwrap.fill(drawn.y.label, _TALL), fontsize=8)
    told = caption_of([panel.strokes for panel in drawn.panels], FORMS, named=True)
    told = textwrap.fill(told, round(width * 15))
    figure.suptitle(f"{drawn.title}\n{told}".rstrip(), fontsize=8, x=0.01, ha="left")
    if labels:
        grid.flat[0].legend(frameon=False, fontsize=6.5)
    return figure


def _axes(axes: Axes, x: Axis, y: Axis) -> None:
    for axis, shown in ((axes.xaxis, x), (axes.yaxis, y)):
        if shown.logarithmic:
            logarithmic(axes, axis)
        if shown.marks:
            places = [at / shown.scale for at, _ in shown.marks]
            axis.set_ticks(places, labels=[text for _, text in shown.marks])
            axis.set_minor_locator(NullLocator())
    axes.set_xlabel(x.label)
    axes.set_ylabel(textwrap.fill(y.label, _TALL))
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
