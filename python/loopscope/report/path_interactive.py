"""The page's figures of a path that look into its messages, as Plotly's JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.quantity import UNKNOWN_NS, half_width, number
from loopscope.report.interactive import axis_key, axis_names, figure_of, plain, rounded, row_title
from loopscope.report.palette import SERIES, TARGET
from loopscope.report.samples import Series
from loopscope.report.series import unit_of
from loopscope.report.sketches import Tail, grid, tail
from loopscope.report.waterfall import KINDS, UNKNOWN, WHISKERS, Fall, Step

if TYPE_CHECKING:
    from loopscope.analysis.messages import Intervals
    from loopscope.report.host_timeline import HostTimeline
    from loopscope.report.parts import Part
    from loopscope.report.series import EndDrawing

_RANKS = 200
_TITLE = 40
"""Characters of a title that have room above a waterfall's panel."""
_CELLS = (150, 60)

Trace = dict[str, Any]

CCDF_CAPTION = (
    "The share of messages that took at least so long, of the path and of each hop; the band of "
    "the path is what the clocks' error leaves open. Logarithmic scales."
)
AGE_CAPTION = "Of the age the share is that of the uses."
WATERFALL_CAPTION = (
    "The messages of the median, the p99 and the greatest response time, hop by hop. "
    f"{WHISKERS} loopscope figure RUN waterfall --message KEY draws any other."
)
GRAPH_WATERFALL_CAPTION = (
    "The messages of the median, the p99 and the greatest time to the last of the ends that they "
    "reached, each with the edges over which it came to its first uses. "
    f"{WHISKERS} loopscope figure RUN waterfall --message KEY draws any other, 'PATH[EVENT -> "
    "EVENT]' those of one end."
)
HEATMAP_CAPTION = "How many messages took how long, over time, all repeats together."


def ccdf(end: EndDrawing) -> dict[str, Any]:
    """The line from end to end is thick; one that starts hidden is shown by a click on its name."""
    part, loop = end.part, end.part.intervals
    others = [("age", end.ages)] if end.ages else []
    others += [(f"{hop.intervals.first} → {hop.intervals.last}", hop) for hop in end.hops]
    whole = _tail(loop)
    scale, unit = unit_of(float(np.median(loop.length)))
    data: list[Trace] = []
    if whole.low is not None and whole.high is not None:
        share = whole.count / whole.total
        band: Trace = {"type": "scatter", "mode": "lines", "line": {"width": 0, "shape": "vh"}}
        band |= {"hoverinfo": "skip", "showlegend": False}
        low = {**band, "x": rounded(whole.low / scale, 4), "y": rounded(share, 9)}
        data = [low, {**low, "x": rounded(whole.high / scale, 4), "fill": "tonextx"}]
        data[1]["fillcolor"] = SERIES[0] + "40"
    data += _line(part, part.short, whole, scale, unit, SERIES[0], 2.2)
    for place, (name, other) in enumerate(others, start=1):
        if len(other.intervals.length):
            colour = SERIES[place % len(SERIES)]
            data += _line(other, name, _tail(other.intervals), scale, unit, colour, 1.1)
    log = {"type": "log", "dtick": 1}
    layout = {
        "xaxis": {"title": {"text": f"time ({unit})"}, **log},
        "yaxis": {
            "title": {"text": f"share of {part.what}"},
            "exponentformat": "none",
            **log,
        },
        "legend": {"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top"},
        "margin": {"l": 76, "r": 24, "t": 28, "b": 44},
    }
    return figure_of(data, layout, 420, legend=True)


def _tail(intervals: Intervals) -> Tail:
    err = np.where(intervals.err >= UNKNOWN_NS, np.nan, intervals.err.astype(np.float64))
    return tail(Series("", {"x": intervals.length, "err": err}), _RANKS)


def _line(
    part: Part, name: str, of: Tail, scale: int, unit: str, colour: str, width: float
) -> list[dict[str, Any]]:
    """A line, and a dot at the greatest."""
    # What is not later than it set out, by the clocks, has no place on a logarithmic axis.
    there = of.value > 0
    value, share = of.value[there] / scale, (of.count / of.total)[there]
    shown = f"{name} (n = {number(of.total)})"
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": shown,
        "legendgroup": name,
        "x": rounded(value, 4),
        "y": rounded(share, 9),
        "line": {"color": colour, "width": width, "shape": "vh"},
        "hovertemplate": f"%{{y:.3g}} of {part.what}: %{{x}} {unit} or more<extra></extra>",
    }
    dot = {
        **line,
        "mode": "markers",
        "showlegend": False,
        "x": rounded(value[-1:], 4),
        "y": rounded(share[-1:], 9),
        "marker": {"size": 5, "color": colour},
    }
    return [line, dot]


def waterfall(falls: Sequence[Fall]) -> dict[str, Any]:
    """A panel for each message, side by side."""
    data: list[Trace] = []
    layout: dict[str, Any] = {"annotations": [], "barmode": "overlay", "bargap": 0.35}
    labels = list(dict.fromkeys(step.label for fall in falls for step in fall.steps))
    tall = 1
    for column, fall in enumerate(falls):
        x, y = axis_names(column)
        ends = [abs(step.start + step.length) for step in fall.steps]
        scale, unit = unit_of(max(ends, default=1))
        for between, name, colour in KINDS:
            steps = [step for step in fall.steps if step.between_hosts is between]
            for known in (True, False):
                some = [step for step in steps if (step.err is not None) is known]
                if known or some:
                    bars = _bars(some, scale, unit)
                    bars |= {"name": name, "legendgroup": name, "marker": {"color": colour}}
                    shown = {"showlegend": known and column == 0, "xaxis": x, "yaxis": y}
                    data.append({**bars, **shown})
        across = [column / len(falls), (column + 0.93) / len(falls)]
        layout[axis_key(x)] = {"domain": across, "anchor": y, "title": {"text": unit}}
        layout[axis_key(x)] |= {"rangemode": "tozero", "nticks": 6}
        layout[axis_key(y)] = {
            "anchor": x,
            "type": "category",
            "categoryorder": "array",
            "categoryarray": labels,
            "range": [len(labels) - 0.5, -0.5],
            "showticklabels": column == 0,
            "automargin": True,
        }
        lines = [plain(line) for line in textwrap.wrap(fall.title, _TITLE)]
        tall = max(tall, len(lines))
        title = {**row_title("<br>".join(lines), 1), "align": "left"}
        layout["annotations"].append({**title, "x": across[0]})
    top = {"y": 1, "yref": "container", "yanchor": "top"}
    layout["legend"] = {"orientation": "h", "x": 0, **top}
    layout["margin"] = {"l": 64, "r": 20, "t": 44 + 16 * tall, "b": 44}
    return figure_of(data, layout, 114 + 16 * tall + 28 * len(labels), legend=True)


def _bars(steps: Sequence[Step], scale: int, unit: str) -> Trace:
    """Bars of a waterfall, of which all half-widths are known or none is."""
    errs = [step.err for step in steps if step.err is not None]
    return {
        "type": "bar",
        "orientation": "h",
        "base": [step.start / scale for step in steps],
        "x": [step.length / scale for step in steps],
        "y": [step.label for step in steps],
        "customdata": [half_width(UNKNOWN_NS if s.err is None else s.err) for s in steps],
        "hovertemplate": f"%{{y}}: %{{x:.4g}} {unit} %{{customdata}}<extra></extra>",
        **(
            {"error_x": {"type": "data", "array": [err / scale for err in errs], "width": 2,
                         "thickness": 1, "color": TARGET}}
            if len(errs) == len(steps)
            else {"text": UNKNOWN, "textposition": "outside", "cliponaxis": False}
        ),
    }  # fmt: skip


def heatmap(part: Part, among: int) -> dict[str, Any]:
    """Cells with a message have a colour, by the logarithm of how many. A page's heat maps, of
    which this is one `among` so many, have as many cells together as one alone."""
    across, up = (max(10, round(length / among**0.5)) for length in _CELLS)
    since, length = part.since, part.intervals.length
    logarithmic = bool(length.min() > 0 and length.max() > 8 * np.median(length))
    counts, x_edges, y_edges = grid(since, length, (across, up), ("y" if logarithmic else ""))
    scale, unit = unit_of(float(np.median(length)))
    # Of a logarithmic axis the middle of a cell is a geometric one.
    low, high = y_edges[:-1], y_edges[1:]
    middle = np.sqrt(low * high) if logarithmic else (low + high) / 2
    shade = np.where(counts > 0, np.log10(np.maximum(counts, 1)), np.nan).T
    tens = [10**exponent for exponent in range(int(np.log10(counts.max())) + 1)]
    data = [
        {
            "type": "heatmap",
            "x": rounded((x_edges[:-1] + x_edges[1:]) / 2e9, 6),
            "y": rounded(middle / scale, 4),
            "z": [[None if np.isnan(z) else round(z, 3) for z in line] for line in shade.tolist()],
            "text": [[number(n) if n else "" for n in line] for line in counts.T.tolist()],
            "colorscale": "Viridis",
            "reversescale": True,
            "zmin": 0,
            "colorbar": {
                "title": {"text": part.what},
                "tickvals": list(range(len(tens))),
                "ticktext": [number(n) for n in tens],
                "thickness": 14,
            },
            "hovertemplate": f"%{{x:.3f}} s, %{{y:.4g}} {unit}: %{{text}}<extra></extra>",
        }
    ]  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": "s since the first message"}},
        "yaxis": {
            "title": {"text": unit},
            **({"type": "log", "dtick": "D2"} if logarithmic else {}),
        },
    }
    return figure_of(data, layout, 360)


def timeline_caption(timeline: HostTimeline) -> str:
    return (
        f"The events of each host and program around the slowest message, and the ways of messages "
        f"between them: {timeline.notes}. loopscope figure RUN timeline --from 1s --until 1.1s "
        "draws any stretch of time."
    )


def timeline(found: HostTimeline) -> dict[str, Any]:
    from loopscope.report.host_timeline import lane_labels, since

    scale, unit = unit_of(found.span_ns)
    x: list[float | None] = []
    y: list[int | None] = []
    for way in found.ways:
        x += [*(round(ts / scale, 6) for ts, _ in way), None]
        y += [*(lane for _, lane in way), None]
    line = {"color": TARGET, "width": 1}
    data: list[Trace] = [
        {"type": "scatter", "mode": "lines", "name": "a message's way", "x": x, "y": y,
         "line": line, "hoverinfo": "skip"}
    ]  # fmt: skip
    for place, entity in enumerate(found.entities):
        marks = [mark for mark in found.marks if mark.entity == entity]
        ts = np.concatenate([mark.ts for mark in marks])
        err = np.concatenate([mark.err for mark in marks])
        lanes = np.repeat([mark.lane for mark in marks], [len(mark.ts) for mark in marks])
        colour = SERIES[place % len(SERIES)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": entity,
                "x": rounded(ts / scale, 6),
                "y": lanes.tolist(),
                "customdata": ["unknown" if e >= UNKNOWN_NS else e for e in err.tolist()],
                "marker": {
                    "symbol": "line-ns-open",
                    "size": 13,
                    "color": colour,
                    "line": {"width": 2},
                },
                "hovertemplate": f"{entity} at %{{x}} {unit} ± %{{customdata}} ns<extra></extra>",
            }
        )
    layout = {
        "xaxis": {"title": {"text": since(found, unit)}},
        "yaxis": {
            "tickvals": list(range(len(found.lanes))),
            "ticktext": lane_labels(found),
            "range": [len(found.lanes) - 0.4, -0.6],
            "automargin": True,
            "zeroline": False,
        },
    }
    return figure_of(data, layout, 120 + 34 * len(found.lanes), legend=True)
