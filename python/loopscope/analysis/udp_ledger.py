"""The way of a message's datagram, from the events of class ``udp``.

UDP has no numbers. A packet is known by its addresses and ports, its length, a hash of its first
bytes and, in IPv4, the header's identification (RFC 791, section 3.1), where that is not 0 (RFC
6864, section 4.1). Where several of a kernel's are the same by all of these, it is not known which
one a message was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.kernels import rows_of
from loopscope.analysis.ledger import (
    IN_QUEUE,
    UDP,
    Carried,
    Handed,
    Held,
    Hop,
    Mark,
    Packets,
    Rows,
    Sending,
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
    tid, netns, err_ns, bytes, length, hashed, fragment_id, fragment_offset, fragments_follow,
    hash AS content, hash(source, target, length) AS flow, hash(source, target) AS ends,
    hash(regexp_replace(source, ':[0-9]+$', ''), regexp_replace(target, ':[0-9]+$', ''),
        fragment_id) AS whole,
    regexp_extract(source, '[0-9]+$')::INTEGER AS source_port,
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


Arrival = tuple[int, int, int, int]
"""See `UdpLedger.arrivals`."""


class Way(NamedTuple):
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
    read: int
    """When the receiver read from its socket last."""


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
        self.has_drops = "drop" in run.kernel_gaps.get((repeat, kernel), {})
        """Whether what the kernel dropped was recorded; without a drop there is no table."""
        if _DROPS in run.tables:
            why = "reason || ' ' || function"
            self._drops = grouped(_DROPS, _PACKET, "flow", text=why)

    @staticmethod
    def recorded(run: Run) -> bool:
        """Whether a run has what it takes."""
        return set(TABLES) <= set(run.tables)

    def carried(self, hop: Hop, there: UdpLedger, *, packets: bool = False) -> Carried | None:
        """The way of a message from a thread here to one of the receiver's kernel.

        Of several datagrams the one counts that was sent last. ``packets``: with those of all of
        them, or of that one where the others are not known. None where it is not known.
        """
        for sent, given in self._datagrams(hop):
            arrival = next(there.arrivals(sent, given - hop.apart, hop), None)
            if arrival is None:
                continue
            way = self.way(sent, given, arrival, hop.apart)
            if way is None:
                return None
            # A queue that holds nothing is passed in the sender's own call.
            waited = way.by != sent["tid"] and way.sent > given
            held = (Held(given, way.sent, IN_QUEUE),) if waited else ()
            carried = Carried("UDP", given, way.sent, way.by, way.came, way.ready, held, mark(sent))
            if not packets:
                return carried
            traffic = self.traffic(hop, there) or self.traffic_of(way, there, hop, is_last=True)
            return replace(carried, traffic=traffic)
        return None

    def traffic(self, hop: Hop, there: UdpLedger) -> Traffic | None:
        """The packets of all datagrams of a message; see `carried`.

        Those of a datagram that did not come are among them, if one did that was sent from the same
        socket to the same address. None where one of the datagrams is not known.
        """
        found: list[tuple[int, Traffic]] = []
        for sent, given in self._datagrams(hop):
            arrival = next(there.arrivals(sent, given - hop.apart, hop), None)
            if arrival is None:
                found.append((sent["ends"], self.only_left(sent, given, hop)))
                continue
            way = self.way(sent, given, arrival, hop.apart)
            if way is None:
                return None
            is_last = all(not len(each.came.ts) for _, each in found)
            found.append((sent["ends"], self.traffic_of(way, there, hop, is_last=is_last)))
        arrived = {ends for ends, each in found if len(each.came.ts)}
        parts: list[Traffic] = []
        place = 0
        for ends, each in reversed(found):
            if ends in arrived:
                parts.append(each.moved(place))
                last = parts[-1]
                place = max(int(of.end.max(initial=place)) for of in (last.left, last.came))
        return Traffic.joined(parts) if parts else None

    def only_left(self, sent: dict[str, int], given: int, hop: Hop) -> Traffic:
        """The packets of a datagram that did not come."""
        upto = hop.end + hop.apart
        left = _own(self._out, self._out_of_whole, sent, given, upto, sent["netns"])
        nothing = Packets(*(column[:0] for column in left))
        return Traffic(left, nothing, (mark(sent),), (_written(sent, given),))

    def _datagrams(self, hop: Hop) -> Iterator[tuple[dict[str, int], int]]:
        """What a thread gave to the queue in a time, each with when, the last first."""
        sends = self._sends.get((hop.sender,))
        if sends is None:
            return
        upto = sends.until(hop.until, hop.end + hop.apart)
        for row in range(upto - 1, sends.since(hop.begin) - 1, -1):
            if not sends.columns["fragment_offset"][row]:
                yield sends.row(row), int(sends.ts[row])

    def traffic_of(self, way: Way, there: UdpLedger, hop: Hop, *, is_last: bool) -> Traffic:
        """The packets of a datagram; of the last one the call that read it is known."""
        sent = way.datagram
        sides = (
            (self._out, self._out_of_whole, sent, way.given, way.sent, sent["netns"]),
            (there._in, there._in_of_whole, sent, way.given - hop.apart, way.ready, way.netns),
        )
        left, came = (_own(*side) for side in sides)
        written = _written(sent, way.given)
        calls = (written, written._replace(ts=way.read, came=True)) if is_last else (written,)
        return Traffic(left, came, (mark(sent),), calls)

    def given_as(self, sending: Sending) -> tuple[dict[str, int], int] | None:
        """What a thread gave to the queue as a datagram of an item, and when.

        None where it is not known which of them that was, or whether it was any.
        """
        sends = self._sends.get((sending.tid,))
        if sends is None:
            return None
        upto = len(sends.ts) if sending.until is None else sends.since(sending.until)
        within = slice(sends.since(sending.at), upto)
        length, offset = (sends.columns[name][within] for name in ("length", "fragment_offset"))
        places = within.start + np.flatnonzero((length == sending.bytes) & (offset == 0))
        if len(places) != 1:
            return None
        return sends.row(int(places[0])), int(sends.ts[places[0]])

    def has_dropped(self, sent: dict[str, int], arrival: Arrival) -> bool:
        """Whether the kernel dropped a datagram where it came."""
        drops = self._drops.get((sent["flow"],))
        if drops is None:
            return False
        came, _, netns, _ = arrival
        after = slice(drops.since(came), drops.upto(came + _SAME_NS))
        return bool((_same(drops, after, sent) & (drops.columns["netns"][after] == netns)).any())

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
            drop = None if sent["fragment_offset"] else self.drop_of(sent, given, there)
            if drop is not None:
                return drop
        return None

    def drop_of(self, sent: dict[str, int], given: int, there: UdpLedger) -> Drop | None:
        """Where the kernels dropped a datagram; None: nowhere that is known."""
        if not self._is_the_only(sent, given):
            return None
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

    def arrivals(self, sent: dict[str, int], since: int, hop: Hop) -> Iterator[Arrival]:
        """When a datagram came here, was in a socket that the thread then read from, and where.

        And when the thread read from it last. The last first.
        """
        found = _of(self._in, self._in_of_whole, sent, since, hop.end)
        if found is None:
            return
        rows, places = found
        for place in reversed(places):
            at, netns = int(rows.ts[place]), int(rows.columns["netns"][place])
            # Each member of a group has a copy in its socket.
            for socket, reads in self._reads.get(hop.receiver, {}).items():
                ready = self._ready.get((netns, sent["port"], socket))
                first = -1 if ready is None else ready.since(at)
                if ready is None or first == len(ready.ts):
                    continue
                ready_at = int(ready.ts[first])
                upto = reads.upto(hop.end)
                if upto > reads.since(ready_at):
                    yield at, ready_at, netns, int(reads.ts[upto - 1])

    def _is_the_only(self, sent: dict[str, int], given: int) -> bool:
        """Whether no other datagram of the time was the same."""
        rows = self._queued[sent["flow"],]
        if sent["flow"] not in self._singles:
            self._singles[sent["flow"]] = _singles(rows)
        if (sent["content"], sent["fragment_id"]) in self._singles[sent["flow"]]:
            return True
        near = slice(rows.since(given - _SAME_NS), rows.upto(given + _SAME_NS))
        return int(np.count_nonzero(_same(rows, near, sent))) == 1

    def way(self, sent: dict[str, int], given: int, arrival: Arrival, apart: int) -> Way | None:
        """None where another datagram was the same, or it is not known when it left."""
        came, ready, netns, read = arrival
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
        return Way(sent, given, gone, by, came, ready, netns, read)


def mark(sent: dict[str, int]) -> Mark:
    """What a datagram is known by."""
    fragment = sent["fragment_id"] if sent["fragments_follow"] else None
    return Mark(UDP, sent["source_port"], sent["port"], sent["content"], sent["bytes"], fragment)


def _written(sent: dict[str, int], given: int) -> Handed:
    """The call that wrote a datagram."""
    return Handed(given, False, 0, sent["length"])


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
