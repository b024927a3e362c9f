"""Charts for the page, as Plotly's JSON; drawn as SVG, so that they need no WebGL.

Text and grid colours are left to the page, which knows whether it is light or dark.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.quantity_text import number
from loopscope.report.chart import (
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
from loopscope.report.diagram import TOP, Diagram, page_drawing
from loopscope.report.marks import LINK, NAMES, TICK, TRIGGER, Strokes
from loopscope.report.palette import MARKS, TARGET
from loopscope.report.waterfall import UNKNOWN

if TYPE_CHECKING:
    from loopscope.report.axis import Axis

_DASHES = ("solid", "dash", "dot", "dashdot")
_SHAPES = {"": "linear", "before": "vh", "after": "hv"}
_SYMBOLS = {"down": "triangle-down", "up": "triangle-up", "tick": "line-ns-open",
            "dash": "line-ew-open"}  # fmt: skip
_STROKES = {LINK: ("dash", "triangle-down"), TRIGGER: ("dot", "diamond")}
_MARGIN = {"l": 64, "r": 84, "t": 28, "b": 44}
_TITLE, _TICKS = 18, 26
"""Pixels: of a line of a panel's title, of the numbers below an axis."""
_CHARACTER = 7
"""Pixels of a title's characters."""
_PAGE = 900
"""About the width of a chart, in pixels."""

Json = dict[str, Any]


def page_figure(chart: Chart) -> Json:
    """Data and layout."""
    return _Page(chart).figure()


class _Page:
    """A chart on its way to Plotly's JSON."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.data: list[Json] = []
        self.layout: Json = {}
        self.labels: set[str] = set()
        self.axes = len(chart.panels)
        self.lanes = list(dict.fromkeys(c for each in chart.panels for c in each.y.categories))

    def figure(self) -> Json:
        chart, n = self.chart, len(self.chart.panels)
        columns = min(chart.columns[0], n)
        lines = -(-n // columns)
        for index, panel in enumerate(chart.panels):
            self._place(index, panel, columns, lines)
            for layer in panel.layers:
                self._draw(layer, panel, index)
            self._strokes(panel.strokes, panel.x, index)
        legend: Json = {"itemsizing": "constant"}
        if chart.legend == "beside":
            legend |= {"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top"}
        else:
            legend |= {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}
        shown = sum(bool(trace.get("showlegend")) for trace in self.data) > 0
        shared: Json = {"height": chart.pixels, "margin": _MARGIN, "hovermode": "closest",
                  "showlegend": shown, "legend": legend, "bargap": 0.02}  # fmt: skip
        if any(isinstance(layer, Bars) for panel in chart.panels for layer in panel.layers):
            # Bars of a lane are one after the other, whichever trace they are of.
            shared["barmode"] = "overlay"
        return {"data": self.data, "layout": shared | self.layout}

    def _place(self, index: int, panel: Panel, columns: int, lines: int) -> None:
        line, column = divmod(index, columns)
        x, y = _axes(index)
        widths = np.array(self.chart.ratios or [1] * columns) / sum(self.chart.ratios or [columns])
        begin = float(widths[:column].sum())
        gap = 0.08 if columns > 1 and self.chart.ratios else 0.05 if columns > 1 else 0.0
        end = begin + float(widths[column]) - (gap if column < columns - 1 else 0)
        last = index + columns >= len(self.chart.panels)
        height = max(1, self.chart.pixels - _MARGIN["t"] - _MARGIN["b"]) / lines
        names = max((len(lane) for lane in self.lanes), default=0)
        room = int((end - begin) * (_PAGE / _CHARACTER - names))
        first = self.chart.panels[line * columns : (line + 1) * columns]
        wrapped = [textwrap.wrap(each.title, max(20, room)) for each in first]
        tall = max(map(len, wrapped)) or max(bool(each.note) for each in first)
        ticks = _TICKS if line and not all(each.shares for each in first) else 0
        if line and all(each.title for each in self.chart.panels[:1]) and ticks:
            above = self.chart.panels[(line - 1) * columns : line * columns]
            lower = self.chart.panels[line * columns :]
            named = any(each.names_x(lower) for each in above)
            ticks += _TITLE if named else 0
        used = min(0.6, (tall * _TITLE + ticks) / height)
        low, high = (lines - line - 1) / lines, (lines - line - used) / lines
        across, up = _axis(panel.x, upright=False), _axis(panel.y, upright=True)
        across |= {"domain": [begin, end], "anchor": y}
        up |= {"domain": [low, high], "anchor": x}
        if height < 250 and panel.y.logarithmic:
            up["dtick"] = 1 if panel.y.decades > 1.2 else "D2"
        elif height < 250 and not panel.y.categories:
            up["nticks"] = 5
        if not panel.names_x(self.chart.panels[index + columns :: columns]):
            across.pop("title")
        if panel.shares:
            across["showticklabels"] = last
            if index:
                across["matches"] = "x"
        if panel.shares == "xy" and index:
            up["matches"] = "y"
            if column:
                up.pop("title")
        if panel.y.categories and any(isinstance(each, Bars) for each in panel.layers):
            up |= {"type": "category", "categoryorder": "array", "categoryarray": self.lanes}
            up |= {"range": [len(self.lanes) - 0.5, -0.5], "showticklabels": column == 0}
            up |= {"tickvals": self.lanes, "ticktext": list(map(_plain, self.lanes))}
        self.layout |= {_key(x): across, _key(y): up}
        if panel.right is not None:
            self.layout[_key(self._right(index))] = {
                **_axis(panel.right, upright=True), "overlaying": y, "side": "right", "anchor": x,
                "showgrid": False, "zeroline": False,
            }  # fmt: skip
        notes = self.layout.setdefault("annotations", [])
        place = {"xref": "paper", "yref": "paper", "showarrow": False, "yanchor": "bottom"}
        if title := wrapped[column]:
            text = "<br>".join(map(_plain, title))
            left = {"x": begin, "xanchor": "left", "align": "left"}
            notes.append({**place, **left, "y": high, "text": text})
        if panel.note:
            right = {"x": end, "xanchor": "right", "font": {"size": 10}}
            notes.append({**place, **right, "y": high, "text": _plain(panel.note)})
        for at in panel.separators:
            self._shape(x, y, "line", (0, 1), (at, at), {"width": 1, "color": "#80808060"}, True)

    def _right(self, index: int) -> str:
        return _axes(len(self.chart.panels) + index)[1]

    def _free(self) -> str:
        """A vertical axis that there is not yet."""
        self.axes += 1
        return _axes(len(self.chart.panels) + self.axes - 1)[1]

    def _shape(
        self, x: str, y: str, kind: str, across: tuple[float, float], up: tuple[float, float],
        line: Json, whole_width: bool = False, **more: Any,
    ) -> None:  # fmt: skip
        """Across the whole width of a panel, else over its whole height."""
        place: Json = {"xref": f"{x} domain", "yref": y} if whole_width else {"xref": x}
        place = {"yref": f"{y} domain"} | place | {"x0": across[0], "x1": across[1]}
        place |= {"y0": up[0], "y1": up[1], "type": kind, "line": line}
        self.layout.setdefault("shapes", []).append({**place, "layer": "below", **more})

    def _draw(self, layer: Layer, panel: Panel, index: int) -> None:
        x, y = _axes(index)
        if isinstance(layer, Stripes):
            for begin, end in layer.ranges:
                ends = begin / panel.x.scale, end / panel.x.scale
                colour = layer.colour + "40"
                self._shape(x, y, "rect", ends, (0, 1), {"width": 1, "color": colour},
                            fillcolor=colour)  # fmt: skip
            return
        if isinstance(layer, Diagram):
            shapes, texts = page_drawing(layer, x, y)
            for axis in (x, y):
                self.layout[_key(axis)] |= {"visible": False, "fixedrange": True}
            self.layout["margin"] = dict.fromkeys("lrb", 0) | {"t": TOP}
            self.layout.setdefault("shapes", []).extend(shapes)
            self.data += [{**each, "xaxis": x, "yaxis": y, "showlegend": False} for each in texts]
            return
        if isinstance(layer, TopTicks):
            y = self._free()
            self._overlay(y, _axes(index)[1])
        for trace in _traces(layer, panel):
            upright = self._right(index) if getattr(layer, "right", False) else y
            label = trace.pop("name", "")
            if label and isinstance(layer, Trace | Histogram) and self.chart.key:
                label = f"{self.chart.key} {label}"
            fresh = bool(label) and label not in self.labels and trace.pop("legend", True)
            trace.pop("legend", None)
            self.labels |= {label} if fresh else set()
            named = {"name": label, **({"legendgroup": label} if label else {})}
            self.data.append({**trace, **named, "xaxis": x, "yaxis": upright, "showlegend": fresh})

    def _overlay(self, axis: str, over: str) -> None:
        self.layout[_key(axis)] = {"overlaying": over, "range": [0, 1], "visible": False,
                                   "fixedrange": True}  # fmt: skip

    def _strokes(self, strokes: Strokes, axis: Axis, index: int) -> None:
        """Lines below the data; of the first panel symbols that say what each is."""
        x, y = _axes(index)
        for kind, each, ticks in strokes.kinds():
            dash, symbol = _STROKES[kind]
            line = {"color": MARKS[kind], "width": 1, "dash": "solid" if ticks else dash}
            at = [round(stroke.seconds * 1e9 / axis.scale, 6) for stroke in each]
            for place in at:
                self._shape(x, y, "line", (place, place), (0, TICK if ticks else 1), line)
            if index and self.chart.panels[index].shares == "x":
                continue
            free = self._free()
            self._overlay(free, y)
            fresh = NAMES[kind] not in self.labels
            self.labels.add(NAMES[kind])
            self.data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": NAMES[kind],
                    "legendgroup": kind,
                    "showlegend": fresh,
                    "x": at,
                    "y": [0 if ticks else 1] * len(each),
                    "xaxis": x,
                    "yaxis": free,
                    "text": ["<br>".join(map(_plain, stroke.texts)) for stroke in each],
                    "cliponaxis": False,
                    "marker": {"symbol": symbol, "size": 7, "color": MARKS[kind]},
                    "hovertemplate": f"%{{text}}<br>at %{{x}} {axis.shown}<extra></extra>",
                }
            )


def _traces(layer: Layer, panel: Panel) -> Iterator[Json]:
    """Traces without their axes; those with a `name` are in the legend unless `legend` is False."""
    x, y = panel.x, panel.y
    if isinstance(layer, Trace):
        yield from _trace(layer, x, panel.right if layer.right and panel.right else y)
    elif isinstance(layer, Band):
        yield from _band(layer, x, y)
    elif isinstance(layer, Whiskers):
        known = np.isfinite(layer.half_width)
        if known.any():
            axis = x if layer.sideways else y
            bars: Json = {"type": "data", "array": _shown(layer.half_width[known], axis)}
            colour = layer.colour + ("50" if layer.shade else "")
            bars |= {"color": colour, "thickness": 3 if layer.shade else 1}
            bars["width"] = 0 if layer.shade else 4
            yield {
                "type": "scatter",
                "mode": "markers",
                "x": _shown(layer.x[known], x),
                "y": _shown(layer.y[known], y),
                "marker": {"size": 1, "color": layer.colour},
                "hoverinfo": "skip",
                "error_x" if layer.sideways else "error_y": bars,
            }
    elif isinstance(layer, Histogram):
        yield _histogram(layer, x)
    elif isinstance(layer, Bars):
        if layer.half_width is None:
            yield _bars(layer, panel, np.arange(len(layer.lanes)))
            return
        known = np.isfinite(layer.half_width)
        if known.any():
            at = np.flatnonzero(known)
            error = {"type": "data", "array": (layer.half_width[at] / panel.x.scale).tolist()}
            whiskers = {**error, "width": 2, "thickness": 1, "color": TARGET}
            yield _bars(layer, panel, at) | {"error_x": whiskers}
        if not known.all():
            told = {"text": UNKNOWN, "textposition": "outside", "cliponaxis": False}
            yield _bars(layer, panel, np.flatnonzero(~known), in_legend=False) | told
    elif isinstance(layer, Cells):
        yield _cells(layer, x, y)
    elif isinstance(layer, TopTicks):
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": layer.label,
            "x": _shown(layer.x, x),
            "y": [0.985] * len(layer.x),
            "marker": {"symbol": "line-ns-open", "size": 9, "color": layer.colour},
            "hovertemplate": f"{layer.hover}<extra></extra>",
        }


def _trace(layer: Trace, x: Axis, y: Axis) -> Iterator[Json]:
    colour = layer.colour
    mode = "+".join(["lines"] * bool(layer.line) + ["markers"] * bool(layer.symbol))
    made: Json = {"type": "scatter", "mode": mode, "name": layer.label}
    made |= {"x": _shown(layer.x, x), "y": _shown(layer.y, y)}
    if layer.line:
        shape = {"dash": _DASHES[layer.dash % len(_DASHES)], "shape": _SHAPES[layer.step]}
        made["line"] = {"color": colour, "width": round(layer.line * 1.4, 2), **shape}
    if layer.symbol:
        symbol = _SYMBOLS.get(layer.symbol, layer.symbol)
        size = round(1.65 * layer.size if layer.symbol == "tick" else 1.5 * layer.size + 1.2, 1)
        made["marker"] = {"size": size, "color": colour, "symbol": symbol}
        if layer.opacity < 1:
            made["marker"]["opacity"] = layer.opacity
        if layer.symbol in ("tick", "dash"):
            made["marker"]["line"] = {"width": 2}
        if layer.hollow is not None:
            each = [f"{symbol}-open" if hollow else symbol for hollow in layer.hollow]
            made["marker"]["symbol"] = each
    if layer.hover is None:
        made["hoverinfo"] = "skip"
    else:
        made["hovertemplate"] = f"{layer.hover.template}<extra></extra>"
        if layer.hover.details is not None:
            made["customdata"] = [_details(each) for each in layer.hover.details()]
    yield made


def _band(layer: Band, x: Axis, y: Axis) -> Iterator[Json]:
    """One outline for each stretch without a gap."""
    known = np.flatnonzero(np.isfinite(layer.low) & np.isfinite(layer.high))
    if not len(known):
        return
    along_axis, of_axis = (y, x) if layer.sideways else (x, y)
    along: list[float | None] = []
    of: list[float | None] = []
    for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        # A staircase goes on to the next place, where it changes.
        places, values = (np.repeat(part, 2)[1:], np.repeat(part, 2)[:-1])
        if not layer.sideways:
            places = values = part
        along += _shown(layer.along[np.r_[places, places[::-1]]], along_axis)
        of += [*_shown(layer.high[values], of_axis), *_shown(layer.low[values[::-1]], of_axis)]
        along.append(None)
        of.append(None)
    ends = {"x": of, "y": along} if layer.sideways else {"x": along, "y": of}
    yield {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip",
           "fill": "toself", "fillcolor": layer.colour + "40", "name": layer.label,
           **ends}  # fmt: skip


def _histogram(layer: Histogram, x: Axis) -> Json:
    edges, counts = _shown(layer.edges, x), layer.counts.tolist()
    if x.logarithmic or not layer.filled:
        # Plotly's bars have a width in the axis's own numbers: these do not.
        line = {"shape": "hv", "width": 0 if layer.filled else 1.5, "color": layer.colour}
        fill = {"fill": "tozeroy", "fillcolor": layer.colour} if layer.filled else {}
        return {"type": "scatter", "mode": "lines", "name": layer.label, "line": line, **fill,
                "x": edges, "y": [*counts, 0],
                "hovertemplate": f"%{{x}} {x.shown} and more: %{{y}}<extra></extra>"}  # fmt: skip
    ends = layer.edges / x.scale
    return {
        "type": "bar",
        "name": layer.label,
        "x": np.round((ends[:-1] + ends[1:]) / 2, 6).tolist(),
        "y": counts,
        "width": float(ends[1] - ends[0]),
        "customdata": np.round(np.column_stack([ends[:-1], ends[1:]]), 4).tolist(),
        "marker": {"color": layer.colour, "line": {"width": 0}},
        "hovertemplate": f"%{{customdata[0]}} to %{{customdata[1]}} {x.shown}: %{{y}}"
        "<extra></extra>",
    }


def _bars(layer: Bars, panel: Panel, rows: Any, in_legend: bool = True) -> Json:
    """Some of the bars."""
    scale = panel.x.scale
    return {
        "type": "bar",
        "orientation": "h",
        "name": layer.label,
        "legend": in_legend,
        "base": (layer.start[rows] / scale).tolist(),
        "x": (layer.length[rows] / scale).tolist(),
        "y": [panel.y.categories[layer.lanes[row]] for row in rows],
        "width": 0.65,
        "customdata": [layer.details[row] for row in rows],
        "marker": {"color": layer.colour},
        "hovertemplate": f"%{{y}}: %{{x:.4g}} {panel.x.shown} %{{customdata}}<extra></extra>",
    }


def _cells(layer: Cells, x: Axis, y: Axis) -> Json:
    """Shades by the logarithm of how many."""
    shade = np.where(layer.counts > 0, np.log10(np.maximum(layer.counts, 1)), np.nan).T
    tens = [10**exponent for exponent in range(int(np.log10(layer.counts.max())) + 1)]
    bar = {"title": {"text": layer.label}, "thickness": 14, "tickvals": list(range(len(tens))),
           "ticktext": [number(n) for n in tens]}  # fmt: skip
    return {
        "type": "heatmap",
        "x": _shown(_middles(layer.x_edges, x), x),
        "y": _shown(_middles(layer.y_edges, y), y),
        "z": [[None if np.isnan(z) else round(z, 3) for z in row] for row in shade.tolist()],
        "text": [[number(n) if n else "" for n in row] for row in layer.counts.T.tolist()],
        "colorscale": "Viridis",
        "reversescale": True,
        "zmin": 0,
        "colorbar": bar,
        "hovertemplate": f"%{{x:.3f}} {x.shown}, %{{y:.4g}} {y.shown}: %{{text}}<extra></extra>",
    }


def _middles(edges: Any, axis: Axis) -> Any:
    """The middles of cells; on a logarithmic axis they are geometric."""
    low, high = edges[:-1], edges[1:]
    return np.sqrt(low * high) if axis.logarithmic else (low + high) / 2


def _axis(axis: Axis, upright: bool) -> Json:
    made: Json = {"title": {"text": "<br>".join(map(_plain, textwrap.wrap(axis.label, 50)))}}
    if axis.logarithmic:
        made |= {"type": "log", "dtick": "D2" if axis.decades < 2.5 else 1}
        if axis.decades > 0 and axis.least < 1e-6:
            made["exponentformat"] = "power"
        else:
            # Without a format Plotly writes 5 for 50, and 10,000 next to 1000.
            made["tickformat"] = "~g"
    elif axis.limits is None and axis.from_zero:
        made["rangemode"] = "nonnegative" if axis.from_zero == "beyond" else "tozero"
    if axis.limits is not None:
        low, high = (end / axis.scale for end in axis.limits)
        made["range"] = [np.log10(low), np.log10(high)] if axis.logarithmic else [low, high]
    if axis.marks:
        made["tickvals"] = [round(at / axis.scale, 9) for at, _ in axis.marks]
        made["ticktext"] = [_plain(text) for _, text in axis.marks]
    if axis.categories:
        made |= {"tickvals": list(range(len(axis.categories))), "zeroline": False}
        made |= {"ticktext": list(map(_plain, axis.categories)), "automargin": True}
        if upright:
            made["range"] = [len(axis.categories) - 0.4, -0.6]
        elif len(axis.categories) > 8:
            made["tickangle"] = -90
    return made


def _shown(values: Any, axis: Axis) -> list[Any]:
    """In the unit that the axis shows; None where there is none."""
    if axis.scale == 1 and values.dtype.kind in "iu":
        return list(values.tolist())
    found = np.round(values / axis.scale, 9 if axis.logarithmic else 6)
    if np.isfinite(found).all():
        return list(found.tolist())
    return [each if np.isfinite(each) else None for each in found.tolist()]


def _axes(index: int) -> tuple[str, str]:
    """Names of a panel's axes in Plotly, by its index: `x`, `y`, then `x2`, `y2` and so on."""
    suffix = "" if index == 0 else str(index + 1)
    return f"x{suffix}", f"y{suffix}"


def _key(axis: str) -> str:
    return f"{axis[0]}axis{axis[1:]}"


def _details(each: Any) -> Any:
    if isinstance(each, str):
        return _plain(each)
    return [_plain(part) if isinstance(part, str) else part for part in each] if isinstance(
        each, list | tuple
    ) else each  # fmt: skip


@lru_cache(maxsize=10_000)
def _plain(text: str) -> str:
    """Text that Plotly, which reads some HTML in texts, shows as it is."""
    return escape(text, quote=False)
