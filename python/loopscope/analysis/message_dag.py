"""The messages of a branching path: what became of each, and what each end was made of.

What an end was made of is followed back through every event on the way. Where several messages of
an event went into one end, by a window or over several branches, the oldest stands for them: the
age of data is that of the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.fan_in import Link, by_number, latest, tied, window
from loopscope.analysis.keys import PLAIN, Keys, read_graph_keys
from loopscope.analysis.maximum_error import (
    COUNTER,
    NO_COUNTER,
    maximum_errors,
    nearest,
    on_one_host,
)
from loopscope.analysis.messages import (
    Messages,
    Stamps,
    by_host,
    counters,
    host_codes,
    joined,
    stamps_at,
)
from loopscope.analysis.occurrences import NOWHERE, Occurrences, read_occurrences
from loopscope.experiment import MessagePath

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.occurrences import Places
    from loopscope.experiment import PathEdge
    from loopscope.timeline import Run

    Mask = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
"""The place of a use that did not happen, or of a message that there was not."""


class Fate(IntEnum):
    """Fate of a message. Of one that went several ways the best counts: the greatest."""

    LOST = 0
    """Never seen at the event after it."""
    UNUSED = 1
    """Arrived, and there was no later use."""
    SUPERSEDED = 2
    """Arrived, and a newer one was used before it ever was."""
    UNDECIDED = 3
    """The clock leaves open whether it was used, or whether a newer one was."""
    USED = 4


class Pair(NamedTuple):
    """A message that went over an edge, and the one of the edge's end that was made of it."""

    edge: int
    start: int
    end: int


@dataclass(frozen=True)
class Uses:
    """The fate of each message of one event on the way to another, in order of time."""

    fate: npt.NDArray[np.int8]
    first: Places
    """The place of its first use at the other event, `NEVER` if not surely used."""
    perhaps: Places
    """The earliest that its first use may have been."""


@dataclass(frozen=True)
class Origins:
    """For each message of one event: the messages of an earlier event that it was made of."""

    oldest: Places
    """The place of the oldest there; `NEVER` where there was none and where it is not known."""
    undecided: Mask
    """Whether the clock leaves open what it was made of."""

    def through(self, link: Link) -> Origins:
        """The origins' own origins through a link, of one message each at most."""
        there = np.flatnonzero(self.oldest != NEVER)
        at = self.oldest[there]
        oldest = np.full(len(self.oldest), NEVER)
        open_ = link.undecided[at]
        oldest[there] = np.where(link.sure.empty[at] | open_, NEVER, link.sure.start[at])
        undecided = self.undecided.copy()
        undecided[there] |= open_
        return Origins(oldest, undecided)


class RepeatDag:
    """One repeat's messages, by event, and links, by edge."""

    def __init__(
        self,
        path: MessagePath,
        messages: Sequence[Occurrences],
        counters: npt.NDArray[np.void],
    ) -> None:
        """`counters` by the code of a host."""
        self.path = path
        self.messages = messages
        self.counters = counters
        self.links = [self._link(edge) for edge in path.edges]
        sources = {source for source, _ in path.ends}
        begins = [int(messages[each].ts[0]) for each in sources if len(messages[each])]
        self.begin = min(begins, default=0)
        """When the first message set out."""

    def kept(self, event: int) -> slice:
        """The messages of an event that are in statistics: those after the warm-up."""
        first = self.begin + self.path.trim_ns if self.path.trim_ns else None
        ts = self.messages[event].ts
        return slice(0 if first is None else int(np.searchsorted(ts, first)), len(ts))

    def uses(self, event: int, end: int) -> Uses:
        """Fates, as far as a later event, of the messages of an event that leads to it."""
        return self.all_uses(event, end)[event]

    def all_uses(self, event: int, end: int) -> dict[int, Uses]:
        """`uses` of the later event itself and of all from one on that lead to it."""
        way = self.path.before(end) | {end}
        done = len(self.messages[end])
        here = np.arange(done)
        found = {end: Uses(np.full(done, Fate.USED, np.int8), here, here)}
        for start in sorted(way - {end}, reverse=True):
            if start < event:
                break
            size = len(self.messages[start])
            uses = Uses(
                np.full(size, Fate.LOST, np.int8), np.full(size, NEVER), np.full(size, NEVER)
            )
            for number, edge in enumerate(self.path.edges):
                if edge.start == start and edge.end in found:
                    uses = _better(uses, self._over(number, edge, found[edge.end]))
            found[start] = uses
        return found

    def _over(self, number: int, edge: PathEdge, later: Uses) -> Uses:
        """Fates of an edge's messages, from the fates of those that used them."""
        link, size = self.links[number], len(self.messages[edge.start])
        none = -1
        sure = link.sure.onto(later.fate, size, np.maximum, none)
        perhaps = link.possible.onto(later.fate, size, np.maximum, none)
        used, possible = np.flatnonzero(sure > none), np.flatnonzero(perhaps > none)
        fate = np.full(size, Fate.UNUSED, np.int8)
        if edge.use == "key":
            fate[:] = Fate.LOST
        else:
            # A message is superseded if it surely came before one that surely was used.
            input = self.messages[edge.start]
            earlier, later_ = tied(input, self._nearest(input))
            ends = [later_[each[-1]] for each in (used, possible) if len(each)]
            fate[: max(ends, default=0)] = Fate.UNDECIDED
            fate[: earlier[used[-1]] if len(used) else 0] = Fate.SUPERSEDED
            fate[possible] = Fate.UNDECIDED
        fate[used] = sure[used]
        # What surely went where it got lost may also have gone where it did not.
        fate = np.maximum(fate, np.minimum(perhaps, Fate.UNDECIDED) * (perhaps >= Fate.UNDECIDED))
        return Uses(
            fate.astype(np.int8),
            link.sure.onto(later.first, size, np.minimum, NEVER),
            link.possible.onto(later.perhaps, size, np.minimum, NEVER),
        )

    def all_origins(self, end: int) -> dict[int, Origins]:
        """Origins of an event's messages at every event that leads to it."""
        found: dict[int, Origins] = {}
        # Where each has one message at most, the next event's tells it.
        size = len(self.messages[end])
        single = {end: Origins(np.arange(size), np.zeros(size, np.bool_))}
        way = self.path.before(end)
        for event in sorted(way, reverse=True):
            onward = [
                (link, edge.end)
                for link, edge in zip(self.links, self.path.edges, strict=True)
                if edge.start == event and edge.end in way | {end}
            ]
            if len(onward) == 1 and onward[0][1] in single and onward[0][0].single:
                link, later = onward[0]
                found[event] = single[event] = single[later].through(link)
            else:
                found[event] = self.origins(event, end)
        return found

    def origins(self, event: int, end: int) -> Origins:
        """Origins of an event's messages at one event that leads to it."""
        size = len(self.messages[event])
        found = {event: Origins(np.arange(size), np.zeros(size, np.bool_))}
        for later in range(event + 1, end + 1):
            size = len(self.messages[later])
            oldest, undecided = np.full(size, NEVER), np.zeros(size, np.bool_)
            for link, edge in zip(self.links, self.path.edges, strict=True):
                if edge.end == later and edge.start in found:
                    before = found[edge.start]
                    reached = link.sure.over(before.oldest, np.minimum, NEVER)
                    doubt = link.sure.over(before.undecided.view(np.int8), np.maximum, 0)
                    oldest = np.minimum(oldest, reached)
                    undecided |= link.undecided | doubt.view(np.bool_)
            if any(edge.end == later and edge.start in found for edge in self.path.edges):
                found[later] = Origins(np.where(undecided, NEVER, oldest), undecided)
        return found[end]

    def width(
        self, first: int, start: Places, last: int, end: Places, length: Nanoseconds
    ) -> Nanoseconds:
        """Maximum errors of the times between messages of two events."""
        a, b = self.messages[first], self.messages[last]
        host = a.host[start]
        return maximum_errors(
            length, a.err[start] + b.err[end], self.counters[host], host == b.host[end]
        )

    def hop(self, number: int, end: Places) -> tuple[Nanoseconds, Nanoseconds, Mask]:
        """Over an edge, of messages of its end: time, maximum error, and whether there is one."""
        edge, link = self.path.edges[number], self.links[number]
        there = ~link.sure.empty[end] & ~link.undecided[end]
        start, stop = link.sure.start[end[there]], end[there]
        length = np.zeros(len(there), np.int64)
        width = np.zeros(len(there), np.int64)
        length[there] = self.messages[edge.end].ts[stop] - self.messages[edge.start].ts[start]
        width[there] = self.width(edge.start, start, edge.end, stop, length[there])
        return length, width, there

    def pairs(self, number: int) -> tuple[Places, Places]:
        """Over an edge, each message that surely went into one of its end, and that one."""
        spans = self.links[number].sure
        width = np.maximum(spans.stop - spans.start, 0)
        within = np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width)
        return np.repeat(spans.start, width) + within, np.repeat(np.arange(len(width)), width)

    def ways(self, event: int, places: Sequence[int], ends: Iterable[int]) -> list[list[Pair]]:
        """The edges that some messages of an event went over, to their first use at `ends`.

        `ends` are events. Of a message that was not used there, the edges as far as it came.
        """
        found: list[set[Pair]] = [set() for _ in places]
        wanted = {each for end in ends for each in self.path.between(event, end)} - {event}
        for end in sorted(wanted, reverse=True):
            uses = self.all_uses(event, end)
            for pairs, place in zip(found, places, strict=True):
                if not any(self.path.edges[each.edge].end == end for each in pairs):
                    pairs |= self._way(event, place, uses)
        return [sorted(pairs) for pairs in found]

    def _way(self, event: int, place: int, uses: Mapping[int, Uses]) -> set[Pair]:
        """Over which edges a message came to its first use at the event that `uses` lead to."""
        use = uses[event].first[place]
        pairs: set[Pair] = set()
        waiting = [(event, place)] if use != NEVER else []
        while waiting:
            here, place = waiting.pop()
            for number, edge in enumerate(self.path.edges):
                if edge.start == here and edge.end in uses:
                    spans = self.links[number].sure
                    made = np.flatnonzero((spans.start <= place) & (place < spans.stop))
                    made = made[uses[edge.end].first[made] == use]
                    if len(made) and (pair := Pair(number, place, int(made[0]))) not in pairs:
                        pairs.add(pair)
                        waiting.append((edge.end, pair.end))
        return pairs

    def _link(self, edge: PathEdge) -> Link:
        used, input = self.messages[edge.end], self.messages[edge.start]
        if edge.field is not None:
            own = edge.field == self.path.keys[edge.end]
            return by_number(used, None if own else edge.field, input)
        order = self._nearest(used)
        if edge.window_ns is None:
            return latest(used, input, order, self._nearest(input))
        wander = on_one_host(edge.window_ns, self.counters[used.host])
        return window(used, input, edge.window_ns, order, wander)

    def _nearest(self, messages: Occurrences) -> npt.NDArray[np.float64]:
        return nearest(self.counters[messages.host])


class MessageDag:
    """The messages of all repeats."""

    def __init__(
        self,
        path: MessagePath,
        repeats: Mapping[int, RepeatDag],
        hosts: Mapping[str, int],
        counters: Mapping[tuple[int, str], tuple[float, float]],
        keys: Sequence[Keys],
    ) -> None:
        """`hosts` and `counters` as for `Messages`; `keys` by event."""
        self.path = path
        self.repeats = repeats
        self._keys = keys
        self._clocks = (hosts, counters)

    def along(self, way: Sequence[int]) -> Messages:
        """The messages of the first of some events with their stamps at all of them.

        Each event leads to the next ones; the stamps are of the first message there that was made
        of each.
        """
        first = way[0]
        stamps = [
            [_first_made(graph, first, event) for graph in self.repeats.values()] for event in way
        ]
        events = tuple(self.path.events[event] for event in way)
        key = self.path.keys[first] or "id"
        ids = [each.messages[first].id[each.kept(first)] for each in self.repeats.values()]
        repeats = [
            np.full(len(id), repeat, np.int32) for repeat, id in zip(self.repeats, ids, strict=True)
        ]
        return Messages(
            MessagePath(self.path.name, key, events),
            np.concatenate(repeats),
            np.concatenate(ids),
            [joined(each) for each in stamps],
            *self._clocks,
            keys=self._keys[first],
        )

    def keys_at(self, event: int) -> Keys:
        """Keys for which the numbers of the messages at an event stand."""
        return self._keys[event]

    def any_at(self, event: int) -> bool:
        """Whether one was seen there."""
        return any(len(each.messages[event]) for each in self.repeats.values())

    def chooses(self, number: int) -> bool:
        """Whether a message that goes over an edge may be used several times there.

        Or others may be used instead. Where a new number was never given twice to one message it is
        not.
        """
        links = (each.links[number] for each in self.repeats.values())
        return self.path.edges[number].use != "key" or any(link.repeated for link in links)

    def problems(self) -> Iterator[str]:
        for number, edge in enumerate(self.path.edges):
            first, last = self.path.events[edge.start], self.path.events[edge.end]
            strangers = sum(
                int(each.links[number].strangers.sum()) for each in self.repeats.values()
            )
            if strangers:
                yield (
                    f"path {self.path.name}: {strangers} messages of {last} are of messages that "
                    f"were not seen at {first}"
                )
        for event, key in enumerate(self.path.keys):
            again = sum(
                int((each.messages[event].times > 1).sum()) for each in self.repeats.values()
            )
            if again and event not in {edge.end for edge in self.path.edges}:
                total = sum(len(each.messages[event]) for each in self.repeats.values())
                yield (
                    f"path {self.path.name}: {again} of {total} values of {key} occur more than "
                    f"once at {self.path.events[event]}; the first occurrence counts"
                )


def read_graph(
    run: Run, path: MessagePath, only: int | None = None
) -> tuple[MessageDag, list[str]]:
    """The messages of a branching path, of all repeats or of one, and what is wrong with them.

    Raises `RunError` where an event does not have its key or a field that holds a number.
    """
    hosts, of_host = host_codes(run), counters(run)
    by_repeat = by_host(of_host, hosts, max(run.repeats), COUNTER, NO_COUNTER)
    keys = read_graph_keys(run, path)
    wanted: list[dict[str, Keys]] = [{} for _ in path.events]
    for edge in path.edges:
        if edge.field is not None and edge.field != path.keys[edge.end]:
            wanted[edge.end][edge.field] = keys[edge.end, edge.field]
    numbers = [
        None if key is None else (key, keys[event, key]) for event, key in enumerate(path.keys)
    ]
    repeats, absent = {}, {}
    for repeat in run.repeats if only is None else (only,):
        messages = []
        for event, key, fields in zip(path.events, numbers, wanted, strict=True):
            found = read_occurrences(run, repeat, event, key, hosts, fields)
            if found is None:
                absent[event] = f"path {path.name}: no {event.entity} was recorded at all"
                found = Occurrences.none(fields)
            messages.append(found)
        repeats[repeat] = RepeatDag(path, messages, by_repeat[repeat])
    of_events = [PLAIN if key is None else key[1] for key in numbers]
    graph = MessageDag(path, repeats, hosts, of_host, of_events)
    return graph, [*absent.values(), *graph.problems()]


def _first_made(graph: RepeatDag, first: int, event: int) -> Stamps:
    place = graph.uses(first, event).first[graph.kept(first)]
    return stamps_at(graph.messages[event], np.where(place == NEVER, NOWHERE, place))


def _better(a: Uses, b: Uses) -> Uses:
    return Uses(
        np.maximum(a.fate, b.fate), np.minimum(a.first, b.first), np.minimum(a.perhaps, b.perhaps)
    )
