"""The page's figures of the clocks, as Plotly's JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.quantity import UNKNOWN_NS
from loopscope.analysis.quantity import half_width as told
from loopscope.report.clock_series import SECONDS, ClockCurve, ClockDrawing, Mark, OffsetCurve
from loopscope.report.interactive import axis_key, axis_names, figure_of, rounded, row_title
from loopscope.report.palette import BLUE, ERROR, ORANGE, series_colour
from loopscope.report.series import unit_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_HEIGHT = 260
_LOW_HEIGHT = 190
_DISTURBED = "#d55e0040"

OFFSET_CAPTION = (
    "How each host's clock wandered against the reference: its offset, less what its mean rate "
    "explains; the band is the clock's hard error, with a gap where that is "
    "unknown. The line is its rate against nominal. Where a stripe is, a clock was disturbed and "
    "the time of events is unknown."
)
WIDTH_CAPTION = (
    "How well each host's time is known: the hard half-width holds whatever the network did, the "
    "calibrated one as often as it claims, of paths nearly alike both ways."
)
REALTIME_CAPTION = (
    "How far each host's CLOCK_REALTIME was ahead of the reference's, ten readings a second; the "
    "band is the error of that. No event is stamped by this clock. A stripe: it was set, or the "
    "reference's was."
)
ALLAN_CAPTION = (
    "Overlapping Allan deviation of each host's counter against the reference's, of the longest "
    "undisturbed stretch, from the offset's smoothed estimate: over short times counters look "
    "calmer than they are. Logarithmic scales."
)

Trace = dict[str, Any]


def offsets(hosts: Sequence[ClockDrawing]) -> dict[str, Any]:
    """One row per host: deviation from the mean rate (left axis), rate (right axis)."""
    data: list[Trace] = []
    layout = _stack(hosts, _HEIGHT, 0.2)
    for row, host in enumerate(hosts):
        time, offset, rate = *axis_names(2 * row), axis_names(2 * row + 1)[1]
        scale, unit = unit_of(max(float(np.abs(curve.deviation_ns).max()) for curve in host.curves))
        for index, curve in enumerate(host.curves):
            on_offset = {"xaxis": time, "yaxis": offset, "showlegend": row == index == 0}
            made = band(curve.seconds, curve.deviation_ns, curve.err_ns, scale, unit)
            data += [{**trace, **on_offset, **_shown(trace, on_offset)} for trace in made]
            data.append({**on_offset, **_rate_trace(curve), "yaxis": rate})
        layout[axis_key(offset)]["title"] = {"text": f"offset ({unit})"}
        layout[axis_key(rate)] = {
            "title": {"text": "rate (ppm)"},
            "overlaying": offset,
            "side": "right",
            "anchor": time,
            "showgrid": False,
            "zeroline": False,
        }
        title = f"{host.host}: offset from a straight line of {host.mean_ppm:+.4f} ppm"
        _name_row(layout, offset, title)
        layout["shapes"] += _marks(host.disturbed, time, offset)
    return figure_of(data, layout, 60 + _HEIGHT * len(hosts), legend=True)


def widths(hosts: Sequence[ClockDrawing]) -> dict[str, Any]:
    """One row per host: hard and calibrated half-width over time."""
    data: list[Trace] = []
    layout = _stack(hosts, _LOW_HEIGHT, 0.25)
    for row, host in enumerate(hosts):
        time, width = axis_names(2 * row)
        scale, unit = unit_of(_middle(curve.err_ns for curve in host.curves))
        for index, curve in enumerate(host.curves):
            for name, ns, colour in (
                ("hard half-width", curve.err_ns, BLUE),
                ("calibrated half-width", curve.calibrated_ns, ORANGE),
            ):
                data.append(
                    {
                        "type": "scatter",
                        "mode": "markers",
                        "name": name,
                        "xaxis": time,
                        "yaxis": width,
                        "showlegend": row == index == 0,
                        "x": rounded(curve.seconds, 6),
                        "y": _numbers(ns / scale, 4),
                        "marker": {"size": 3, "color": colour},
                        "hovertemplate": f"%{{x:.3f}} s: ± %{{y}} {unit}<extra></extra>",
                    }
                )
        layout[axis_key(width)] |= {"title": {"text": f"± {unit}"}, "rangemode": "tozero"}
        _name_row(layout, width, host.host)
        layout["shapes"] += _marks(host.disturbed, time, width)
    return figure_of(data, layout, 60 + _LOW_HEIGHT * len(hosts), legend=True)


def realtimes(hosts: Sequence[ClockDrawing]) -> dict[str, Any]:
    """One row per host whose CLOCK_REALTIME was read."""
    hosts = [host for host in hosts if host.realtime]
    data: list[Trace] = []
    layout = _stack(hosts, _LOW_HEIGHT, 0.25)
    for row, host in enumerate(hosts):
        time, offset = axis_names(2 * row)
        scale, unit = unit_of(max(map(_reach, host.realtime)))
        for index, curve in enumerate(host.realtime):
            on_offset = {"xaxis": time, "yaxis": offset, "showlegend": row == index == 0}
            made = band(curve.seconds, curve.offset_ns, curve.err_ns, scale, unit)
            data += [{**trace, **on_offset, **_shown(trace, on_offset)} for trace in made]
        layout[axis_key(offset)]["title"] = {"text": f"ahead by ({unit})"}
        _name_row(layout, offset, host.host)
        layout["shapes"] += _marks(host.set_, time, offset)
    return figure_of(data, layout, 60 + _LOW_HEIGHT * len(hosts), legend=True)


def allan(hosts: Sequence[ClockDrawing]) -> dict[str, Any]:
    """All hosts together."""
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": host.host,
            "showlegend": curve is host.allan[0],
            "x": curve.tau_s.tolist(),
            "y": curve.deviation.tolist(),
            "marker": {"size": 6, "color": series_colour(number)},
            "hovertemplate": f"{host.host}, %{{x:.3g}} s: %{{y:.3g}}<extra></extra>",
        }
        for number, host in enumerate(hosts, start=1)
        for curve in host.allan
    ]
    log = {"type": "log", "dtick": "D2", "automargin": True}
    layout = {
        "xaxis": {"title": {"text": "averaging time (s)"}, **log},
        "yaxis": {"title": {"text": "Allan deviation"}, "exponentformat": "power", **log},
    }
    return figure_of(data, layout, 340, legend=True)


Figure = tuple[str, str, str, Callable[[Sequence[ClockDrawing]], dict[str, Any]]]


def clock_figures(hosts: Sequence[ClockDrawing]) -> list[Figure]:
    """Name, title, caption and maker of each figure that has something to show."""
    found: list[Figure] = []
    if hosts:
        found.append(("clock", "Clock offset and rate", OFFSET_CAPTION, offsets))
        found.append(("clock-width", "Error of the clocks", WIDTH_CAPTION, widths))
    if any(host.realtime for host in hosts):
        title = "CLOCK_REALTIME against the reference's"
        found.append(("clock-realtime", title, REALTIME_CAPTION, realtimes))
    if any(host.allan for host in hosts):
        title = "Stability of the counters"
        found.append(("clock-allan", title, ALLAN_CAPTION, allan))
    return found


def _stack(hosts: Sequence[ClockDrawing], height: int, gap: float) -> dict[str, Any]:
    """A row of axes for each host, above each other."""
    layout: dict[str, Any] = {"annotations": [], "shapes": []}
    n = len(hosts)
    for row in range(n):
        time, value = axis_names(2 * row)
        layout[axis_key(time)] = {"anchor": value}
        domain = [(n - row - 1) / n, (n - row - gap) / n]
        layout[axis_key(value)] = {"domain": domain, "anchor": time}
        if row == n - 1:
            layout[axis_key(time)]["title"] = {"text": SECONDS}
    return layout


def _name_row(layout: dict[str, Any], axis: str, title: str) -> None:
    layout["annotations"].append(row_title(title, layout[axis_key(axis)]["domain"][1]))


def _shown(trace: Trace, row: Trace) -> Trace:
    """Only what has a name is in the legend, once."""
    return {"showlegend": bool(row["showlegend"]) and "name" in trace}


def band(
    x: Floats, middle: Floats, half_width: Floats, scale: int, unit: str
) -> list[dict[str, Any]]:
    """The band, with a gap where the half-width is unknown, then the points."""
    y, err = middle / scale, half_width / scale
    known = np.flatnonzero(~np.isnan(err))
    outline: dict[str, list[float | None]] = {"x": [], "y": []}
    for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if len(known) else ():
        back = part[::-1]
        outline["x"] += [*rounded(x[part], 6), *rounded(x[back], 6), None]
        low, high = y - err, y + err
        outline["y"] += [*rounded(high[part], 4), *rounded(low[back], 4), None]
    edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "offset",
        "x": rounded(x, 6),
        "y": rounded(y, 4),
        "marker": {"size": 4, "color": BLUE},
        "customdata": [
            told(UNKNOWN_NS if np.isnan(ns) else math.ceil(ns)) for ns in half_width.tolist()
        ],
        "hovertemplate": f"%{{x:.3f}} s: %{{y}} {unit} %{{customdata}}<extra></extra>",
    }
    filled = {"name": "hard error", "fill": "toself", "fillcolor": ERROR}
    return [{**edge, **outline, **filled}, points]


def _rate_trace(curve: ClockCurve) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "rate",
        "x": rounded(curve.seconds, 6),
        "y": _numbers(curve.rate_ppm, 6),
        "line": {"shape": "hv", "width": 1.2, "color": ORANGE},
        "hovertemplate": "%{x:.3f} s: %{y:.4f} ppm<extra></extra>",
    }


def _marks(marks: Sequence[Mark], x: str, y: str) -> list[dict[str, Any]]:
    """Stripes, wide enough to be seen however short the time is."""
    return [
        {
            "type": "rect",
            "xref": x,
            "yref": f"{y} domain",
            "x0": mark.begin_s,
            "x1": mark.end_s,
            "y0": 0,
            "y1": 1,
            "fillcolor": _DISTURBED,
            "line": {"width": 1, "color": _DISTURBED},
        }
        for mark in marks
    ]


def _numbers(values: Any, digits: int) -> list[float | None]:
    return [None if np.isnan(value) else value for value in rounded(values, digits)]


def _middle(parts: Any) -> float:
    values = np.concatenate(list(parts))
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0


def _reach(curve: OffsetCurve) -> float:
    return float((np.abs(curve.offset_ns) + curve.err_ns).max())
