"""The hops of a path and the types of a pattern as files, with the numbers that they show."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from loopscope.analysis.quantity import UNKNOWN_NS, number
from loopscope.analysis.results import PatternResult
from loopscope.report.canvas import logarithmic
from loopscope.report.marks_files import FORMS, draw_strokes
from loopscope.report.palette import BLUE, ORANGE, TARGET, series_colour
from loopscope.report.series import IntervalDrawing, PathDrawing, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Sequence[str | int | float]
_SECONDS = "s since the first message"


def draw_hops(path: PathDrawing, width: float) -> Figure:
    """A row for each hop: over time at the left, its histogram at the right."""
    n = len(path.hops)
    figure = Figure(figsize=(width, 0.3 + 1.25 * n))
    rows = figure.subplots(n, 2, squeeze=False, width_ratios=(3, 1))
    for (left, right), hop in zip(rows, path.hops, strict=False):
        _scatter(left, hop)
        draw_strokes(left, path.hops[0].strokes, numbers=left is rows[0][0])
        left.tick_params(labelbottom=left is rows[-1][0])
        left.set_title(f"{hop.first} → {hop.last}")
        right.set_title(_counts(hop), loc="right", fontsize=6.5, color="0.35")
        _bars(right, hop)
        right.set_xlabel(f"time ({unit_of(hop.median_ns)[1]})", labelpad=0)
    rows[-1][0].set_xlabel(_SECONDS)
    if path.hops and path.hops[0].strokes:
        told = textwrap.fill(path.hops[0].strokes.caption(FORMS), round(width * 20))
        figure.suptitle(told, fontsize=6.5, x=0.01, ha="left", color="0.35")
    return figure


def draw_pattern(result: PatternResult, width: float) -> Figure:
    rows = result.rows
    place = {name: i for i, name in enumerate(dict.fromkeys(row.message_type for row in rows))}
    figure = Figure(figsize=(width, 3.2))
    axes = figure.subplots()
    for name, values, mark, size, colour in (
        ("target", [row.target_ns for row in rows], "_", 6, TARGET),
        ("p99", [row.times["p99"] for row in rows], ".", 4, BLUE),
        ("max", [row.times["max"] for row in rows], ".", 4, ORANGE),
    ):
        given = [(place[row.message_type], ns) for row, ns in zip(rows, values, strict=True) if ns]
        x, y = [at for at, _ in given], [ns / 1e6 for _, ns in given]
        axes.plot(x, y, mark, ms=size, color=colour, label=name)
    logarithmic(axes, axes.yaxis)
    axes.set_ylabel("latency (ms)")
    axes.set_xticks(list(place.values()), list(place), rotation=90, fontsize=6.5)
    axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def hops_rows(path: PathDrawing) -> Iterable[Row]:
    """The lines of the CSV, the heading first: the points that are shown."""
    yield (
        "hop",
        "repeat",
        "id",
        "time since the first message (s)",
        "time (ns)",
        "clock error (ns)",
    )
    for hop in path.hops:
        for each in hop.scatters:
            columns = (of.tolist() for of in (each.seconds, each.ns, each.err_ns))
            for id, seconds, ns, err in zip(each.id, *columns, strict=True):
                told = "" if err >= UNKNOWN_NS else err
                yield (f"{hop.first} → {hop.last}", each.repeat, id, seconds, ns, told)
    yield from _strokes_rows(path)


def _strokes_rows(path: PathDrawing) -> Iterable[Row]:
    """What is marked, in the column of the hop's name."""
    for stroke in path.hops[0].strokes.every:
        yield ("; ".join(stroke.texts), "", "", stroke.seconds, "", "")


def pattern_rows(result: PatternResult) -> Iterable[Row]:
    """Likewise."""
    yield ("type", "receiver", "target (ns)", "p99 (ns)", "max (ns)", "clock error (ns)")
    for row in result.rows:
        numbers = (row.target_ns, row.times["p99"], row.times["max"], row.err_ns)
        yield (row.message_type, row.receiver, *("" if ns is None else ns for ns in numbers))


def _counts(hop: IntervalDrawing) -> str:
    """How many messages a hop has, and how many of them each of its two plots shows."""
    text = f"n = {number(hop.total)}"
    if hop.shown < hop.total:
        text += f", {number(hop.shown)} points, extremes kept"
    outside = hop.histogram.below + hop.histogram.beyond
    return f"{text}; {number(outside)} outside the bars" if outside else text


def _scatter(axes: Axes, drawing: IntervalDrawing) -> None:
    scale, unit = unit_of(drawing.median_ns)
    for each in drawing.scatters:
        colour = series_colour(each.repeat)
        axes.plot(
            each.seconds,
            each.ns / scale,
            ".",
            ms=1.5,
            color=colour,
            rasterized=True,
            label=f"repeat {each.repeat}",
        )
    if drawing.logarithmic:
        logarithmic(axes, axes.yaxis)
    axes.set_ylabel(f"time ({unit})")


def _bars(axes: Axes, drawing: IntervalDrawing) -> None:
    scale, _ = unit_of(drawing.median_ns)
    axes.stairs(drawing.histogram.counts, drawing.histogram.edges / scale, fill=True, color=BLUE)
    if drawing.histogram.logarithmic:
        logarithmic(axes, axes.xaxis)
