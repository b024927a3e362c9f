"""A branching path in a Perfetto trace.

It has slices of messages and of edges, and flows from each message to those that were made of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.flow import flow_of_repeat
from loopscope.analysis.keys import shown
from loopscope.analysis.message_dag import NEVER, Fate
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.experiment.measures import fields_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.keys import Keys
    from loopscope.analysis.message_dag import RepeatDag

    Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Slice:
    """A slice on a track of this name, or on a further one where slices overlap.

    Slices come in the order of their begins.
    """

    track: str
    name: str
    begin: int
    end: int
    fields: Mapping[str, Any]


def slices(graph: RepeatDag, repeat: int, keys: Sequence[Keys]) -> Iterator[Slice]:
    """Slices of messages and of edges.

    One for each message of every beginning, until its last first use; then one for each message and
    edge over which it was used, until its first use. `keys` are by event.
    """
    for source in graph.path.sources:
        yield from _messages(graph, repeat, source, keys[source])
    for edge in graph.path.edges:
        first, last = (str(graph.path.events[end]) for end in (edge.start, edge.end))
        track = f"{graph.path.name}: {first} → {last}"
        sent, _ = flow_of_repeat(graph, repeat, (edge.start, edge.end))
        there = sent.fate == Fate.USED
        columns = (sent.id, sent.ts, sent.length, sent.width)
        for id, begin, length, err in zip(*(of[there].tolist() for of in columns), strict=True):
            end = begin + max(0, length)
            fields = {"id": keys[edge.start].shown(id), "err_ns": _known(err)}
            yield Slice(track, f"→ {last}", begin, end, fields)


def _messages(graph: RepeatDag, repeat: int, source: int, keys: Keys) -> Iterator[Slice]:
    path, kept = graph.path, graph.kept(source)
    messages = graph.messages[source]
    begin, end = messages.ts[kept], messages.ts[kept].copy()
    width = np.zeros(len(begin), np.int64)
    for event in range(source + 1, len(path.events)):
        if source in path.before(event):
            use = graph.uses(source, event).first[kept]
            there = np.flatnonzero(use != NEVER)
            there = there[graph.messages[event].ts[use[there]] > end[there]]
            end[there] = graph.messages[event].ts[use[there]]
            length = end[there] - begin[there]
            width[there] = graph.width(source, there + kept.start, event, use[there], length)
    sinks = [last for first, last in path.ends if first == source]
    fates = np.array(
        [flow_of_repeat(graph, repeat, (source, sink))[0].fate for sink in sinks], np.int8
    )
    whole = path.name if len(path.sources) == 1 else f"{path.name}: {path.events[source]}"
    best = fates.max(axis=0)
    for i, id in enumerate(map(keys.shown, messages.id[kept].tolist())):
        became = {
            str(path.events[sink]): Fate(fate).name.lower()
            for sink, fate in zip(sinks, fates[:, i].tolist(), strict=True)
        }
        fate = "" if best[i] == Fate.USED else f" {Fate(int(best[i])).name.lower()}"
        fields = {"id": id, "err_ns": _known(int(width[i])), **became}
        yield Slice(whole, f"{path.name} {id}{fate}", int(begin[i]), int(end[i]), fields)


def _known(err: int) -> int | None:
    return None if err >= UNKNOWN_NS else err


class GraphFlows:
    """Ties each message's event to those of the messages that surely were made of it.

    There is a flow for each two, so that branches and joins have an arrow each.
    """

    def __init__(self, first: int, graph: RepeatDag, keys: Sequence[Keys]) -> None:
        """Flows are numbered from `first` on; `keys` by event."""
        path = graph.path
        self._at: dict[tuple[str, str], list[int]] = defaultdict(list)
        for event, each in enumerate(path.events):
            self._at[each.entity, each.component].append(event)
        self._keys = path.keys
        # A message's later occurrences are nothing's.
        self._places: list[dict[int | str, int]] = [
            {} if key is None else {keys_.shown(id): i for i, id in enumerate(each.id.tolist())}
            for key, keys_, each in zip(path.keys, keys, graph.messages, strict=True)
        ]
        self._seen = [0] * len(path.events)
        self._leaving: list[list[_Sorted]] = [[] for _ in path.events]
        self._coming: list[list[_Sorted]] = [[] for _ in path.events]
        for number, edge in enumerate(path.edges):
            start, end = graph.pairs(number)
            flows = first + np.arange(len(start))
            first += len(start)
            self._leaving[edge.start].append(_Sorted(flows, start, len(graph.messages[edge.start])))
            self._coming[edge.end].append(_Sorted(flows, end, len(graph.messages[edge.end])))

    def of(self, entity: str, process: str, row: Mapping[str, Any]) -> tuple[list[int], list[int]]:
        """The flows that begin at an event, and those that end there; called in order of time."""
        leaves: list[int] = []
        ends: list[int] = []
        for event in self._at.get((entity, process), ()):
            place = self._place(event, row)
            if place is not None:
                leaves += [flow for each in self._leaving[event] for flow in each.of(place)]
                ends += [flow for each in self._coming[event] for flow in each.of(place)]
        return leaves, ends

    def _place(self, event: int, row: Mapping[str, Any]) -> int | None:
        key = self._keys[event]
        if key is not None:
            values = [row[field] for field in fields_of(key)]
            return None if None in values else self._places[event].pop(shown(values), None)
        self._seen[event] += 1
        return self._seen[event] - 1


class _Sorted:
    """Flows by the place of a message at one of their ends."""

    def __init__(self, flows: Integers, places: npt.NDArray[np.intp], size: int) -> None:
        order = np.argsort(places, kind="stable")
        self._flows = flows[order]
        self._starts = np.searchsorted(places[order], np.arange(size + 1))

    def of(self, place: int) -> list[int]:
        found: list[int] = self._flows[self._starts[place] : self._starts[place + 1]].tolist()
        return found
