"""The figures of the clocks as files for papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from loopscope.report.canvas import WIDTHS
from loopscope.report.clock_series import SECONDS, ClockDrawing, Mark
from loopscope.report.palette import BLUE, ORANGE, series_colour
from loopscope.report.series import unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _offsets(hosts: Sequence[ClockDrawing]) -> Figure | None:
    if not hosts:
        return None
    figure, rows = _rows(hosts, 1.9)
    for axes, host in zip(rows, hosts, strict=True):
        scale, unit = unit_of(max(float(abs(curve.deviation_ns).max()) for curve in host.curves))
        rate = axes.twinx()
        rate.spines["right"].set_visible(True)
        for curve in host.curves:
            low = (curve.deviation_ns - curve.err_ns) / scale
            high = (curve.deviation_ns + curve.err_ns) / scale
            axes.fill_between(curve.seconds, low, high, color=BLUE, alpha=0.25, linewidth=0)
            axes.plot(curve.seconds, curve.deviation_ns / scale, ".", ms=3, color=BLUE)
            rate.step(curve.seconds, curve.rate_ppm, where="post", lw=0.8, color=ORANGE)
        _stripes(axes, host.disturbed)
        axes.set_title(f"{host.host}: offset from a straight line of {host.mean_ppm:+.4f} ppm")
        axes.set_ylabel(f"offset ({unit})", color=BLUE)
        rate.set_ylabel("rate (ppm)", color=ORANGE)
    return figure


def _widths(hosts: Sequence[ClockDrawing]) -> Figure | None:
    if not hosts:
        return None
    figure, rows = _rows(hosts, 1.4)
    for axes, host in zip(rows, hosts, strict=True):
        scale, unit = unit_of(float(np.nanmedian([c.err_ns.mean() for c in host.curves])))
        for index, curve in enumerate(host.curves):
            for name, ns, colour in (
                ("hard half-width", curve.err_ns, BLUE),
                ("calibrated half-width", curve.calibrated_ns, ORANGE),
            ):
                label = name if index == 0 else None
                axes.plot(curve.seconds, ns / scale, ".", ms=2, color=colour, label=label)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"± {unit}")
        axes.set_title(host.host)
        _stripes(axes, host.disturbed)
    rows[0].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def _realtimes(hosts: Sequence[ClockDrawing]) -> Figure | None:
    hosts = [host for host in hosts if host.realtime]
    if not hosts:
        return None
    figure, rows = _rows(hosts, 1.4)
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


def _allan(hosts: Sequence[ClockDrawing]) -> Figure | None:
    if not any(host.allan for host in hosts):
        return None
    figure = Figure(figsize=(WIDTHS["two"], 2.6))
    axes = figure.subplots()
    for number, host in enumerate(hosts, start=1):
        for curve in host.allan:
            label = host.host if curve is host.allan[0] else None
            colour = series_colour(number)
            axes.plot(curve.tau_s, curve.deviation, ".-", lw=0.8, color=colour, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("averaging time (s)")
    axes.set_ylabel("Allan deviation")
    axes.legend(frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


CLOCK_FIGURES: dict[str, Callable[[Sequence[ClockDrawing]], Figure | None]] = {
    "clock": _offsets,
    "clock-width": _widths,
    "clock-realtime": _realtimes,
    "clock-allan": _allan,
}


def _rows(hosts: Sequence[ClockDrawing], height: float) -> tuple[Figure, list[Axes]]:
    """Axes for each host, above each other."""
    figure = Figure(figsize=(WIDTHS["two"], 0.3 + height * len(hosts)))
    rows = list(figure.subplots(len(hosts), 1, squeeze=False)[:, 0])
    rows[-1].set_xlabel(SECONDS)
    return figure, rows


def _stripes(axes: Axes, marks: Sequence[Mark]) -> None:
    for mark in marks:
        axes.axvspan(mark.begin_s, mark.end_s, color=ORANGE, alpha=0.3, lw=1)
