"""The page's figures, as Plotly's JSON; drawn as SVG, so that they need no WebGL.

Text and grid colours are left to the page, which knows whether it is light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from loopscope.analysis.quantity import UNKNOWN_NS, duration, half_width, number
from loopscope.analysis.results import PatternResult
from loopscope.report.marks_interactive import add_strokes, strokes_caption
from loopscope.report.palette import BLUE, ORANGE, TARGET, series_colour
from loopscope.report.series import EndDrawing, IntervalDrawing, PathDrawing, Scatter, unit_of

_HOP_HEIGHT = 170
_SECONDS = "s since the first message"


def response_time(end: EndDrawing) -> dict[str, Any]:
    """From end to end over time; marks along the top where a message was lost."""
    assert end.response is not None
    made = over_time(end.response)
    if len(end.lost_seconds):
        made["layout"]["yaxis2"] = {"overlaying": "y", "range": [0, 1], "visible": False}
        made["layout"]["showlegend"] = True
        made["data"].append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "lost",
                "x": rounded(end.lost_seconds, 6),
                "y": [0.985] * len(end.lost_seconds),
                "yaxis": "y2",
                "marker": {"symbol": "line-ns-open", "size": 9, "color": ORANGE},
                "hovertemplate": "lost, sent at %{x:.6f} s<extra></extra>",
            }
        )
    return made


def over_time(drawing: IntervalDrawing) -> dict[str, Any]:
    data = scatters(drawing, "x", "y")
    layout = {
        "xaxis": {"title": {"text": _SECONDS}},
        "yaxis": _interval_axis(drawing, "D2"),
    }
    add_strokes(data, layout, drawing.strokes, ("x", "y"), "y3")
    return figure_of(data, layout, 380, legend=len(data) > 1)


def distribution(drawing: IntervalDrawing, name: str) -> dict[str, Any]:
    """`name` is what the horizontal axis shows."""
    _, unit = unit_of(drawing.median_ns)
    layout = {
        "xaxis": {"title": {"text": f"{name} ({unit})"}, **_bars_axis(drawing)},
        "yaxis": {"title": {"text": drawing.what}},
        "bargap": 0.02,
    }
    return figure_of([_bars(drawing, "x", "y")], layout, 280)


def hops(path: PathDrawing) -> dict[str, Any]:
    """One row per hop: over time at the left, its histogram at the right."""
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"bargap": 0.02, "annotations": []}
    n = len(path.hops)
    for row, hop in enumerate(path.hops):
        rows = [(n - row - 1) / n, (n - row - 0.28) / n]
        time, length = axis_names(2 * row)
        bin_, messages = axis_names(2 * row + 1)
        for trace in scatters(hop, time, length):
            data.append({**trace, "showlegend": row == 0 and len(hop.scatters) > 1})
        data.append(_bars(hop, bin_, messages))
        _, unit = unit_of(hop.median_ns)
        layout |= {
            axis_key(time): {"domain": [0, 0.68], "anchor": length, "showticklabels": row == n - 1},
            axis_key(length): {
                **_interval_axis(hop, 1),
                "domain": rows,
                "anchor": time,
                "nticks": 5,
            },
            axis_key(bin_): {"domain": [0.76, 1], "anchor": messages, **_bars_axis(hop)},
            axis_key(messages): {"domain": rows, "anchor": bin_, "nticks": 4},
        }
        layout[axis_key(bin_)]["ticksuffix"] = f" {unit}"
        if row:
            layout[axis_key(time)]["matches"] = "x"
        if row == n - 1:
            layout[axis_key(time)]["title"] = {"text": _SECONDS}
        layout["annotations"].append(row_title(_hop_title(hop), rows[1]))
        free = None if row else axis_names(2 * n)[1]
        add_strokes(data, layout, path.hops[0].strokes, (time, length), free)
    return figure_of(data, layout, 60 + _HOP_HEIGHT * n, legend=True)


PATTERN_CAPTION = (
    "From each message's intended send time to its arrival, a dot for each receiver; the bar is "
    "the target. Logarithmic scale."
)


def pattern(result: PatternResult) -> dict[str, Any]:
    """The maximum and p99 of each row above its type, and its target."""

    def series(
        name: str, values: Sequence[int | None], symbol: str, size: int, colour: str
    ) -> dict[str, Any]:
        given = [(row, ns) for row, ns in zip(result.rows, values, strict=True) if ns]
        return {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [row.message_type for row, _ in given],
            "y": [ns / 1e6 for _, ns in given],
            "customdata": [row.receiver for row, _ in given],
            "marker": {"symbol": symbol, "size": size, "color": colour},
            "hovertemplate": f"%{{x}} at %{{customdata}}: {name} %{{y}} ms<extra></extra>",
        }

    rows = result.rows
    data = [
        series("target", [row.target_ns for row in rows], "line-ew-open", 12, TARGET),
        series("p99", [row.times["p99"] for row in rows], "circle", 5, BLUE),
        series("max", [row.times["max"] for row in rows], "circle", 5, ORANGE),
    ]
    types = list(dict.fromkeys(row.message_type for row in rows))
    layout = {
        "xaxis": {"type": "category", "categoryarray": types, "tickangle": -90, "dtick": 1},
        "yaxis": {"title": {"text": "latency (ms)"}, "type": "log", "dtick": 1},
        "margin": {"l": 64, "r": 84, "t": 28, "b": 100},
    }
    return figure_of(data, layout, 420, legend=True)


def interval_caption(drawing: IntervalDrawing) -> str:
    """How many of the points are shown, and how certain they are."""
    if drawing.shown < drawing.total:
        of = f"{number(drawing.total)} {drawing.what}"
        shown = f"{number(drawing.shown)} of {of} shown, extremes kept."
    else:
        shown = f"{number(drawing.total)} {drawing.what}."
    scale = " Logarithmic scale." if drawing.logarithmic else ""
    scale += strokes_caption(drawing.strokes)
    if drawing.max_err_ns >= UNKNOWN_NS:
        return f"{shown} Of some the clock error is unknown.{scale}"
    return f"{shown} Clock error {half_width(drawing.max_err_ns)} at most.{scale}"


def hops_caption(hops: Sequence[IntervalDrawing]) -> str:
    text = "Left: over time. Right: how many messages took how long."
    if any(hop.shown < hop.total for hop in hops):
        text += " At the left a sample of the messages is shown, extremes kept."
    text += strokes_caption(hops[0].strokes)
    if outside := sum(hop.histogram.below + hop.histogram.beyond for hop in hops):
        text += f" At the right {number(outside)} values of far tails are not shown."
    return text


def histogram_caption(drawing: IntervalDrawing) -> str:
    found = drawing.histogram
    text = f"{number(drawing.total)} {drawing.what}."
    if found.below:
        text += f" {number(found.below)} below {duration(float(found.edges[0]))} are not shown."
    if found.beyond:
        text += f" {number(found.beyond)} above {duration(float(found.edges[-1]))} are not shown."
    return text


def plain(text: str) -> str:
    """Text that Plotly, which reads some HTML in texts, shows as it is."""
    return escape(text, quote=False)


def scatters(drawing: IntervalDrawing, x: str, y: str) -> list[dict[str, Any]]:
    scale, unit = unit_of(drawing.median_ns)
    what = drawing.what.removesuffix("s")
    return [_scatter(each, what, scale, unit, x, y) for each in drawing.scatters]


def _scatter(scatter: Scatter, what: str, scale: int, unit: str, x: str, y: str) -> dict[str, Any]:
    certainty = [
        [plain(i) if isinstance(i, str) else i, "unknown" if e >= UNKNOWN_NS else float(e / scale)]
        for i, e in zip(scatter.id, scatter.err_ns, strict=False)
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"repeat {scatter.repeat}",
        "x": rounded(scatter.seconds, 6),
        "y": (scatter.ns / scale).tolist(),
        "xaxis": x,
        "yaxis": y,
        "customdata": certainty,
        "marker": {"size": 3, "opacity": 0.65, "color": series_colour(scatter.repeat)},
        "hovertemplate": what
        + " %{customdata[0]} at %{x:.6f} s: %{y} ± %{customdata[1]} "
        + f"{unit}<extra></extra>",
    }


def _bars(drawing: IntervalDrawing, x: str, y: str) -> dict[str, Any]:
    scale, unit = unit_of(drawing.median_ns)
    edges = drawing.histogram.edges / scale
    if drawing.histogram.logarithmic:
        # Plotly's bars have a width in the axis's own numbers: these do not.
        counts = drawing.histogram.counts.tolist()
        return {
            "type": "scatter",
            "mode": "lines",
            "line": {"shape": "hv", "width": 0},
            "fill": "tozeroy",
            "fillcolor": BLUE,
            "x": rounded(edges, 5),
            "y": [*counts, 0],
            "xaxis": x,
            "yaxis": y,
            "showlegend": False,
            "hovertemplate": f"%{{x}} {unit} and more: %{{y}}<extra></extra>",
        }
    bins = np.round(np.column_stack([edges[:-1], edges[1:]]), 4).tolist()
    return {
        "type": "bar",
        "x": rounded((edges[:-1] + edges[1:]) / 2, 5),
        "y": drawing.histogram.counts.tolist(),
        "width": float(edges[1] - edges[0]),
        "customdata": bins,
        "xaxis": x,
        "yaxis": y,
        "showlegend": False,
        "marker": {"color": BLUE, "line": {"width": 0}},
        "hovertemplate": f"%{{customdata[0]}} to %{{customdata[1]}} {unit}: %{{y}}<extra></extra>",
    }


def _bars_axis(drawing: IntervalDrawing) -> dict[str, Any]:
    return {"type": "log", "dtick": 1} if drawing.histogram.logarithmic else {"nticks": 5}


def _interval_axis(drawing: IntervalDrawing, dtick: int | str) -> dict[str, Any]:
    _, unit = unit_of(drawing.median_ns)
    axis: dict[str, Any] = {"title": {"text": f"time ({unit})"}}
    if drawing.logarithmic:
        return {**axis, "type": "log", "dtick": dtick}
    return {**axis, "rangemode": "tozero"}


def figure_of(
    data: list[dict[str, Any]], layout: dict[str, Any], height: int, legend: bool = False
) -> dict[str, Any]:
    shared = {
        "height": height,
        "margin": {"l": 64, "r": 84, "t": 28, "b": 44},
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "itemsizing": "constant",
        },
        "hovermode": "closest",
    }
    return {"data": data, "layout": shared | layout}


def _hop_title(hop: IntervalDrawing) -> str:
    return f"{hop.first} → {hop.last} (clock error {half_width(hop.max_err_ns)})"


def row_title(text: str, top: float) -> dict[str, Any]:
    place = {"x": 0, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left"}
    return {**place, "text": text, "yanchor": "bottom", "showarrow": False}


def axis_names(index: int) -> tuple[str, str]:
    """Plotly's names of the axes of the subplot with this index: `x`, `y`, then `x2`, `y2` …"""
    suffix = "" if index == 0 else str(index + 1)
    return f"x{suffix}", f"y{suffix}"


def axis_key(axis: str) -> str:
    return f"{axis[0]}axis{axis[1:]}"


def rounded(values: Any, digits: int) -> list[float]:
    rounded: list[float] = np.round(values, digits).tolist()
    return rounded
