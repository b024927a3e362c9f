"""The way of channels' items to readers on other hosts, from the events of each item.

An item is put at home, the home's service sends it, the service of the reader's host receives it,
and the reader gets it: `put`, `sent`, `received`, `got`, all with the item's time as their id.
Where a program of another host puts it, the way begins where the home's service has `received` it.
A channel has at most one item of a time, but a time may be recorded again: an item is sent again
after a connection was lost, and a channel that was removed may be made anew. So each event belongs
to the last one of the step before that is not later, as far as the clocks can tell.

What a reader got counts once, at its first `got`. An item without a record of a step lacks the
parts that begin or end there.

The home has a thread for each connection to a mirror, and its `sent` does not say to which host.
Where a channel goes to one other host, all are to that one. Where it goes to several, a thread's
host is told from items that a host received and that only this thread can have sent to it: a thread
serves one host. That needs every record. What stays open is counted, and lacks its `sent`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.bounded_statistics import Sample
from loopscope.analysis.channel_result import REMOTE_TIMES, RemoteItems, RemotePart
from loopscope.analysis.maximum_error import COUNTER, NO_COUNTER, maximum_errors
from loopscope.analysis.messages import counters
from loopscope.analysis.missing_events import UNACCOUNTED, missing_events
from loopscope.experiment import service
from loopscope.timeline.relation import literal

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.experiment import Channel
    from loopscope.timeline import Run

    Places = npt.NDArray[np.intp]
    """Indexes of events, `NONE` where there is none."""

NONE = -1
_Reader = tuple[str, str, int, int]
"""Host, component, process and thread."""
_Counters = Mapping[tuple[int, str], tuple[float, float]]


def read_remote_items(run: Run, channels: Sequence[Channel]) -> tuple[RemoteItems, ...]:
    """A result for each reader on another host than its channel's home, in every repeat."""
    of_hosts = counters(run)
    return tuple(
        result
        for channel in channels
        if f"{channel.name}.got" in run.tables
        for repeat in run.repeats
        for result in _of_repeat(run, channel, repeat, of_hosts)
    )


@dataclass(frozen=True)
class _Events:
    """Events of one kind on one host, in the order of time."""

    id: npt.NDArray[np.int64]
    ts: Nanoseconds
    err: Nanoseconds

    def __len__(self) -> int:
        return len(self.id)

    def at(self, places: Any) -> _Events:
        return _Events(self.id[places], self.ts[places], self.err[places])

    def last_before(self, id: npt.NDArray[np.int64], latest: Nanoseconds, apart: bool) -> Places:
        """The last of these events of each id that is not later than `latest`.

        `apart`: by its earliest possible instant.
        """
        earliest = self.ts - self.err if apart else self.ts
        n = len(self)
        every_id, every_at = np.concatenate([self.id, id]), np.concatenate([earliest, latest])
        # These events come before what asks for the same instant.
        asks = np.arange(len(every_id)) >= n
        order = np.lexsort((asks, every_at, every_id))
        place = np.where(order < n, np.arange(len(order)), NONE)
        last = order[np.maximum.accumulate(place)] if len(order) else order
        found = np.full(len(every_id), NONE, np.intp)
        found[order] = np.where((last < n) & (every_id[last] == every_id[order]), last, NONE)
        return found[n:]


def _of_repeat(
    run: Run, channel: Channel, repeat: int, of_hosts: _Counters
) -> Iterator[RemoteItems]:
    home, name = channel.home, channel.name
    readers = dict(_readers(run, channel, repeat))
    if not readers:
        return
    put = _put_at_home(run, channel, repeat)
    sent = _sent(run, channel, repeat)
    received = {
        host: _events(run, f"{name}.received", repeat, _of_service(host))
        for host in dict.fromkeys(host for host, *_ in readers)
    }
    senders = _Senders(run, channel, repeat, sent, received)
    for reader, got in readers.items():
        host, component, pid, tid = reader
        apart = {each: of_hosts.get((repeat, each), NO_COUNTER) for each in (home, host)}
        steps = _Steps(put, senders, received[host], apart[home], apart[host])
        yield RemoteItems(
            repeat=repeat,
            channel=name,
            home=home,
            host=host,
            component=component,
            pid=pid,
            tid=tid,
            missing=_missing(run, component, f"{name}:got"),
            **steps.parts(host, got),
        )


def _of_service(host: str) -> str:
    return f"host = {literal(host)} AND process = {literal(service(host))}"


def _events(run: Run, table: str, repeat: int, where: str) -> _Events:
    """The events of a table that are `where`; none where there is no such table."""
    if table not in run.tables:
        none = np.zeros(0, np.int64)
        return _Events(none, none, none)
    rows = run.relation(table).filter(f"repeat = {repeat} AND {where}")
    found = rows.project("id, ts, err_ns").order("ts").to_arrow_table()
    return _Events(*(found[each].to_numpy() for each in ("id", "ts", "err_ns")))


def _put_at_home(run: Run, channel: Channel, repeat: int) -> _Events:
    """When each item was put at home: by a program there, or by the service for one elsewhere."""
    of_programs = f"host = {literal(channel.home)}"
    put = _events(run, f"{channel.name}.put", repeat, of_programs)
    came = _events(run, f"{channel.name}.received", repeat, _of_service(channel.home))
    every = _joined([put, came])
    return every.at(np.argsort(every.ts, kind="stable"))


def _sent(run: Run, channel: Channel, repeat: int) -> dict[int, _Events]:
    """What each thread of the home's service sent."""
    table = f"{channel.name}.sent"
    if table not in run.tables:
        return {}
    rows = run.relation(table).filter(f"repeat = {repeat} AND {_of_service(channel.home)}")
    threads = rows.aggregate("tid").order("tid").fetchall()
    of_service = _of_service(channel.home)
    return {tid: _events(run, table, repeat, f"{of_service} AND tid = {tid}") for (tid,) in threads}


def _readers(run: Run, channel: Channel, repeat: int) -> Iterator[tuple[_Reader, _Events]]:
    """What each thread of another host than the home got."""
    columns = "host::VARCHAR AS host, process::VARCHAR AS process, pid, tid"
    rows = run.relation(f"{channel.name}.got").filter(
        f"repeat = {repeat} AND host <> {literal(channel.home)}"
    )
    of_threads = rows.project(f"{columns}, id, ts, err_ns")
    reader = "host, process, pid, tid"
    counts = of_threads.aggregate(f"{reader}, count(*)", reader).order(reader).fetchall()
    if not counts:
        return
    table = of_threads.order(f"{reader}, ts").to_arrow_table()
    every = _Events(*(table[each].to_numpy() for each in ("id", "ts", "err_ns")))
    ends = np.cumsum([count for *_, count in counts])
    for (host, process, pid, tid, count), end in zip(counts, ends.tolist(), strict=True):
        yield (host, process, pid, tid), every.at(slice(end - count, end))


class _Senders:
    """What the threads of a home's service sent to which host."""

    def __init__(
        self,
        run: Run,
        channel: Channel,
        repeat: int,
        sent: Mapping[int, _Events],
        received: Mapping[str, _Events],
    ) -> None:
        everywhere = received.keys() | _mirrors(run, channel, repeat)
        self.sent = _joined(list(sent.values()))
        self._thread = np.repeat(np.arange(len(sent)), [len(each) for each in sent.values()])
        self._threads = len(sent)
        self._open = False
        self._of_host: dict[str, set[int]] = {}
        if len(everywhere) == 1:
            self._of_host = {host: set(range(len(sent))) for host in everywhere}
        elif _complete(run, channel, everywhere):
            others = {
                host: _events(run, f"{channel.name}.received", repeat, _of_service(host))
                for host in everywhere - received.keys()
            }
            self._tell({**received, **others}, list(sent.values()))
        else:
            self._open = True

    def _tell(self, received: Mapping[str, _Events], threads: Sequence[_Events]) -> None:
        """Finds the threads of each host: those that alone can have sent it some item."""
        candidates = {
            host: np.array(
                [each.last_before(got.id, got.ts + got.err, True) != NONE for each in threads]
            ).reshape(len(threads), len(got))
            for host, got in received.items()
        }
        found: dict[str, set[int]] = {host: set() for host in received}
        changed = True
        while changed:
            changed = False
            for host, possible in candidates.items():
                others = {each for name, of in found.items() if name != host for each in of}
                mine = possible.copy()
                mine[sorted(others)] = False
                alone = mine[:, mine.sum(axis=0) == 1].any(axis=1)
                new = set(np.flatnonzero(alone).tolist()) - found[host]
                found[host] |= new
                changed |= bool(new)
        self._of_host = found

    def of_host(self, host: str, anchor: _Events) -> tuple[Places, npt.NDArray[np.bool_]]:
        """The sending of each item that reached a host, and for which ones that is open."""
        if self._open:
            every = self.sent.last_before(anchor.id, anchor.ts + anchor.err, True)
            return np.full(len(anchor), NONE, np.intp), every != NONE
        mine = self._of_host.get(host, set())
        others = {each for name, of in self._of_host.items() if name != host for each in of}
        is_mine = np.isin(self._thread, sorted(mine))
        is_open = ~is_mine & ~np.isin(self._thread, sorted(others))
        if mine and len(self._of_host) == self._threads:
            is_open[:] = False  # each host has one
        places, latest = np.flatnonzero(is_mine), anchor.ts + anchor.err
        last = self.sent.at(places).last_before(anchor.id, latest, True)
        doubt = self.sent.at(is_open).last_before(anchor.id, latest, True) != NONE
        found = np.full(len(anchor), NONE, np.intp)
        known = (last != NONE) & ~doubt
        found[known] = places[last[known]]
        return found, doubt


def _joined(events: Sequence[_Events]) -> _Events:
    none = np.zeros(0, np.int64)
    columns = ([getattr(each, name) for each in events] for name in ("id", "ts", "err"))
    return _Events(*(np.concatenate([none, *each]) for each in columns))


def _mirrors(run: Run, channel: Channel, repeat: int) -> set[str]:
    """The other hosts whose services received items."""
    table = f"{channel.name}.received"
    if table not in run.tables:
        return set()
    rows = run.relation(table).filter(f"repeat = {repeat} AND host <> {literal(channel.home)}")
    return {host for (host,) in rows.aggregate("host::VARCHAR").fetchall()}


def _complete(run: Run, channel: Channel, hosts: set[str]) -> bool:
    """Whether no record of a sending or of its receiving is missing."""
    entities = [(service(channel.home), f"{channel.name}:sent")]
    entities += [(service(host), f"{channel.name}:received") for host in sorted(hosts)]
    return all(missing_events(run, *each) == 0 for each in entities)


def _missing(run: Run, component: str, entity: str) -> int | None:
    missing = missing_events(run, component, entity)
    return None if missing == UNACCOUNTED else missing


@dataclass(frozen=True)
class _Steps:
    """The events of a channel's items on their way to one host."""

    put: _Events
    senders: _Senders
    received: _Events
    home_counter: tuple[float, float]
    """`COUNTER` of the home."""
    counter: tuple[float, float]
    """That of the other host."""

    def parts(self, host: str, got: _Events) -> dict[str, Any]:
        """The fields of a result that are of one reader."""
        came = self.received.last_before(got.id, got.ts + _apart(self.counter), False)
        first = _first(got.id, came)
        got, came = got.at(first), came[first]
        # Where nobody knows when it was received, it was before it was got.
        anchor = _chosen(self.received, came, got)
        sent, doubt = self.senders.of_host(host, anchor)
        put = self._put(sent, anchor)
        put_, sent_, came_ = (
            _Step(events, places)
            for events, places in (
                (self.put, put), (self.senders.sent, sent), (self.received, came)
            )
        )  # fmt: skip
        got_ = _Step(got, np.arange(len(got)))
        return {
            "items": len(got),
            "without_put": int((put == NONE).sum()),
            "without_sent": int(((sent == NONE) & ~doubt).sum()),
            "undecided_sent": int(doubt.sum()),
            "without_received": int((came == NONE).sum()),
            "whole": put_.until(got_, None),
            "put_to_sent": put_.until(sent_, self.home_counter),
            "sent_to_received": sent_.until(came_, None),
            "received_to_got": came_.until(got_, self.counter),
        }

    def _put(self, sent: Places, anchor: _Events) -> Places:
        """The put of each item: before its sending where that is known."""
        known = sent != NONE
        found = np.empty(len(sent), np.intp)
        at = self.senders.sent.at(sent[known])
        latest = at.ts + _apart(self.home_counter)
        found[known] = self.put.last_before(at.id, latest, False)
        others = anchor.at(~known)
        found[~known] = self.put.last_before(others.id, others.ts + others.err, True)
        return found


@dataclass(frozen=True)
class _Step:
    """An event of each item, where it is known."""

    events: _Events
    places: Places

    def until(self, later: _Step, counter: tuple[float, float] | None) -> RemotePart:
        """The times to a later step; `counter` is that of the host where both are, else None."""
        both = (self.places != NONE) & (later.places != NONE)
        start, end = self.events.at(self.places[both]), later.events.at(later.places[both])
        length = end.ts - start.ts
        claims = np.full(len(length), np.array(counter or NO_COUNTER, COUNTER))
        one_host = np.full(len(length), counter is not None)
        err = maximum_errors(length, start.err + end.err, claims, one_host)
        sample = Sample(length, err)
        brackets = {name: sample.bracket(name) for name in REMOTE_TIMES}
        times = {name: None if each is None else int(each.value) for name, each in brackets.items()}
        return RemotePart(items=len(length), times=times, err_ns=sample.largest_error)


def _apart(counter: tuple[float, float]) -> int:
    """By how much stamps of two processors of a host may be in the wrong order, ns."""
    return int(counter[1]) + 1


def _first(id: npt.NDArray[np.int64], came: Places) -> Places:
    """The places of the first of each id and receipt, in order."""
    order = np.lexsort((np.arange(len(id)), came, id))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(id[order]) != 0) | (np.diff(came[order]) != 0)
    return np.sort(order[new])


def _chosen(events: _Events, places: Places, others: _Events) -> _Events:
    """The events at some places, and where there is none the others."""
    there = places != NONE
    columns = []
    for name in ("id", "ts", "err"):
        column = getattr(others, name).copy()
        column[there] = getattr(events, name)[places[there]]
        columns.append(column)
    return _Events(*columns)
