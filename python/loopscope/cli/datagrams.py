"""``loopscope why --datagrams``: the times of packets against those of the messages they carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopscope.cli.text_table import printable_lines, text_table
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from loopscope.analysis.datagrams import HopDatagrams, PathDatagrams, Times
    from loopscope.analysis.messages import Messages
    from loopscope.timeline import Run

_COUNTED = {
    "no_arrival": "packets left and are not known to have come",
    "no_departure": "packets came and are not known to have left",
    "ambiguous": "packets came and had left several times before",
    "left_again": "packets left again",
    "came_again": "packets came again",
}
"""Counts of a hop that a person sees where they are not 0."""


def lines_of(
    path: Path, point: str | None, as_json: bool, messages_of: Callable[[Run], Messages]
) -> Iterator[str]:
    """The lines for a run, or for all points of a sweep if none is chosen.

    ``messages_of``: the messages of the path at a point. Raises NothingRecordedError and RunError.
    """
    from loopscope.analysis.datagrams import datagrams
    from loopscope.timeline import described, open_run, points_of, read_manifest

    there = points_of(path)
    points = {each.name: each.params for each in described(path, read_manifest(path)).points}
    found: list[tuple[Mapping[str, Any], PathDatagrams]] = []
    without: list[tuple[str, str | None]] = []
    for name in (points or there) if point is None else [point]:
        params = points.get(name, {})
        run = open_run(path, name) if name in there or point is not None else None
        error = _error(run)
        if run is None or error is not None:
            without.append((name, error))
            if as_json:
                yield to_json({"point": name, "params": dict(params), "error": error})
            continue
        each = datagrams(run, messages_of(run))
        found.append((params, each))
        if as_json:
            document = {"point": name, "params": dict(params), **each.to_dict(), "error": None}
            yield to_json(document, ensure_ascii=False)
    if as_json:
        return
    hops = dict.fromkeys((hop.first, hop.last) for _, each in found for hop in each.hops)
    for place, ends in enumerate(hops):
        if place:
            yield ""
        yield from _of_hop(found, *ends)
    if found and not hops:
        yield f"{found[0][1].path} has no hop between two hosts"
    for name, why in without:
        yield from printable_lines(f"{name}: {why}")


def _error(run: Run | None) -> str | None:
    """Why a point has no results; None where it has."""
    if run is None:
        return "it was not run"
    if run.incomplete is None:
        return None
    return str(run.manifest.get("error") or f"it was {run.incomplete}")


def _of_hop(
    found: Sequence[tuple[Mapping[str, Any], PathDatagrams]], first: str, last: str
) -> Iterator[str]:
    """A table of a hop, with three rows for each point, and what was counted."""
    names = list(dict.fromkeys(name for params, _ in found for name in params))
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    hops = [
        (params, path, hop)
        for params, path in found
        for hop in path.hops
        if (hop.first, hop.last) == (first, last)
    ]
    for params, path, hop in hops:
        at = tuple(str(params.get(name, "")) for name in names)
        ratio = "" if hop.ratio is None else f"{hop.ratio:.3f}"
        rows.append((*at, "packet", *_cells(hop.packets), ratio))
        rows.append((*at, "message", *_cells(hop.messages), ""))
        rows.append((*at, path.path, *_cells(path.loop), ""))
        point = ", ".join(f"{name} = {params[name]}" for name in params)
        notes += [f"{point}: {note}" if point else note for note in _notes(hop)]
    yield from printable_lines(f"{first} → {last}")
    heads = (*names, "time of", "count", "mean", "", "deviation", "", "packet / message")
    right = (*(True for _ in names), False, *(True for _ in range(6)))
    yield from text_table(heads, right, rows)
    for note in notes:
        yield from printable_lines(note)


def _cells(times: Times) -> tuple[str, ...]:
    """The count, the mean and the deviation with their maximum errors."""
    from loopscope.analysis.quantity_text import UNKNOWN_NS, duration, maximum_error, number

    cells = [number(times.count)]
    for ns, err in (
        (times.mean_ns, times.mean_err_ns),
        (times.deviation_ns, times.deviation_err_ns),
    ):
        known = UNKNOWN_NS if err is None else err
        cells += ["", ""] if ns is None else [duration(ns), maximum_error(known)]
    return tuple(cells)


def _notes(hop: HopDatagrams) -> Iterator[str]:
    from loopscope.analysis.quantity_text import number

    if hop.packets_per_message is not None:
        yield f"{hop.packets_per_message:.4g} packets a message came"
    for name, text in _COUNTED.items():
        if count := getattr(hop, name):
            yield f"{number(count)} {text}"
    if lost := hop.sent - hop.received:
        yield f"{number(lost)} of {number(hop.sent)} messages were lost"
    for why, count in hop.not_followed.items():
        yield f"{number(count)} of {number(hop.received)} messages are left out: {why}"
