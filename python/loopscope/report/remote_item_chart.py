"""The way of items to other hosts: the medians of its parts, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from loopscope.analysis.channel_result import REMOTE_TIMES, RemoteItems
from loopscope.analysis.quantity_text import UNKNOWN_NS, duration, maximum_error, number
from loopscope.analysis.results import Results
from loopscope.report.axis import Axis, unit_of
from loopscope.report.chart import Bars, Chart, Layer, Panel, Row
from loopscope.report.remote_item_rows import parts, reader
from loopscope.report.samples import FigureError
from loopscope.report.waterfall import KINDS, WHISKERS

_MOST = 12
"""Readers that are shown."""


def has_remote_items(results: Results) -> bool:
    """Whether there is a reader on another host of which each part of the way is known."""
    return bool(_shown(results, None))


def chart(results: Results, repeat: int | None = None) -> Chart:
    """A panel for each reader, of every repeat or of one. Raises `FigureError`."""
    remote = _shown(results, repeat)
    if not remote:
        raise FigureError("no reader on another host has items of which the whole way is known")
    shown = remote[:_MOST]
    alike = len({(each.home, each.host) for each in shown}) == 1
    panels = tuple(_panel(each, results, alike) for each in shown)
    beside = min(3, len(panels))
    lines = -(-len(panels) // beside)
    more = len(remote) - len(panels)
    caption = (
        "The medians of the parts of an item's way to a reader on another host. They are of each "
        "part by itself, so their sum is not the median of the whole, which is above. "
        f"{WHISKERS}"
    )
    if more:
        caption += f" {number(more)} more readers are in the table."
    return Chart(panels, caption=caption, rows=_rows(remote, results),
                 columns=(beside, beside, 1), inches=(0, 1.55), pixels=240 * lines,
                 legend="above")  # fmt: skip


def _shown(results: Results, repeat: int | None) -> list[RemoteItems]:
    remote = results.channels.remote_items if results.channels else ()
    return [
        each
        for each in remote
        if repeat in (None, each.repeat) and all(part.items for part in parts(each).values())
    ]


def _panel(of: RemoteItems, results: Results, named: bool) -> Panel:
    """``named``: whether the lanes have the names of the hosts, as all panels have the same."""
    home, host = (of.home, of.host) if named else ("home", "reader's host")
    lanes = (f"{home}: put → sent", "network: sent → received", f"{host}: received → got")
    begin, layers = 0, list[Layer]()
    ends = [0]
    for lane, part in enumerate(parts(of).values()):
        median = part.times["p50"] or 0
        start, begin = begin, begin + median
        ends.append(begin)
        between_hosts = part is of.sent_to_received
        _, label, colour = next(kind for kind in KINDS if kind[0] is between_hosts)
        err = UNKNOWN_NS if part.err_ns is None else part.err_ns
        layers.append(
            Bars(
                lanes=[lane],
                start=np.array([start], dtype=np.float64),
                length=np.array([median], dtype=np.float64),
                half_width=np.array([np.nan if err >= UNKNOWN_NS else err], dtype=np.float64),
                colour=colour,
                label=label,
                texts=[duration(median)],
                details=[f"{maximum_error(err)}, {number(part.items)} items"],
            )
        )
    low, high = min(ends), max(*ends, 1)
    scale, unit = unit_of(high)
    whole = of.whole.times["p50"]
    told = "" if whole is None else f", p50 {duration(whole)}"
    return Panel(
        Axis("time since the put", "ns", scale, unit, limits=(low, high + (high - low) / 25)),
        Axis("", "", 1, "", categories=lanes),
        tuple(layers),
        f"{reader(of, results)}: {number(of.items)} items{told}",
    )


def _rows(remote: Iterable[RemoteItems], results: Results) -> Iterable[Row]:
    """The lines of the CSV, the heading first."""
    times = [f"{name} (ns)" for name in REMOTE_TIMES]
    yield ("of", "repeat", "part", "items", *times, "clock error (ns)")
    for each in remote:
        for name, part in {"put → got": each.whole, **parts(each)}.items():
            numbers = [part.times[time] for time in REMOTE_TIMES] + [part.err_ns]
            told = ["" if each is None else each for each in numbers]
            yield (reader(each, results), each.repeat, name, part.items, *told)
