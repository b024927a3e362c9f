"""The figures as files for papers: SVG with real text, PDF with embedded TrueType.

Points are drawn as a picture within the vector file, so that it stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from loopscope.analysis.results import PatternResult
from loopscope.report.canvas import STYLE, WIDTHS, save
from loopscope.report.clock_files import CLOCK_FIGURES
from loopscope.report.palette import BLUE, ORANGE, TARGET, series_colour
from loopscope.report.series import Drawings, IntervalDrawing, PathDrawing, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SECONDS = "s since the first message"


def draw_files(drawings: Drawings, folder: Path, names: Sequence[str]) -> None:
    """Writes `<name>.svg`, `.pdf` and `.png` into `folder` for each of `names` that has data."""
    draw: dict[str, Callable[[PathDrawing], Figure | None]] = {
        "response-time": _response_time,
        "response-histogram": _response_histogram,
        "hops": _hops,
    }
    wanted: list[tuple[str, Callable[[], Figure | None]]] = []
    for name in names:
        if name in CLOCK_FIGURES:
            wanted.append((name, partial(CLOCK_FIGURES[name], drawings.clock)))
            continue
        if name == "patterns":
            for pattern in drawings.patterns:
                suffix = "" if len(drawings.patterns) == 1 else f"-{pattern.name}"
                wanted.append((name + suffix, partial(_pattern, pattern)))
            continue
        for path in drawings.paths:
            suffix = "" if len(drawings.paths) == 1 else f"-{path.name}"
            wanted.append((name + suffix, partial(draw[name], path)))
    folder.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for file, make in wanted:
            figure = make()
            if figure is None:
                continue
            save(figure, folder / file)


def _response_time(path: PathDrawing) -> Figure | None:
    if path.response is None:
        return None
    figure = Figure(figsize=(WIDTHS["two"], 3))
    axes = figure.subplots()
    _scatter(axes, path.response)
    if len(path.lost_seconds):
        top = axes.get_xaxis_transform()
        ones = [0.985] * len(path.lost_seconds)
        axes.plot(path.lost_seconds, ones, "|", color=ORANGE, transform=top, rasterized=True)
        axes.set_title("marks along the top: lost messages")
    axes.set_xlabel(_SECONDS)
    return figure


def _response_histogram(path: PathDrawing) -> Figure | None:
    if path.response is None:
        return None
    figure = Figure(figsize=(WIDTHS["two"], 2.4))
    axes = figure.subplots()
    _bars(axes, path.response)
    axes.set_xlabel(f"response time ({unit_of(path.response.median_ns)[1]})")
    axes.set_ylabel("messages")
    return figure


def _hops(path: PathDrawing) -> Figure | None:
    if not path.hops:
        return None
    n = len(path.hops)
    figure = Figure(figsize=(WIDTHS["two"], 0.3 + 1.25 * n))
    rows = figure.subplots(n, 2, squeeze=False, width_ratios=(3, 1))
    for (left, right), hop in zip(rows, path.hops, strict=False):
        _scatter(left, hop)
        left.tick_params(labelbottom=left is rows[-1][0])
        left.set_title(f"{hop.first} → {hop.last}")
        _bars(right, hop)
        right.set_xlabel(unit_of(hop.median_ns)[1], labelpad=0)
    rows[-1][0].set_xlabel(_SECONDS)
    return figure


def _pattern(result: PatternResult) -> Figure | None:
    rows = result.rows
    place = {name: i for i, name in enumerate(dict.fromkeys(row.message_type for row in rows))}
    figure = Figure(figsize=(WIDTHS["two"], 3.2))
    axes = figure.subplots()
    for name, values, mark, size, colour in (
        ("target", [row.target_ns for row in rows], "_", 6, TARGET),
        ("p99", [row.times["p99"] for row in rows], ".", 4, BLUE),
        ("max", [row.times["max"] for row in rows], ".", 4, ORANGE),
    ):
        given = [(place[row.message_type], ns) for row, ns in zip(rows, values, strict=True) if ns]
        x, y = [at for at, _ in given], [ns / 1e6 for _, ns in given]
        axes.plot(x, y, mark, ms=size, color=colour, label=name)
    axes.set_yscale("log")
    axes.set_ylabel("latency (ms)")
    axes.set_xticks(list(place.values()), list(place), rotation=90, fontsize=6)
    axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


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
        axes.set_yscale("log")
    axes.set_ylabel(unit)


def _bars(axes: Axes, drawing: IntervalDrawing) -> None:
    scale, _ = unit_of(drawing.median_ns)
    axes.stairs(drawing.histogram.counts, drawing.histogram.edges / scale, fill=True, color=BLUE)
