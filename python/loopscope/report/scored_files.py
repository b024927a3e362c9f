"""Clocks against the truth, as files: what `loopscope clock verify` wrote, drawn."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from loopscope.report.axis import unit_of
from loopscope.report.canvas import STYLE, WIDTHS, logarithmic, save
from loopscope.report.decimation import thin
from loopscope.report.palette import BLUE, ORANGE, SERIES

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes

    Floats = npt.NDArray[np.float64]

_POINTS = 4000
_SIDES = ("offline", "online")


@dataclass(frozen=True)
class Scored:
    """Estimates of one side at the instants of which it has one.

    Their errors, and the maximum errors that it gave, in ns.
    """

    seconds: Floats
    error: Floats
    hard: Floats
    calibrated: Floats


def draw_scored(folder: Path) -> None:
    """Draws each scenario's table in `folder`: `<scenario>.svg`, `.pdf` and `.png`."""
    with mpl.rc_context(STYLE):
        for file in sorted(folder.glob("*.csv")):
            sides = read_scored(file)
            if sides:
                save(figure_of(file.stem, sides), file.with_suffix(""))


def read_scored(file: Path) -> dict[str, Scored]:
    """Content of a scenario's table, by side, without sides that have no estimate.

    Empty for a file that is no such table.
    """
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    found = {}
    for side in _SIDES:
        names = ["time_s", f"{side}_error_ns"]
        names += [f"{side}_hard_half_width_ns", f"{side}_calibrated_ns"]
        if not rows or not set(names) <= set(rows[0]):
            continue
        told = [[float(row[name]) for name in names] for row in rows if row[names[1]]]
        if told:
            found[side] = Scored(*np.array(told).T)
    return found


def figure_of(scenario: str, sides: Mapping[str, Scored]) -> Figure:
    figure = Figure(figsize=(WIDTHS["two"], 4.6))
    names = list(sides)
    layout: list[Any] = [names, ["share"] * len(names)]
    panels = figure.subplot_mosaic(layout, height_ratios=(3, 2))
    scale, unit = unit_of(float(np.median([np.median(each.hard) for each in sides.values()])))
    # Some errors are smaller, which is no news. Counters do not tell a nanosecond from none.
    small = [np.quantile(abs(each.error), 0.005) for each in sides.values()]
    least = float(min(*small, *(each.calibrated.min() for each in sides.values())))
    most = max(float(max(abs(each.error).max(), each.hard.max())) for each in sides.values())
    span = max(least, 1.0) / scale, 1.3 * most / scale
    for name, scored in sides.items():
        _over_time(panels[name], scored, scale)
        panels[name].set_title(f"{scenario}, {name}")
        panels[name].set_ylim(span)
        logarithmic(panels[name], panels[name].yaxis)
        panels[name].tick_params(labelleft=name == names[0])
    panels[names[0]].set_ylabel(unit)
    marks, labels = panels[names[0]].get_legend_handles_labels()
    figure.legend(marks, labels, frameon=False, ncols=3, loc="outside upper left", markerscale=4)
    _distribution(panels["share"], sides, scale, unit)
    panels["share"].set_xlim(span)
    logarithmic(panels["share"], panels["share"].xaxis)
    return figure


def _over_time(axes: Axes, scored: Scored, scale: float) -> None:
    for name, ns, colour in (
        ("hard maximum error", scored.hard, BLUE),
        ("calibrated error bound", scored.calibrated, ORANGE),
        ("error against truth", abs(scored.error), SERIES[2]),
    ):
        kept = thin(ns, _POINTS)
        x, y = scored.seconds[kept], ns[kept] / scale
        axes.plot(x, y, ".", ms=1.5, color=colour, rasterized=True, label=name)
    axes.set_xlabel("s of the measured time")


def _distribution(axes: Axes, sides: Mapping[str, Scored], scale: float, unit: str) -> None:
    """The share of instants whose error is larger than so much."""
    for (name, scored), colour in zip(sides.items(), (SERIES[2], SERIES[3]), strict=False):
        error = np.sort(abs(scored.error)) / scale
        larger = 1 - np.arange(len(error)) / len(error)
        label = f"{name}, {len(error)} instants"
        axes.step(error, larger, where="pre", lw=1, color=colour, label=label)
    logarithmic(axes, axes.yaxis)
    axes.set_xlabel(f"error against truth ({unit})")
    axes.set_ylabel("share of instants\nwith a larger one")
    axes.legend(frameon=False)
