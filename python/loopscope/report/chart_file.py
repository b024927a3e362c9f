"""Charts for papers, drawn by Matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from loopscope.report.axis import in_legend
from loopscope.report.canvas import STYLE, logarithmic
from loopscope.report.chart import (
    FEW,
    FILE_FORMS,
    Band,
    Bars,
    Cells,
    Chart,
    Histogram,
    Layer,
    Panel,
    Stripes,
    TopTicks,
    Trace,
    Whiskers,
)
from loopscope.report.diagram import Diagram, draw_in_file, file_width
from loopscope.report.marks import LINK, TICK, TRIGGER, Strokes, caption_of
from loopscope.report.palette import MARKS
from loopscope.report.waterfall import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loopscope.report.axis import Axis

_DASHES = ("-", "--", ":", "-.")
_STEPS = {"before": "steps-pre", "after": "steps-post"}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "down": "v", "up": "^", "cross": "P",
            "star": "*", "x": "X", "tick": "|", "dash": "_"}  # fmt: skip
_STROKES = {LINK: "--", TRIGGER: ":"}
_NEAR = 0.02
"""Share of the axis: numbers of strokes that are nearer stand together."""
_FEW_LABELS = 3
"""Largest number of labels that have room within a panel."""
_TALL = 13
"""Characters to an inch of a panel's height, along the vertical axis."""
_WIDE = 19
"""Characters of a panel's title to an inch of its width."""
_NARROW = 40
"""Characters of a panel's title up to which the note beside it is wrapped."""


def file_figure(chart: Chart, width: float) -> Figure:
    """The chart as a Matplotlib figure of this width in inches; a diagram may need more."""
    with mpl.rc_context(STYLE):
        diagrams = [each for panel in chart.panels for each in panel.layers]
        width = max([width, *(file_width(each) for each in diagrams if isinstance(each, Diagram))])
        n = len(chart.panels)
        columns = min(chart.columns[1 if width > 5 else 2], n)
        lines = -(-n // columns)
        base, of_row = chart.inches
        figure = Figure(figsize=(width, base + of_row * lines))
        ratios = chart.ratios if len(chart.ratios) == columns else None
        grid = figure.subplots(lines, columns, squeeze=False, width_ratios=ratios)
        every = list(grid.flat)
        for axes in every[n:]:
            axes.set_visible(False)
        for index, (axes, panel) in enumerate(zip(every, chart.panels, strict=False)):
            if panel.shares and index:
                axes.sharex(every[0])
            if panel.shares == "xy" and index:
                axes.sharey(every[0])
            _panel(axes, panel, of_row or base, round(_WIDE * width / columns))
            if not panel.names_x(chart.panels[index + columns :: columns]):
                axes.set_xlabel("")
            if panel.shares:
                last = index + columns >= n
                axes.tick_params(
                    labelbottom=last, labelleft=panel.shares == "x" or not index % columns
                )
                axes.set_ylabel(
                    axes.get_ylabel() if panel.shares == "x" or not index % columns else ""
                )
            for layer in panel.layers:
                if isinstance(layer, Diagram):
                    draw_in_file(axes, layer, width)
        _head(figure, chart, every[0], width)
        _legend(figure, chart, every[0], width)
    return figure


def _head(figure: Figure, chart: Chart, first: Axes, width: float) -> None:
    """The title, then in small print the notes and what is marked."""
    strokes = caption_of([each.strokes for each in chart.panels], FILE_FORMS, named=True)
    notes = "; ".join([*chart.notes, *([strokes] if strokes else [])])
    alone = len(chart.panels) == 1 and not chart.panels[0].title
    lines = textwrap.wrap(notes, round((width - 0.9) * 18))
    if alone and lines:
        first.set_title("\n".join(lines), fontsize=7, color="0.35", linespacing=1.3,
                        parse_math=False)  # fmt: skip
    title = textwrap.fill(chart.title, round(width * 13))
    if title:
        weight = "bold" if alone or not lines else "normal"
        under = "" if alone else "\n" + "\n".join(lines) if lines else ""
        figure.suptitle(title + under, fontsize=8, x=0.01, ha="left", fontweight=weight)
    elif lines and not alone:
        told = "\n".join(lines)
        figure.suptitle(told, fontsize=6.5, x=0.01, ha="left", color="0.35")


def _legend(figure: Figure, chart: Chart, first: Axes, width: float) -> None:
    found: dict[str, Any] = {}
    several = len(chart.panels) > 1
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(f"{chart.key} {label}" if chart.key and several else label, handle)
    if not found:
        return
    named: dict[str, Any] = {"handles": list(found.values()), "labels": list(found)}
    if any(
        isinstance(layer, Bars)
        and layer.half_width is not None
        and np.isnan(layer.half_width).any()
        for panel in chart.panels for layer in panel.layers
    ):  # fmt: skip
        named["handles"].append(Patch(alpha=0))
        named["labels"].append(f"{UNKNOWN}: maximum error unknown")
    if chart.legend == "above" or several:
        columns = max(1, int(width / 1.5))
        small = any(
            isinstance(layer, Trace) and 0 < layer.size < 2
            for panel in chart.panels for layer in panel.layers
        )  # fmt: skip
        scale = 2 if small else 1
        figure.legend(**named, ncols=columns, loc="outside upper right", markerscale=scale)
        return
    # At the side of the axes it covers no curve.
    beside = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)}
    where = beside if len(found) > _FEW_LABELS else {}
    first.legend(**named, title=chart.key or None, title_fontsize=7, **where)


def _panel(axes: Axes, panel: Panel, height: float, across: int) -> None:
    right = None
    if panel.right is not None:
        right = axes.twinx()
        right.spines["right"].set_visible(True)
        right.set_ylabel(panel.right.label, color=panel.right.colour)
    for layer in panel.layers:
        of = right if right is not None and getattr(layer, "right", False) else axes
        if not isinstance(layer, Diagram):
            _PAINT[type(layer)](of, panel, layer)
    grid = len(panel.layers) > 0 and panel.grid
    axes.grid(grid)
    for at in panel.separators:
        axes.axhline(at, color="0.85", lw=0.6)
    _strokes(axes, panel.strokes, panel.x, panel.numbered)
    bars = any(isinstance(each, Bars) for each in panel.layers)
    for axis, shown in ((axes.xaxis, panel.x), (axes.yaxis, panel.y)):
        _scale(axes, axis, shown, bars)
    axes.set_xlabel(panel.x.label)
    label = (
        "" if panel.y.categories else textwrap.fill(panel.y.label, max(20, round(_TALL * height)))
    )
    axes.set_ylabel(label, color=panel.y.colour)
    if panel.title:
        axes.set_title(textwrap.fill(panel.title, across), fontsize=7, parse_math=False)
    if panel.note:
        note = panel.note if across > _NARROW else textwrap.fill(panel.note, 24)
        axes.set_title(note, loc="right", fontsize=6.5, color="0.35")


def _scale(axes: Axes, axis: Any, shown: Axis, bars: bool) -> None:
    upright = axis is axes.yaxis
    set_limits = axes.set_ylim if upright else axes.set_xlim
    if shown.limits is not None:
        set_limits(*(end / shown.scale for end in shown.limits))
    elif shown.from_zero and not shown.logarithmic and not (bars and not upright):
        set_limits(0, None)
    if shown.logarithmic:
        logarithmic(axes, axis)
    if shown.marks:
        places = [at / shown.scale for at, _ in shown.marks]
        axis.set_ticks(places, labels=[text for _, text in shown.marks])
        axis.set_minor_locator(NullLocator())
    if shown.categories and upright:
        axes.set_ylim(len(shown.categories) - 0.4, -0.6)
    if shown.categories and not (bars and upright):
        axis.set_ticks(range(len(shown.categories)), labels=list(shown.categories))
        if not upright and len(shown.categories) > 8:
            axis.set_tick_params(rotation=90, labelsize=6.5)


def _strokes(axes: Axes, strokes: Strokes, axis: Axis, numbered: bool) -> None:
    """Thin lines behind the data.

    Where numbers are drawn, the range of the axis must not change afterwards.
    """
    if not strokes:
        return
    low, high = axes.get_xlim()
    scale = axis.scale / 1e9
    for kind, each, ticks in strokes.kinds():
        axes.vlines(
            [stroke.seconds / scale for stroke in each],
            0,
            TICK if ticks else 1,
            colors=MARKS[kind],
            linestyles="-" if ticks else _STROKES[kind],
            linewidth=0.8,
            zorder=0.5,
            transform=axes.get_xaxis_transform(),
        )
    ends = [each.seconds / scale for each in strokes.every]
    axes.set_xlim(min(low, *ends), max(high, *ends))
    if numbered and strokes.every[0].number is not None:
        _number(axes, strokes, scale)


def _number(axes: Axes, strokes: Strokes, scale: float) -> None:
    """Numbers the strokes as ticks at the top, above which Matplotlib puts the title."""
    low, high = axes.get_xlim()
    groups: list[tuple[float, list[str]]] = []
    for stroke in strokes.every:
        at = stroke.seconds / scale
        if groups and at - groups[-1][0] < _NEAR * (high - low):
            groups[-1][1].append(str(stroke.number))
        else:
            groups.append((at, [str(stroke.number)]))
    top = axes.secondary_xaxis("top")
    top.set_ticks([at for at, _ in groups], labels=[",".join(texts) for _, texts in groups])
    top.tick_params(length=0, pad=1, labelsize=6.5, labelcolor="0.35")
    top.spines["top"].set_visible(False)


def _trace(axes: Axes, panel: Panel, layer: Trace) -> None:
    up = panel.right if layer.right and panel.right is not None else panel.y
    x, y = layer.x / panel.x.scale, layer.y / up.scale
    marker = _MARKERS.get(layer.symbol, "")
    thin = layer.symbol in ("tick", "dash")
    axes.plot(
        x,
        y,
        marker=marker,
        linestyle=_DASHES[layer.dash % len(_DASHES)] if layer.line else "none",
        linewidth=layer.line,
        drawstyle=_STEPS.get(layer.step, "default"),
        markersize=layer.size,
        markeredgewidth=0.9 if thin else 0,
        color=layer.colour,
        solid_capstyle="butt",
        rasterized=layer.picture,
        zorder=2 if layer.symbol else 1.9,
        label=in_legend(layer.label) or None,
    )
    if layer.hollow is not None and layer.hollow.any():
        named = any(line.get_label() == layer.hollow_label for line in axes.lines)
        axes.plot(
            x[layer.hollow], y[layer.hollow], marker, linestyle="none", zorder=3,
            color=layer.colour, markerfacecolor="white", markersize=layer.size,
            label=None if named else layer.hollow_label,
        )  # fmt: skip


def _band(axes: Axes, panel: Panel, layer: Band) -> None:
    along, of = (panel.y, panel.x) if layer.sideways else (panel.x, panel.y)
    fill = axes.fill_betweenx if layer.sideways else axes.fill_between
    fill(
        layer.along / along.scale, layer.low / of.scale, layer.high / of.scale,
        step="post" if layer.sideways else None, color=layer.colour, alpha=0.25, linewidth=0,
        label=in_legend(layer.label) or None,
    )  # fmt: skip


def _whiskers(axes: Axes, panel: Panel, layer: Whiskers) -> None:
    known = np.isfinite(layer.half_width)
    x, y = layer.x[known] / panel.x.scale, layer.y[known] / panel.y.scale
    half = layer.half_width[known] / (panel.x if layer.sideways else panel.y).scale
    style: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2.5}
    if layer.shade:
        style = {"elinewidth": 2.5, "alpha": 0.3}
    style["xerr" if layer.sideways else "yerr"] = half
    axes.errorbar(x, y, fmt="none", ecolor=layer.colour, **style)


def _histogram(axes: Axes, panel: Panel, layer: Histogram) -> None:
    axes.stairs(
        layer.counts, layer.edges / panel.x.scale, fill=layer.filled, color=layer.colour,
        label=in_legend(layer.label) or None,
    )  # fmt: skip
    if panel.y.logarithmic:
        # A bin with a single sample is to be seen on a logarithmic axis too.
        axes.set_ylim(bottom=0.5)


def _bars(axes: Axes, panel: Panel, layer: Bars) -> None:
    """The name of each lane stands above its bar, so that the bars have the whole width."""
    scale = panel.x.scale
    places = np.array(layer.lanes) + 0.22
    start, length = layer.start / scale, layer.length / scale
    axes.barh(places, length, 0.42, start, color=layer.colour, label=layer.label)
    whole = max(
        float((each.start + each.length).max()) / scale
        for each in panel.layers if isinstance(each, Bars)
    )  # fmt: skip
    for i, lane in enumerate(layer.lanes):
        half = 0.0 if layer.half_width is None else float(layer.half_width[i]) / scale
        end = float(start[i] + length[i])
        if layer.half_width is not None and np.isfinite(half):
            axes.errorbar(end, places[i], xerr=half, color="0.25", lw=0.8, capsize=1.5)
        begin, end = sorted((float(start[i]), end))
        _text(axes, layer.texts[i], float(places[i]), (begin, end + np.nan_to_num(half)), whole)
        above = axes.get_yaxis_transform()
        name = panel.y.categories[lane]
        if any(each.get_text() == name for each in axes.texts):
            continue
        text = axes.text(0.01, lane - 0.12, name, transform=above, fontsize=6.5)
        text.set_in_layout(False)  # else it would narrow the axes
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    # Layers that follow still widen the axis.
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]), auto=None)


def _text(axes: Axes, text: str, place: float, ends: tuple[float, float], whole: float) -> None:
    """A bar's time where there is room: after the bar, before it, or on it."""
    begin, end = ends
    if end < 0.65 * whole:
        at, shift, align, colour = end, 4, "left", "black"
    elif begin > 0.3 * whole:
        at, shift, align, colour = begin, -4, "right", "black"
    else:
        at, shift, align, colour = (begin + end) / 2, 0, "center", "white"
    axes.annotate(
        text, (at, place), (shift, 0), textcoords="offset points", ha=align, va="center",
        color=colour, fontsize=6.5,
    )  # fmt: skip


def _cells(axes: Axes, panel: Panel, layer: Cells) -> None:
    most = max(2, int(layer.counts.max()))
    shown = axes.pcolormesh(
        layer.x_edges / panel.x.scale,
        layer.y_edges / panel.y.scale,
        np.where(layer.counts.T > 0, layer.counts.T, np.nan),
        norm=LogNorm(1, most) if most > 20 else Normalize(0, most),
        # Its first colour stands out from the ground: a single sample is seen.
        cmap=mpl.colormaps["viridis_r"],
        rasterized=True,
    )
    bar = axes.figure.colorbar(shown, ax=axes, pad=0.02, aspect=30, format="{x:g}")
    bar.set_label(layer.label)


def _top_ticks(axes: Axes, panel: Panel, layer: TopTicks) -> None:
    at = np.unique(np.round(layer.x / panel.x.scale, 3))
    top = axes.get_xaxis_transform()
    axes.plot(at, [0.985] * len(at), "|", color=layer.colour, transform=top,
              rasterized=len(at) > FEW)  # fmt: skip


def _stripes(axes: Axes, panel: Panel, layer: Stripes) -> None:
    for begin, end in layer.ranges:
        ends = begin / panel.x.scale, end / panel.x.scale
        axes.axvspan(*ends, color=layer.colour, alpha=0.3, lw=1)


_PAINT: dict[type[Layer], Callable[[Axes, Panel, Any], None]] = {
    Trace: _trace,
    Band: _band,
    Whiskers: _whiskers,
    Histogram: _histogram,
    Bars: _bars,
    Cells: _cells,
    TopTicks: _top_ticks,
    Stripes: _stripes,
}
