"""Latency of each type of a pattern's messages at each point of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loopscope.report.axis import Axis, axis_of
from loopscope.report.chart import Chart, Hover, Panel, Row, Trace
from loopscope.report.figure_source import FigureSource
from loopscope.report.palette import SERIES, TARGET
from loopscope.report.samples import FigureError

if TYPE_CHECKING:
    from loopscope.analysis.results import PatternResult, PatternRow

_TIMES = {"p50": "median", "p99": "p99", "max": "maximum"}
_CAPTION = (
    "From each message's intended send time to its arrival, a dot for each receiver, by point of "
    "the sweep; the bar is the target. Logarithmic scales."
)
_Points = Sequence[tuple[str, "PatternResult"]]


def chart(source: FigureSource, of: str) -> Chart:
    """The medians of all points above each message's type, their p99 and their maximum.

    Raises `FigureError` where the run has no points.
    """
    if not source.swept:
        raise FigureError("pattern-points is of a sweep: this run sweeps nothing")
    points = [(str(point.point), _result(point, of)) for point in source.points]
    # Types of which a point has nothing are there, too.
    types = {row.message_type: None for _, result in points for row in result.rows}
    place = {name: i for i, name in enumerate(types)}
    panels = [_panel(points, place, time) for time in _TIMES]
    return Chart(tuple(panels), caption=_CAPTION, rows=_rows(points), inches=(0, 2.6),
                 pixels=720, legend="above")  # fmt: skip


def _result(point: FigureSource, of: str) -> PatternResult:
    return next(each for each in point.results.patterns if each.name == of)


def _panel(points: _Points, place: dict[str, int], time: str) -> Panel:
    traces = []
    first = [row for _, result in points[:1] for row in result.rows]
    targets = {row.message_type: row.target_ns for row in first if row.target_ns}
    if time == "max" and targets:
        x = np.array([place[name] for name in targets], dtype=np.int64)
        y = np.array([*targets.values()], dtype=np.float64)
        told = Hover("%{customdata[0]}: target %{y} ms", lambda: [(name,) for name in targets])
        traces.append(Trace(x, y, TARGET, "target", symbol="dash", size=6, hover=told))
    for number, (name, result) in enumerate(points):
        rows = [row for row in result.rows if row.times[time]]
        x = np.array([place[row.message_type] for row in rows], dtype=np.int64)
        y = np.array([row.times[time] for row in rows], dtype=np.float64)
        colour = SERIES[number % len(SERIES)]
        traces.append(
            Trace(x, y, colour, name, symbol="circle", size=2.6, hover=_hover(name, rows))
        )
    every = np.concatenate([each.y for each in traces])
    if not len(every):
        raise FigureError("no message of the pattern arrived at any point")
    y_axis = replace(axis_of(_TIMES[time], "ns", every, True), scale=1e6, shown="ms")
    return Panel(Axis("", "", 1, "", categories=tuple(place)), y_axis, tuple(traces))


def _hover(point: str, rows: Sequence[PatternRow]) -> Hover:
    template = f"%{{customdata[0]}} at %{{customdata[1]}}, {point}: %{{y}} ms"
    return Hover(template, lambda: [(row.message_type, row.receiver) for row in rows])


def _rows(points: _Points) -> Iterator[Row]:
    yield ("point", "type", "receiver", "target (ns)", *(f"{each} (ns)" for each in _TIMES))
    for name, result in points:
        for row in result.rows:
            numbers = (row.target_ns, *(row.times[time] for time in _TIMES))
            shown = ("" if ns is None else ns for ns in numbers)
            yield (name, row.message_type, row.receiver, *shown)
