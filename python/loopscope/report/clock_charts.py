"""Charts of the clocks, a panel for each host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.quantity_text import UNKNOWN_NS, maximum_error
from loopscope.report.axis import Axis, axis_of
from loopscope.report.chart import Band, Chart, Hover, Layer, Panel, Row, Stripes, Trace
from loopscope.report.clock_series import ClockDrawing, Mark
from loopscope.report.palette import BLUE, ORANGE, series_colour

if TYPE_CHECKING:
    from loopscope.report.clock_series import Floats

_SECONDS = Axis("time since the first probe", "s", 1, "s")
_RATE = Axis("rate", "ppm", 1, "ppm", colour=ORANGE)

_OFFSETS = (
    "How each host's clock wandered against the reference: its offset, less what its mean rate "
    "explains; the band is the clock's hard error, with a gap where that is "
    "unknown. The line is its rate against nominal. Where a stripe is, a clock was disturbed and "
    "the time of events is unknown."
)
_WIDTHS = (
    "How well each host's time is known: the hard maximum error holds whatever the network did, "
    "the calibrated one as often as it claims, of paths nearly alike both ways."
)
_REALTIMES = (
    "How far each host's CLOCK_REALTIME was ahead of the reference's, ten readings a second; the "
    "band is the error of that. No event is stamped by this clock. A stripe: it was set, or the "
    "reference's was."
)
_ALLAN = (
    "Overlapping Allan deviation of each host's counter against the reference's, of the longest "
    "undisturbed stretch, from the offset's smoothed estimate: over short times counters look "
    "calmer than they are. Logarithmic scales."
)


def _offsets(hosts: Sequence[ClockDrawing]) -> Chart:
    """Deviation from the mean rate at the left axis, rate at the right one."""
    panels = []
    for host in hosts:
        every = np.concatenate([curve.deviation_ns for curve in host.curves])
        y = axis_of("offset", "ns", np.abs(every).max(keepdims=True), False)
        layers: list[Layer] = [_stripes(host.disturbed)]
        for curve in host.curves:
            layers += _banded(curve.seconds, curve.deviation_ns, curve.err_ns, y, "offset")
            hover = Hover("%{x:.3f} s: %{y:.4f} ppm")
            layers.append(
                Trace(curve.seconds, curve.rate_ppm, ORANGE, "rate", line=0.8, step="after",
                      hover=hover, right=True)
            )  # fmt: skip
        title = f"{host.host}: offset from a straight line of {host.mean_ppm:+.4f} ppm"
        panels.append(Panel(_SECONDS, replace(y, colour=BLUE), tuple(layers), title, right=_RATE))
    return _stack(panels, 1.9, 260, _OFFSETS, _map_rows(hosts))


def _widths(hosts: Sequence[ClockDrawing]) -> Chart:
    """Hard and calibrated error bound over time."""
    panels = []
    for host in hosts:
        known = [curve.err_ns[~np.isnan(curve.err_ns)] for curve in host.curves]
        y = replace(axis_of("±", "ns", np.concatenate(known), False), from_zero="zero")
        layers: list[Layer] = [_stripes(host.disturbed)]
        for curve in host.curves:
            for name, ns, colour in (
                ("hard maximum error", curve.err_ns, BLUE),
                ("calibrated error bound", curve.calibrated_ns, ORANGE),
            ):
                there = ~np.isnan(ns)
                hover = Hover(f"%{{x:.3f}} s: ± %{{y}} {y.shown}")
                layers.append(
                    Trace(curve.seconds[there], ns[there], colour, name, symbol="circle", size=1.8,
                          picture=True, hover=hover)
                )  # fmt: skip
        panels.append(Panel(_SECONDS, y, tuple(layers), host.host))
    return _stack(panels, 1.4, 190, _WIDTHS, _map_rows(hosts))


def _realtimes(hosts: Sequence[ClockDrawing]) -> Chart:
    panels = []
    for host in hosts:
        if not host.realtime:
            continue
        reach = np.concatenate([np.abs(each.offset_ns) + each.err_ns for each in host.realtime])
        y = axis_of("ahead by", "ns", reach.max(keepdims=True), False)
        layers: list[Layer] = [_stripes(host.set_)]
        for each in host.realtime:
            layers += _banded(each.seconds, each.offset_ns, each.err_ns, y, "offset")
        title = f"{host.host}: CLOCK_REALTIME against the reference's"
        panels.append(Panel(_SECONDS, y, tuple(layers), title))
    return _stack(panels, 1.4, 190, _REALTIMES, _realtime_rows(hosts))


def _allan(hosts: Sequence[ClockDrawing]) -> Chart:
    """All hosts together."""
    traces = []
    for place, host in enumerate(hosts, start=1):
        hover = Hover(f"{host.host}, %{{x:.3g}} s: %{{y:.3g}}")
        for curve in host.allan:
            colour = series_colour(place)
            traces.append(
                Trace(curve.tau_s, curve.deviation, colour, host.host, line=0.8, symbol="circle",
                      hover=hover)
            )  # fmt: skip
    x = axis_of("averaging time", "s", np.concatenate([each.x for each in traces]), True)
    y = axis_of("Allan deviation", "", np.concatenate([each.y for each in traces]), True)
    return Chart((Panel(x, y, tuple(traces)),), caption=_ALLAN, rows=_allan_rows(hosts),
                 inches=(0, 2.6), pixels=340, legend="above")  # fmt: skip


def _banded(x: Floats, middle: Floats, half: Floats, axis: Axis, label: str) -> list[Layer]:
    """The band of the error, with a gap where it is unknown, then the points."""

    def details() -> list[str]:
        return [
            maximum_error(UNKNOWN_NS if np.isnan(ns) else math.ceil(ns)) for ns in half.tolist()
        ]

    hover = Hover(f"%{{x:.3f}} s: %{{y}} {axis.shown} %{{customdata}}", details)
    return [
        Band(x, middle - half, middle + half, BLUE, "hard error"),
        Trace(x, middle, BLUE, label, symbol="circle", size=2.4, picture=True, hover=hover),
    ]


def _stripes(marks: Sequence[Mark]) -> Stripes:
    return Stripes([(mark.begin_s, mark.end_s) for mark in marks], ORANGE)


def _stack(
    panels: Sequence[Panel], inches: float, pixels: int, caption: str, rows: Iterable[Row]
) -> Chart:
    return Chart(tuple(panels), caption=caption, rows=rows, inches=(0.5, inches), legend="above",
                 pixels=60 + pixels * len(panels))  # fmt: skip


def _map_rows(hosts: Sequence[ClockDrawing]) -> Iterable[Row]:
    yield (
        "host",
        "repeat",
        "time since the first probe (s)",
        "offset from the straight line (ns)",
        "hard maximum error (ns)",
        "calibrated error bound (ns)",
        "rate (ppm)",
    )
    for host in hosts:
        for each in host.curves:
            widths = (each.err_ns, each.calibrated_ns)
            columns = (each.seconds, each.deviation_ns, *widths, each.rate_ppm)
            yield from _lines(host, each.repeat, columns)


def _realtime_rows(hosts: Sequence[ClockDrawing]) -> Iterable[Row]:
    yield (
        "host",
        "repeat",
        "time since the first probe (s)",
        "ahead by (ns)",
        "maximum error (ns)",
    )
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


_Make = Callable[[Sequence[ClockDrawing]], Chart]
_CHARTS: dict[str, tuple[str, _Make, Callable[[ClockDrawing], bool]]] = {
    "clock": ("Clock offset and rate", _offsets, lambda host: True),
    "clock-width": ("Error of the clocks", _widths, lambda host: True),
    "clock-realtime": ("CLOCK_REALTIME against the reference's", _realtimes,
                       lambda host: bool(host.realtime)),
    "clock-allan": ("Stability of the counters", _allan, lambda host: bool(host.allan)),
}  # fmt: skip
CLOCK_CHARTS = tuple(_CHARTS)


def has_clock_chart(name: str, hosts: Sequence[ClockDrawing]) -> bool:
    """Whether there is anything to draw."""
    return any(map(_CHARTS[name][2], hosts))


def clock_chart(name: str, hosts: Sequence[ClockDrawing]) -> tuple[str, Chart]:
    """Its title on the page and what it shows."""
    title, make, _ = _CHARTS[name]
    return title, make(hosts)
