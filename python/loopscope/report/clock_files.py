"""The figures of the clocks as files for papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from loopscope.report.axis import in_legend
from loopscope.report.canvas import logarithmic
from loopscope.report.clock_series import SECONDS, ClockDrawing, Mark
from loopscope.report.palette import BLUE, ORANGE, series_colour
from loopscope.report.series import unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loopscope.report.clock_series import Floats

Row = Sequence[str | int | float]


def _offsets(hosts: Sequence[ClockDrawing], width: float) -> Figure | None:
    if not hosts:
        return None
    figure, rows = _rows(hosts, width, 1.9)
    for axes, host in zip(rows, hosts, strict=True):
        scale, unit = unit_of(max(float(abs(curve.deviation_ns).max()) for curve in host.curves))
        rate = axes.twinx()
        rate.spines["right"].set_visible(True)
        for curve in host.curves:
            low = (curve.deviation_ns - curve.err_ns) / scale
            high = (curve.deviation_ns + curve.err_ns) / scale
            axes.fill_between(curve.seconds, low, high, color=BLUE, alpha=0.25, linewidth=0)
            axes.plot(
                curve.seconds, curve.deviation_ns / scale, ".", ms=3, color=BLUE, rasterized=True
            )
            rate.step(curve.seconds, curve.rate_ppm, where="post", lw=0.8, color=ORANGE)
        _stripes(axes, host.disturbed)
        axes.set_title(f"{host.host}: offset from a straight line of {host.mean_ppm:+.4f} ppm")
        axes.set_ylabel(f"offset ({unit})", color=BLUE)
        rate.set_ylabel("rate (ppm)", color=ORANGE)
    return figure


def _widths(hosts: Sequence[ClockDrawing], width: float) -> Figure | None:
    if not hosts:
        return None
    figure, rows = _rows(hosts, width, 1.4)
    for axes, host in zip(rows, hosts, strict=True):
        scale, unit = unit_of(float(np.nanmedian([c.err_ns.mean() for c in host.curves])))
        for index, curve in enumerate(host.curves):
            for name, ns, colour in (
                ("hard half-width", curve.err_ns, BLUE),
                ("calibrated half-width", curve.calibrated_ns, ORANGE),
            ):
                label = name if index == 0 else None
                axes.plot(
                    curve.seconds,
                    ns / scale,
                    ".",
                    ms=2,
                    color=colour,
                    label=label,
                    rasterized=True,
                )
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"± {unit}")
        axes.set_title(host.host)
        _stripes(axes, host.disturbed)
    rows[0].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def _realtimes(hosts: Sequence[ClockDrawing], width: float) -> Figure | None:
    hosts = [host for host in hosts if host.realtime]
    if not hosts:
        return None
    figure, rows = _rows(hosts, width, 1.4)
    for axes, host in zip(rows, hosts, strict=True):
        reach = (float((abs(c.offset_ns) + c.err_ns).max()) for c in host.realtime)
        scale, unit = unit_of(max(reach))
        for curve in host.realtime:
            low, high = curve.offset_ns - curve.err_ns, curve.offset_ns + curve.err_ns
            axes.fill_between(
                curve.seconds, low / scale, high / scale, color=BLUE, alpha=0.25, linewidth=0
            )
            axes.plot(curve.seconds, curve.offset_ns / scale, ".", ms=3, color=BLUE)
        _stripes(axes, host.set_)
        axes.set_ylabel(f"ahead by ({unit})")
        axes.set_title(f"{host.host}: CLOCK_REALTIME against the reference's")
    return figure


def _allan(hosts: Sequence[ClockDrawing], width: float) -> Figure | None:
    if not any(host.allan for host in hosts):
        return None
    figure = Figure(figsize=(width, 2.6))
    axes = figure.subplots()
    for number, host in enumerate(hosts, start=1):
        for curve in host.allan:
            shown = in_legend(host.host) if curve is host.allan[0] else None
            colour = series_colour(number)
            axes.plot(curve.tau_s, curve.deviation, ".-", lw=0.8, color=colour, label=shown)
    logarithmic(axes, axes.xaxis)
    logarithmic(axes, axes.yaxis)
    axes.set_xlabel("averaging time (s)")
    axes.set_ylabel("Allan deviation")
    axes.legend(frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def _map_rows(hosts: Sequence[ClockDrawing]) -> Iterable[Row]:
    """The lines of the CSV, the heading first."""
    yield (
        "host",
        "repeat",
        "time since the first probe (s)",
        "offset from the straight line (ns)",
        "hard half-width (ns)",
        "calibrated half-width (ns)",
        "rate (ppm)",
    )
    for host in hosts:
        for each in host.curves:
            widths = (each.err_ns, each.calibrated_ns)
            columns = (each.seconds, each.deviation_ns, *widths, each.rate_ppm)
            yield from _lines(host, each.repeat, columns)


def _realtime_rows(hosts: Sequence[ClockDrawing]) -> Iterable[Row]:
    yield ("host", "repeat", "time since the first probe (s)", "ahead by (ns)", "half-width (ns)")
    for host in hosts:
        for each in host.realtime:
            yield from _lines(host, each.repeat, (each.seconds, each.offset_ns, each.err_ns))


def _allan_rows(hosts: Sequence[ClockDrawing]) -> Iterable[Row]:
    yield ("host", "repeat", "averaging time (s)", "Allan deviation")
    for host in hosts:
        for each in host.allan:
            yield from _lines(host, each.repeat, (each.tau_s, each.deviation))


def _lines(host: ClockDrawing, repeat: int, columns: Sequence[Floats]) -> Iterable[Row]:
    for line in zip(*(column.tolist() for column in columns), strict=True):
        yield (host.host, repeat, *("" if math.isnan(each) else each for each in line))


Draw = Callable[[Sequence[ClockDrawing], float], "Figure | None"]
Tell = Callable[[Sequence[ClockDrawing]], Iterable[Row]]
CLOCK_FIGURES: dict[str, tuple[Draw, Tell]] = {
    "clock": (_offsets, _map_rows),
    "clock-width": (_widths, _map_rows),
    "clock-realtime": (_realtimes, _realtime_rows),
    "clock-allan": (_allan, _allan_rows),
}
"""What draws each, None where there is nothing to draw, and what tells its numbers."""


def _rows(hosts: Sequence[ClockDrawing], width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Axes for each host, above each other."""
    figure = Figure(figsize=(width, 0.3 + height * len(hosts)))
    rows = list(figure.subplots(len(hosts), 1, squeeze=False)[:, 0])
    rows[-1].set_xlabel(SECONDS)
    return figure, rows


def _stripes(axes: Axes, marks: Sequence[Mark]) -> None:
    for mark in marks:
        axes.axvspan(mark.begin_s, mark.end_s, color=ORANGE, alpha=0.3, lw=1)
