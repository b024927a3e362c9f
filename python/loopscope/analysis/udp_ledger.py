"""The way of a message's datagram, from the events of class ``udp``.

UDP has no numbers. A packet is known by its addresses and ports, its length, a hash of its first
bytes and, in IPv4, the header's identification (RFC 791, section 3.1), where that is not 0 (RFC
6864, section 4.1). Where several of a kernel's are the same by all of these, it is not known which
one a message was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.kernels import rows_of
from loopscope.analysis.ledger import (
    IN_QUEUE,
    Carried,
    Held,
    Packet,
    Packets,
    Rows,
    Traffic,
    coded,
    groups,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

QUEUED, OUT, IN, READY, READ = TABLES = tuple(
    f"kernel.datagram_{name}" for name in ("queued", "out", "in", "ready", "read")
)
"""Those without which nothing can be said."""
_DROPS = "kernel.packet_drop"
_PACKET = """
    tid, netns, err_ns, bytes, hashed, fragment_id, fragment_offset, fragments_follow,
    hash AS content, hash(source, target, length) AS flow, hash(source, target) AS ends,
    hash(regexp_replace(source, ':[0-9]+$', ''), regexp_replace(target, ':[0-9]+$', ''),
        fragment_id) AS whole,
    regexp_extract(target, '[0-9]+$')::INTEGER AS port
"""
_SOCKET = "tid, netns, socket"
_HEADER = 8
"""Bytes of UDP's own header."""
_SAME_NS = 10_000_000_000
"""Datagrams that are the same are taken for each other within this time."""


class Drop(NamedTuple):
    """A datagram that the kernel dropped."""

    at_sender: bool
    reason: str
    """Its name in the kernel, such as SOCKET_RCVBUFF."""
    function: str
    """The kernel's function that did it."""


class _Way(NamedTuple):
    """A datagram's way; see `Carried`."""

    datagram: dict[str, int]
    """Its event where it was given to the queue."""
    given: int
    sent: int
    by: int
    came: int
    ready: int
    netns: int
    """Where it came."""


class UdpLedger:
    """The datagrams of a kernel in one repeat."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the tables cannot be read. `recorded` says whether they exist."""
        self._texts: list[str] = []

        def grouped(
            table: str, columns: str, *keys: str, text: str | None = None
        ) -> dict[tuple[int, ...], Rows]:
            chosen = f"ts, {columns}" if text is None else f"ts, {columns}, {text} AS text"
            rows = rows_of(run, table, repeat, kernel, chosen)
            arrays = {
                name: rows[name].to_numpy().astype(np.int64)
                for name in rows.column_names
                if name != "text"
            }
            if text is not None:
                arrays["text"], self._texts = coded(rows["text"])
            ts = arrays.pop("ts")
            return {
                tuple(key): Rows(ts[at], {name: array[at] for name, array in arrays.items()})
                for key, at in groups([arrays[name] for name in keys])
            }

        self._sends = grouped(QUEUED, _PACKET, "tid")
        self._queued = grouped(QUEUED, _PACKET, "flow")
        self._singles: dict[int, set[tuple[int, int]]] = {}
        self._out = grouped(OUT, _PACKET, "flow")
        self._in = grouped(IN, _PACKET, "flow")
        self._out_of_whole = grouped(OUT, _PACKET, "whole")
        self._in_of_whole = grouped(IN, _PACKET, "whole")
        port = f"{_SOCKET}, regexp_extract(local, '[0-9]+$')::INTEGER AS port"
        self._ready = grouped(READY, port, "netns", "port", "socket")
        self._reads: dict[int, dict[int, Rows]] = {}
        for (tid, socket), reads in grouped(READ, _SOCKET, "tid", "socket").items():
            self._reads.setdefault(tid, {})[socket] = reads
        self._drops: dict[tuple[int, ...], Rows] = {}
        if _DROPS in run.tables:
            why = "reason || ' ' || function"
            self._drops = grouped(_DROPS, _PACKET, "flow", text=why)

    @staticmethod
    def recorded(run: Run) -> bool:
        """Whether a run has what it takes."""
        return set(TABLES) <= set(run.tables)

    def carried(
        self,
        sender: int,
        begin: int,
        until: int | None,
        there: UdpLedger,
        receiver: int,
        end: int,
        apart: int = 0,
        packets: bool = False,
    ) -> Carried | None:
        """The way of a message from one thread, after ``begin``, to another one, until ``end``.

        ``until``: when the sender sends the next message. ``there`` is the receiver's kernel, whose
        clock may be ``apart`` ns from the sender's. Of several datagrams the one counts that was
        sent last. ``packets``: with those of all of them, or of that one where the others are not
        known. None where it is not known.
        """
        for sent, given in self._datagrams(sender, begin, until, end + apart):
            arrival = next(there._arrivals(sent, given - apart, receiver, end), None)
            if arrival is None:
                continue
            way = self._way(sent, given, arrival, apart)
            if way is None:
                return None
            # A queue that holds nothing is passed in the sender's own call.
            waited = way.by != sent["tid"] and way.sent > given
            held = (Held(given, way.sent, IN_QUEUE),) if waited else ()
            listed: tuple[Packet, ...] = ()
            if packets:
                every = self.traffic(sender, begin, until, there, receiver, end, apart)
                listed = (every or self._traffic(way, there, apart)).listed()
            return Carried("UDP", given, way.sent, way.by, way.came, way.ready, held, listed)
        return None

    def traffic(
        self,
        sender: int,
        begin: int,
        until: int | None,
        there: UdpLedger,
        receiver: int,
        end: int,
        apart: int = 0,
    ) -> Traffic | None:
        """The packets of all datagrams of a message; see `carried`.

        Those of a datagram that did not come are among them, if one did that was sent from the same
        socket to the same address. None where one of the datagrams is not known.
        """
        found: list[tuple[int, Traffic]] = []
        for sent, given in self._datagrams(sender, begin, until, end + apart):
            arrival = next(there._arrivals(sent, given - apart, receiver, end), None)
            if arrival is None:
                since = given, end + apart
                left = _own(self._out, self._out_of_whole, sent, *since, sent["netns"])
                nothing = Packets(*(column[:0] for column in left))
                found.append((sent["ends"], Traffic(left, nothing)))
                continue
            way = self._way(sent, given, arrival, apart)
            if way is None:
                return None
            found.append((sent["ends"], self._traffic(way, there, apart)))
        came = {ends for ends, each in found if len(each.came.ts)}
        parts: list[Traffic] = []
        place = 0
        for ends, each in reversed(found):
            if ends in came:
                sides = [of._replace(first=of.first + place, end=of.end + place) for of in each]
                parts.append(Traffic(*sides))
                place = max(int(of.end.max(initial=place)) for of in sides)
        if not parts:
            return None
        return Traffic(*(Packets.joined(of) for of in zip(*parts, strict=True)))

    def _datagrams(
        self, sender: int, begin: int, until: int | None, end: int
    ) -> Iterator[tuple[dict[str, int], int]]:
        """What a thread gave to the queue in a time, each with when, the last first."""
        sends = self._sends.get((sender,))
        if sends is None:
            return
        for row in range(sends.until(until, end) - 1, sends.since(begin) - 1, -1):
            if not sends.columns["fragment_offset"][row]:
                yield sends.row(row), int(sends.ts[row])

    def _traffic(self, way: _Way, there: UdpLedger, apart: int) -> Traffic:
        """The packets of a datagram."""
        sent = way.datagram
        sides = (
            (self._out, self._out_of_whole, sent, way.given, way.sent, sent["netns"]),
            (there._in, there._in_of_whole, sent, way.given - apart, way.ready, way.netns),
        )
        return Traffic(*(_own(*side) for side in sides))

    def dropped(self, sender: int, begin: int, until: int | None, there: UdpLedger) -> Drop | None:
        """Where the kernels dropped a datagram that a thread sent after ``begin``.

        ``until`` and ``there``: see `carried`. Of several the last. None: none that is known.
        """
        sends = self._sends.get((sender,))
        if sends is None:
            return None
        last = (len(sends.ts) if until is None else sends.since(until)) - 1
        for row in range(last, sends.since(begin) - 1, -1):
            sent = sends.row(row)
            given = int(sends.ts[row])
            if sent["fragment_offset"] or not self._is_the_only(sent, given):
                continue
            for ledger in {id(self): self, id(there): there}.values():
                drops = ledger._drops.get((sent["flow"],))
                if drops is None:
                    continue
                near = slice(drops.since(given - _SAME_NS), drops.upto(given + _SAME_NS))
                found = near.start + np.flatnonzero(_same(drops, near, sent))
                if len(found):
                    columns = {name: int(each[found[-1]]) for name, each in drops.columns.items()}
                    at_sender = ledger is self and columns["netns"] == sent["netns"]
                    reason, _, function = ledger._texts[columns["text"]].partition(" ")
                    return Drop(at_sender, reason, function)
        return None

    def _arrivals(
        self, sent: dict[str, int], since: int, receiver: int, end: int
    ) -> Iterator[tuple[int, int, int]]:
        """When a datagram came here, was in a socket that the thread then read from, and where.

        The last first.
        """
        found = _of(self._in, self._in_of_whole, sent, since, end)
        if found is None:
            return
        rows, places = found
        for place in reversed(places):
            at, netns = int(rows.ts[place]), int(rows.columns["netns"][place])
            # Each member of a group has a copy in its socket.
            for socket, reads in self._reads.get(receiver, {}).items():
                ready = self._ready.get((netns, sent["port"], socket))
                first = -1 if ready is None else ready.since(at)
                if ready is None or first == len(ready.ts):
                    continue
                ready_at = int(ready.ts[first])
                if reads.upto(end) > reads.since(ready_at):
                    yield at, ready_at, netns

    def _is_the_only(self, sent: dict[str, int], given: int) -> bool:
        """Whether no other datagram of the time was the same."""
        rows = self._queued[sent["flow"],]
        if sent["flow"] not in self._singles:
            self._singles[sent["flow"]] = _singles(rows)
        if (sent["content"], sent["fragment_id"]) in self._singles[sent["flow"]]:
            return True
        near = slice(rows.since(given - _SAME_NS), rows.upto(given + _SAME_NS))
        return int(np.count_nonzero(_same(rows, near, sent))) == 1

    def _way(
        self, sent: dict[str, int], given: int, arrival: tuple[int, int, int], apart: int
    ) -> _Way | None:
        """None where another datagram was the same, or it is not known when it left."""
        came, ready, netns = arrival
        if not self._is_the_only(sent, given):
            return None
        found = _of(self._out, self._out_of_whole, sent, given, came + apart)
        if found is None:
            return None
        rows, places = found
        own = [place for place in places if rows.columns["netns"][place] == sent["netns"]]
        if not own:
            return None
        gone, by = int(rows.ts[own[-1]]), int(rows.columns["tid"][own[-1]])
        return _Way(sent, given, gone, by, came, ready, netns)


def _of(
    packets: dict[tuple[int, ...], Rows],
    fragments: dict[tuple[int, ...], Rows],
    sent: dict[str, int],
    since: int,
    upto: int,
) -> tuple[Rows, list[int]] | None:
    """The packets of a datagram in a time: itself, or the last of its fragments; None: none."""
    if sent["fragments_follow"]:
        rows = fragments.get((sent["whole"],))
    else:
        rows = packets.get((sent["flow"],))
    if rows is None:
        return None
    within = slice(rows.since(since), rows.upto(upto))
    if sent["fragments_follow"]:
        is_one = rows.columns["fragments_follow"][within] == 0
    else:
        is_one = _same(rows, within, sent)
    places = (within.start + np.flatnonzero(is_one)).tolist()
    return (rows, places) if places else None


def _singles(rows: Rows) -> set[tuple[int, int]]:
    """Content and number of the datagrams of a flow that cannot be taken for any other of it.

    The set may lack some. It spares most comparisons with all datagrams of the time.
    """
    content, ids = rows.columns["content"], rows.columns["fragment_id"]
    if not rows.columns["hashed"].all():
        return set()
    keys = content if (ids == 0).any() else content ^ (ids << 31)
    _, first, count = np.unique(keys, return_index=True, return_counts=True)
    single = first[count == 1]
    return set(zip(content[single].tolist(), ids[single].tolist(), strict=True))


def _own(
    packets: dict[tuple[int, ...], Rows],
    fragments: dict[tuple[int, ...], Rows],
    sent: dict[str, int],
    since: int,
    upto: int,
    netns: int,
) -> Packets:
    """The packets of a datagram at a device of a namespace in a time."""
    in_parts = sent["fragments_follow"]
    rows = fragments.get((sent["whole"],)) if in_parts else packets.get((sent["flow"],))
    if rows is None:
        nothing = np.empty(0, np.int64)
        return Packets(nothing, nothing, nothing, nothing)
    within = slice(rows.since(since), rows.upto(upto))
    columns = {name: column[within] for name, column in rows.columns.items()}
    own = columns["netns"] == netns
    if not in_parts:
        own &= _same(rows, within, sent)
    # The header is in the first one alone.
    first = np.maximum(columns["fragment_offset"] - _HEADER, 0)
    each = rows.ts[within], columns["err_ns"], first, first + columns["bytes"]
    return Packets(*(column[own] for column in each))


def _same(rows: Rows, within: slice, other: dict[str, int]) -> npt.NDArray[np.bool_]:
    """Those of some packets of a flow that may be the other one."""
    columns = {name: column[within] for name, column in rows.columns.items()}
    # What is in other pages is not looked at, at one place or another.
    fewest = np.minimum(columns["hashed"], other["hashed"])
    content = (columns["content"] == other["content"]) | (fewest == 0)
    ids = columns["fragment_id"]
    number = (ids == other["fragment_id"]) | (ids == 0) | (other["fragment_id"] == 0)
    found: npt.NDArray[np.bool_] = content & number & (columns["fragment_offset"] == 0)
    return found
