"""An experiment's own figures for the page, as Plotly's JSON."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from loopscope.analysis.quantity import number
from loopscope.report.axis import Axis
from loopscope.report.interactive import axis_key, axis_names, figure_of, rounded, row_title
from loopscope.report.marks_interactive import add_strokes, strokes_caption
from loopscope.report.palette import SERIES, series_colour
from loopscope.report.plots import Curve, Drawn, Panels, Plot, fit_text

_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-down", "triangle-up", "cross", "star", "x")
_PANEL_HEIGHT = 190
_COLUMNS = 2
_TITLE = 50
"""Characters along an axis."""


def plot_figure(drawn: Drawn) -> dict[str, Any]:
    """Data and layout."""
    return _plot(drawn) if isinstance(drawn, Plot) else _panels(drawn)


def plot_caption(drawn: Drawn) -> str:
    """What is shown of what, and where its numbers are."""
    files = f"As files: figures/{drawn.figure.name}.svg, .pdf, .png; its numbers: .csv."
    if isinstance(drawn, Panels):
        shown = f"{number(drawn.total)} messages or events."
        if drawn.shown < drawn.total:
            shown = f"{number(drawn.shown)} of {shown[:-1]} shown, extremes kept."
        shown += strokes_caption(*(panel.strokes for panel in drawn.panels))
        return f"{shown} {files}"
    error = drawn.figure.error
    bars = f"Bars: {error.text} to both sides. " if error else ""
    if any(curve.without_bar.any() for curve in drawn.curves):
        bars = f"{bars[:-2]}; open marks: unknown. "
    doubt = np.concatenate([curve.doubt for curve in drawn.curves])
    if np.isfinite(doubt).any() and np.nanmax(doubt) > 0 and drawn.y.unit == "ns":
        from loopscope.analysis.quantity import half_width

        unknown = int(np.isnan(doubt).sum())
        more = f", of {number(unknown)} unknown" if unknown else ""
        bars += f"Clock error {half_width(int(np.nanmax(doubt)))} at most{more}. "
    return bars + files


def _plot(plot: Plot) -> dict[str, Any]:
    data: list[dict[str, Any]] = []
    for curve in plot.curves:
        data += traces_of(plot, curve)
    if plot.figure.compare == "identity":
        ends = np.array(
            [
                min(curve.x.min() for curve in plot.curves),
                max(curve.x.max() for curve in plot.curves),
            ]
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "as asked",
                "x": rounded(ends / plot.x.scale, 6),
                "y": rounded(ends / plot.y.scale, 6),
                "line": {"color": "#999999", "width": 1, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    layout = {"xaxis": _axis(plot.x), "yaxis": _axis(plot.y)}
    if not plot.y.logarithmic and min(float(curve.y.min()) for curve in plot.curves) >= 0:
        # Bars, being symmetrical, may reach below zero where nothing can be.
        below = any(c.bar is not None and (c.y < c.bar).any() for c in plot.curves)
        layout["yaxis"]["rangemode"] = "nonnegative" if below else "tozero"
    every = np.concatenate([curve.y for curve in plot.curves])
    if plot.y.logarithmic and every.max() < 300 * every.min():
        layout["yaxis"]["dtick"] = "D2"
    return figure_of(data, layout, 420, legend=any(trace["name"] for trace in data))


def traces_of(plot: Plot, curve: Curve) -> list[dict[str, Any]]:
    colour = SERIES[curve.colour % len(SERIES)]
    label, mode = curve.label, "lines+markers"
    made: list[dict[str, Any]] = []
    if curve.fit is not None:
        intercept, slope = curve.fit
        text = fit_text(plot, curve)
        label, mode = (f"{label}: {text}" if label else text), "markers"
        ends = np.array([curve.x.min(), curve.x.max()])
        made.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label,
                "showlegend": False,
                "x": rounded(ends / plot.x.scale, 6),
                "y": rounded((intercept + slope * ends) / plot.y.scale, 6),
                "line": {"color": colour, "width": 1, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": mode,
        "name": label,
        "legendgroup": label,
        "x": rounded(curve.x / plot.x.scale, 6),
        "y": rounded(curve.y / plot.y.scale, 6),
        "line": {"color": colour, "width": 1.5, "dash": _DASHES[curve.dash % len(_DASHES)]},
        "marker": {"size": 7, "color": colour, "symbol": _SYMBOLS[curve.colour % len(_SYMBOLS)]},
        "text": list(curve.points),
        "hovertemplate": f"%{{text}}: %{{y}} {plot.y.shown}<extra></extra>",
    }
    if curve.bar is not None:
        # A null would be drawn as a bar of no height.
        known = ~curve.without_bar
        symbol = trace["marker"]["symbol"]
        trace["marker"]["symbol"] = [symbol if each else f"{symbol}-open" for each in known]
        height = rounded(curve.bar[known] / plot.y.scale, 6)
        bars: dict[str, Any] = {"x": rounded(curve.x[known] / plot.x.scale, 6), "mode": "markers"}
        bars |= {"y": rounded(curve.y[known] / plot.y.scale, 6), "name": "", "showlegend": False}
        bars |= {"type": "scatter", "hoverinfo": "skip", "marker": {"size": 1, "color": colour}}
        bars["error_y"] = {"type": "data", "array": height, "thickness": 1, "width": 4}
        return [*made, trace, {**bars, "legendgroup": trace["legendgroup"]}]
    return [*made, trace]


def _panels(drawn: Panels) -> dict[str, Any]:
    n = len(drawn.panels)
    columns = min(_COLUMNS, n)
    lines = -(-n // columns)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": []}
    labels: list[str] = []
    for index, panel in enumerate(drawn.panels):
        line, column = divmod(index, columns)
        across = [column / columns + 0.02 * column, (column + 0.94) / columns]
        down = [(lines - line - 1) / lines, (lines - line - 0.22) / lines]
        x, y = axis_names(index)
        for each in panel.stretches:
            fresh = bool(each.label) and each.label not in labels
            if fresh:
                labels.append(each.label)
            colour = SERIES[labels.index(each.label)] if each.label else series_colour(each.repeat)
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers" if len(each.y) > 200 else "lines+markers",
                    "name": each.label or f"repeat {each.repeat}",
                    "showlegend": fresh,
                    "x": rounded(each.seconds, 6),
                    "y": rounded(each.y / drawn.y.scale, 6),
                    "xaxis": x,
                    "yaxis": y,
                    "marker": {"size": 3 if len(each.y) > 200 else 5, "color": colour},
                    "hovertemplate": f"%{{x:.6f}} s: %{{y}} {drawn.y.shown}<extra></extra>",
                }
            )
        layout[axis_key(x)] = {"domain": across, "anchor": y}
        layout[axis_key(y)] = {**_axis(drawn.y), "domain": down, "anchor": x, "nticks": 5}
        if column:
            layout[axis_key(y)].pop("title")
        if index:
            layout[axis_key(x)]["matches"] = "x"
            layout[axis_key(y)]["matches"] = "y"
        add_strokes(data, layout, panel.strokes, (x, y), axis_names(n + index)[1], index == 0)
        if index + columns >= n:
            layout[axis_key(x)]["title"] = {"text": drawn.x.label}
        title = row_title(panel.title, down[1])
        layout["annotations"].append({**title, "x": across[0]})
    legend = bool(labels) or any(panel.strokes for panel in drawn.panels)
    return figure_of(data, layout, 70 + _PANEL_HEIGHT * lines, legend=legend)


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {"title": {"text": "<br>".join(textwrap.wrap(axis.label, _TITLE))}}
    if axis.logarithmic:
        made |= {"type": "log", "dtick": 1}
    if axis.marks:
        made["tickvals"] = rounded(np.array([at for at, _ in axis.marks]) / axis.scale, 9)
        made["ticktext"] = [text for _, text in axis.marks]
    if axis.categories:
        places = list(range(len(axis.categories)))
        made |= {"tickvals": places, "ticktext": list(axis.categories)}
    return made
