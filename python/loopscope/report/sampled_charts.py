"""Charts of a run's samples: times of messages, ages of data, values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.quantity_text import number
from loopscope.report import figures
from loopscope.report.chart import Chart, Row, TopTicks
from loopscope.report.marks import Mark, strokes_over
from loopscope.report.palette import ORANGE

if TYPE_CHECKING:
    from loopscope.report.path_samples import Sampled
    from loopscope.report.sample_charts import Detail


def sampled_chart(
    kind: str,
    sampled: Sampled,
    detail: Detail,
    marks: Sequence[Mark] = (),
    log: str | None = None,
    together: bool = False,
) -> Chart:
    """The generic kind, of a run's samples, with what became of those that have no number.

    A scatter plot has `marks`: what happened meanwhile. `together`: repeats are no series.
    """
    timed = kind in ("scatter", "heatmap")
    value = "y" if timed else "x"
    columns = {value: "value", f"{value}_unit": sampled.unit, f"{value}_label": sampled.name}
    since = f"time since the first {'event' if sampled.what == 'events' else 'message'}"
    if timed:
        columns |= {"x": "since", "x_label": since, "x_unit": "ns"}
    if sampled.bounded:
        columns["err"] = "clock_error"
    if kind == "scatter" and "key" in sampled.table.column_names:
        columns["key"] = "key"
    if kind == "ccdf":
        columns["y_label"] = f"share of {sampled.what} at least as large"
    if kind == "histogram":
        columns["y_label"] = sampled.what
    if kind == "heatmap":
        columns["z_label"] = f"{sampled.what} per cell"
    elif not together and len(sampled.table["repeat"].unique()) > 1:
        columns["series"] = "repeat"
    if log is not None:
        columns["log"] = log
    detail = replace(detail, what=sampled.what.removesuffix("s"), key=sampled.key, since=timed)
    made = replace(figures.chart(kind, sampled.table, columns, detail), title=sampled.title)
    made = _with_others(made, sampled, marked=kind == "scatter")
    return _with_strokes(made, sampled, marks) if kind == "scatter" else made


def _with_others(chart: Chart, sampled: Sampled, marked: bool) -> Chart:
    """The chart with messages that have no number.

    Where `marked`, they are along the top at the time of a loss.
    """
    others = {what: each for what, each in sampled.without.items() if len(each)}
    lost = np.sort(others.pop("lost").since) if "lost" in others else np.empty(0, np.int64)
    notes = [f"{number(len(each))} {what}" for what, each in others.items()]
    if len(lost):
        told = ": marks along the top" if marked else ""
        notes.append(f"{number(len(lost))} lost{told}")
    chart = replace(chart, notes=(*chart.notes, *notes))
    if not len(lost) or not marked:
        return chart
    [panel] = chart.panels
    kept = np.linspace(0, len(lost) - 1, min(len(lost), _LOST)).astype(int)
    ticks = TopTicks(lost[kept], ORANGE, "lost", f"lost, sent at %{{x}} {panel.x.shown}")
    lines = iter(chart.rows)
    heading = next(lines)
    in_series = heading[0] == "series"
    blanks = [""] * (len(heading) - 1 - in_series)
    first = ["lost"] if in_series else []
    rows: Iterable[Row] = ([*first, int(ns), *blanks] for ns in lost)
    panel = replace(panel, layers=(*panel.layers, ticks))
    return replace(chart, panels=(panel,), rows=chain([heading], lines, rows))


_LOST = 1000
"""Marks of lost messages, at most."""


def _with_strokes(chart: Chart, sampled: Sampled, marks: Sequence[Mark]) -> Chart:
    """The chart with events during the run; in the CSV the column `series` names them."""
    since = sampled.table["since"].to_numpy() / 1e9
    drawn = set(sampled.table["repeat"].unique().to_pylist())
    origin = {repeat: at for repeat, at in sampled.origin.items() if repeat in drawn}
    strokes = strokes_over(marks, origin, sampled.hosts, float(since.min()), float(since.max()))
    if not strokes:
        return chart
    lines = iter(chart.rows)
    heading = next(lines)
    if heading[0] != "series":
        heading, lines = ["series", *heading], (["", *line] for line in lines)
    blanks = [""] * (len(heading) - 2)
    rows: Iterable[Row] = (
        ["; ".join(each.texts), round(each.seconds * 1e9), *blanks] for each in strokes.every
    )
    [panel] = chart.panels
    panel = replace(panel, strokes=strokes)
    return replace(chart, panels=(panel,), rows=chain([heading], lines, rows))
