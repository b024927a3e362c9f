"""What stands beside the samples of a figure: what has no number, and what happened meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.quantity import number
from loopscope.report.marks import Mark, strokes_over
from loopscope.report.palette import ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loopscope.report.sketches import Sketch
    from loopscope.report.source import Sampled

Row = Sequence[str | int | float]


def with_others(sketch: Sketch, sampled: Sampled, marked: bool) -> Sketch:
    """A figure with what has no number: where `marked`, along the top where a message was lost."""
    others = {what: each for what, each in sampled.without.items() if len(each)}
    lost = np.sort(others.pop("lost").since) if "lost" in others else np.empty(0, np.int64)
    notes = [f"{number(len(each))} {what}" for what, each in others.items()]
    if len(lost):
        told = ": marks along the top" if marked else ""
        notes.append(f"{number(len(lost))} lost{told}")
    sketch = replace(sketch, notes=[*sketch.notes, *notes])
    if not len(lost) or not marked:
        return sketch
    painted = sketch.paint

    def paint(axes: Axes) -> None:
        painted(axes)
        at = np.unique(np.round(lost / sketch.x.scale, 3))
        top = axes.get_xaxis_transform()
        axes.plot(at, [0.985] * len(at), "|", color=ORANGE, transform=top, rasterized=True)

    in_series = sketch.heading[0] == "series"
    blanks = [""] * (len(sketch.heading) - 1 - in_series)
    first = ["lost"] if in_series else []
    rows: Iterable[Row] = ([*first, int(ns), *blanks] for ns in lost)
    return replace(sketch, paint=paint, rows=chain(sketch.rows, rows))


def with_strokes(sketch: Sketch, sampled: Sampled, marks: Sequence[Mark]) -> Sketch:
    """A figure over time with what happened meanwhile; in the CSV the column `series` says what."""
    from loopscope.report.marks_files import FORMS, draw_strokes

    since = sampled.table["since"].to_numpy() / 1e9
    drawn = set(sampled.table["repeat"].unique().to_pylist())
    origin = {repeat: at for repeat, at in sampled.origin.items() if repeat in drawn}
    strokes = strokes_over(marks, origin, sampled.hosts, float(since.min()), float(since.max()))
    if not strokes:
        return sketch
    painted, heading, lines = sketch.paint, sketch.heading, sketch.rows
    if heading[0] != "series":
        heading, lines = ["series", *heading], (["", *line] for line in lines)

    def paint(axes: Axes) -> None:
        painted(axes)
        draw_strokes(axes, strokes, sketch.x.scale / 1e9)

    blanks = [""] * (len(heading) - 2)
    rows: Iterable[Row] = (
        ["; ".join(each.texts), round(each.seconds * 1e9), *blanks] for each in strokes.every
    )
    notes = [*sketch.notes, strokes.caption(FORMS)]
    return replace(sketch, paint=paint, heading=heading, rows=chain(lines, rows), notes=notes)
