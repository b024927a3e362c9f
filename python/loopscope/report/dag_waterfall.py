"""Single messages of a branching path, as the waterfall shows them.

They have every edge that they went over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loopscope.analysis.message_dag import Fate
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.report.waterfall import Fall, Step, ranked, unknown

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.message_dag import RepeatDag

Ends: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True)
class _Sent:
    """The messages of one beginning, in the order of repeats and time."""

    source: int
    sinks: tuple[int, ...]
    repeat: npt.NDArray[np.int32]
    place: npt.NDArray[np.intp]
    """Place of each among those of its repeat."""
    id: npt.NDArray[np.int64]
    fate: npt.NDArray[np.int8]
    """The best of all ends."""
    length: npt.NDArray[np.int64]
    """To the last of the ends that it reached; 0 where it reached none."""
    err: npt.NDArray[np.int64]
    reached: npt.NDArray[np.int64]
    """Number of ends that were reached."""


def usual(
    graph: MeasuredDag, repeat: int | None = None, ends: Ends | None = None
) -> tuple[Fall, ...]:
    """The messages of the median, p99 and greatest time, of every repeat or of one.

    Nothing where none arrived. `ends` None: of all beginnings, to the last of the ends that
    each reached.
    """
    parts = list(_sent(graph, ends))
    part = np.concatenate([np.full(len(each.id), i) for i, each in enumerate(parts)])
    row = np.concatenate([np.arange(len(each.id)) for each in parts])
    length, repeats, id, fate = (
        np.concatenate([getattr(each, name) for each in parts])
        for name in ("length", "repeat", "id", "fate")
    )
    order = np.lexsort((part, id, repeats, length))
    there = fate == Fate.USED if repeat is None else (fate == Fate.USED) & (repeats == repeat)
    chosen = ranked(order[there[order]])
    found: dict[int, Fall] = {}
    for i, each in enumerate(parts):
        mine = [
            (place, what, int(row[at])) for place, (what, at) in enumerate(chosen) if part[at] == i
        ]
        falls = _falls(graph, each, [(what, at) for _, what, at in mine], len(parts) > 1)
        found |= dict(zip((place for place, *_ in mine), falls, strict=True))
    return tuple(found[place] for place in sorted(found))


def named(
    graph: MeasuredDag, key: str, repeat: int | None, ends: Ends | None = None
) -> tuple[Fall, ...]:
    """The message with this key, of every beginning, of every repeat or of one.

    Raises `FigureError`.
    """
    parts = list(_sent(graph, ends))
    found: list[Fall] = []
    for each in parts:
        here = np.isin(each.id, graph.messages.keys_at(each.source).numbers_of(key))
        if repeat is not None:
            here &= each.repeat == repeat
        rows = [("", int(at)) for at in np.flatnonzero(here)]
        found += _falls(graph, each, rows, len(parts) > 1)
    if not found:
        known = [(each.id, graph.messages.keys_at(each.source)) for each in parts]
        raise unknown(graph.messages.path, known, key, repeat)
    return tuple(found)


def _sent(graph: MeasuredDag, ends: Ends | None) -> Iterable[_Sent]:
    path = graph.messages.path
    wanted = path.ends if ends is None else [ends]
    for source in dict.fromkeys(first for first, _ in wanted):
        sinks = tuple(last for first, last in wanted if first == source)
        flows = [graph.part((source, sink)) for sink in sinks]
        sent = flows[0].sent
        used = np.array([flow.sent.fate == Fate.USED for flow in flows])
        lengths = np.where(used, [flow.sent.length for flow in flows], -UNKNOWN_NS)
        last = lengths.argmax(axis=0)
        errs = np.array(
            [
                flow.sent.width if not flow.doubtful else np.full(len(sent.id), UNKNOWN_NS)
                for flow in flows
            ]
        )
        every = np.arange(len(sent.id))
        yield _Sent(
            source,
            sinks,
            sent.repeat,
            _places(graph, source, sent.repeat),
            sent.id,
            np.max([flow.sent.fate for flow in flows], axis=0),
            np.where(used.any(axis=0), lengths[last, every], 0),
            errs[last, every],
            used.sum(axis=0),
        )


def _places(graph: MeasuredDag, event: int, repeat: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    place = np.arange(len(repeat))
    for number, each in graph.messages.repeats.items():
        here = np.flatnonzero(repeat == number)
        place[here] = np.arange(len(here)) + each.kept(event).start
    return place


def _falls(
    graph: MeasuredDag, sent: _Sent, rows: Sequence[tuple[str, int]], several: bool
) -> list[Fall]:
    """The waterfalls of some rows of the messages; `several`: the path has several beginnings."""
    found: dict[int, Fall] = {}
    for number, each in graph.messages.repeats.items():
        here = [(i, what, row) for i, (what, row) in enumerate(rows) if sent.repeat[row] == number]
        places = [int(sent.place[row]) for *_, row in here]
        steps = _steps(each, sent.source, places, sent.sinks)
        for (i, what, row), place, of in zip(here, places, steps, strict=True):
            arrived = sent.fate[row] == Fate.USED
            reached = ""
            if sent.reached[row] < len(sent.sinks):
                reached = f"{sent.reached[row]} of {len(sent.sinks)} ends reached"
            err = int(sent.err[row])
            found[i] = Fall(
                what=what,
                repeat=number,
                id=graph.messages.keys_at(sent.source).shown(int(sent.id[row])),
                steps=of,
                total=int(sent.length[row]) if arrived else None,
                err=err if arrived and err < UNKNOWN_NS else None,
                fate=Fate(int(sent.fate[row])).name.lower(),
                of=str(each.path.events[sent.source]) if several else "",
                reached=reached,
                begin=int(each.messages[sent.source].ts[place]),
            )
    return [found[i] for i in range(len(rows))]


def _steps(
    graph: RepeatDag, source: int, places: Sequence[int], sinks: Iterable[int]
) -> list[tuple[Step, ...]]:
    path, found = graph.path, []
    for place, pairs in zip(places, graph.ways(source, places, sinks), strict=True):
        begin = int(graph.messages[source].ts[place])
        steps = []
        for each in pairs:
            edge = path.edges[each.edge]
            first, last = path.events[edge.start], path.events[edge.end]
            start = int(graph.messages[edge.start].ts[each.start])
            length = np.array([graph.messages[edge.end].ts[each.end] - start])
            [err] = graph.width(
                edge.start, np.array([each.start]), edge.end, np.array([each.end]), length
            ).tolist()
            steps.append(
                Step(
                    str(first),
                    str(last),
                    first.host != last.host,
                    start - begin,
                    int(length[0]),
                    None if err >= UNKNOWN_NS else err,
                )
            )
        found.append(tuple(steps))
    return found
