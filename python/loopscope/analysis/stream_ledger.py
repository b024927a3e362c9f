"""What TCP did with the bytes of a message, whichever TCP it was: the kernel's or a program's own.

The thread that sent a message wrote its bytes at known sequence numbers, and the thread that
received it had read up to one of them. So the segments that carried it are known by address, port
and sequence number, whatever else was on its way at the time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.ledger import (
    IN_QUEUE,
    TCP,
    Carried,
    Handed,
    Held,
    Hop,
    Mark,
    Packets,
    Rows,
    Taker,
    Traffic,
    after,
)

if TYPE_CHECKING:
    from loopscope.analysis.tcp_drops import Connection

# The flag of the header of the first segment (RFC 9293, 3.1).
_SYN = 2
UNTOLD = "why is not told"
NAGLE = "Nagle's algorithm, until what was sent before was acknowledged"
FULL_WINDOW = "the receiver's window was full"
EARLIER_NS = 10_000_000_000
"""A segment that is sent again is looked for among those of this time before."""

Ends = tuple["Connection", "StreamLedger", "Connection"]
"""The sender's connection, the receiver's ledger, and the connection as that has it."""


class Way(NamedTuple):
    """A message's way through two ends of a connection; see `Carried`."""

    ends: Ends
    message: tuple[int, int]
    """Where its bytes begin and end."""
    given: int
    sent: int
    by: int
    came: int
    taker: int
    """The thread in which that was."""
    last: int
    """A byte of the segment that made it whole."""
    ready: int


class StreamLedger(ABC):
    """The connections and segments of one end in one repeat."""

    PROTOCOL: str
    """The name of what transfers them."""

    def __init__(self) -> None:
        # What threads' calls wrote, by first byte and length; the byte up to which each has read.
        self._sends: dict[tuple[int, Connection], Rows] = {}
        self._reads: dict[tuple[int, Connection], Rows] = {}
        # The byte up to which a connection has all.
        self._ready: dict[Connection, Rows] = {}
        # The segments that it sent and that came.
        self._out: dict[Connection, Rows] = {}
        self._in: dict[Connection, Rows] = {}
        # Those that came with an acknowledgement, and what the sender was like before.
        self._received: dict[Connection, Rows] = {}
        self._places: dict[Connection, Rows] = {}
        self._read_by: dict[int, list[Connection]] = {}

    def _index(self) -> None:
        """Notes who has read of which connection."""
        for tid, connection in self._reads:
            self._read_by.setdefault(tid, []).append(connection)

    # What differs between the two kinds.

    @abstractmethod
    def _is_at_once(self, way: Way, hop: Hop, segment: tuple[int, int], by: int, at: Held) -> bool:
        """Whether the sender's call sent a segment of ``by`` itself, in the time of ``at``."""

    @abstractmethod
    def _resent_by(self, here: Connection, seq: int, first: int, gone: int) -> str:
        """What made TCP send again, in brackets; empty where no event tells."""

    @abstractmethod
    def _kept(self, way: Way, hop: Hop, segment: tuple[int, int], at: Held) -> str:
        """Why a segment, given by its first byte and length, was not sent in a time.

        It has no numbers, so that messages with the same cause can be counted together.
        """

    def _drop_of(self, packets: Connection, seq: int, first: int, gone: int) -> str:
        """Why a byte was dropped between two times, in words; empty: no drop of it is told.

        ``packets``: the namespace, where they came from, and where they went.
        """
        del packets, seq, first, gone
        return ""

    def _taker(self, way: Way) -> Taker | None:
        """The thread of the program that took the segment; None: the kernel did."""
        del way
        return None

    def _queued_at(self, here: Connection, seq: int, gone: int, by: int) -> tuple[int, int, bool]:
        """When and in which thread a segment came into the queue of the device that it left.

        And whether it waited there.
        """
        del here, seq
        return gone, by, False

    def _in_queue(self, here: Connection, at: int) -> str:
        """What a segment waited for that was in the queue of its device."""
        del here, at
        return IN_QUEUE

    def _told_of(
        self, sends: Rows, hop: Hop, near: Connection, upto: int
    ) -> tuple[int, int, int] | None:
        """The same as `_written`, of a message whose bytes an event of its own tells."""
        del sends, hop, near, upto
        return None

    def _is_known(self, way: Way, hop: Hop) -> bool:
        """Whether the sender's and the receiver's events leave no doubt of a way."""
        del way, hop
        return True

    # What both have.

    def carried(self, hop: Hop, there: StreamLedger, *, packets: bool = False) -> Carried | None:
        """The way of a message from a thread here to one of the receiver's.

        ``packets``: with its segments. None where it is not known: the message did not go over TCP,
        or the threads' calls leave open which of the bytes are its own.
        """
        way = self._followed(hop, there)
        if way is None:
            return None
        held = self._held(way, hop)
        first, ended = way.message
        near = way.ends[0]
        return Carried(
            self.PROTOCOL,
            way.given,
            way.sent,
            way.by,
            way.came,
            way.ready,
            held,
            last=mark_of(near, way.last, 1),
            marks=(mark_of(near, first, int(after(ended, first))),),
            taker=there._taker(way),
            traffic=self._traffic(way, hop) if packets else None,
        )

    def traffic(self, hop: Hop, there: StreamLedger) -> Traffic | None:
        """The segments of the message that `carried` follows."""
        way = self._followed(hop, there)
        return None if way is None else self._traffic(way, hop)

    def _followed(self, hop: Hop, there: StreamLedger) -> Way | None:
        for far in there._read_by.get(hop.receiver, ()):
            reads = there._reads[hop.receiver, far]
            last = reads.upto(hop.end) - 1
            if last < 0 or reads.ts[last] < hop.begin - hop.apart:
                continue
            upto = int(reads.columns["copied_seq"][last])
            for near in self._peers(far):
                sends = self._sends.get((hop.sender, near))
                found = sends and (
                    self._told_of(sends, hop, near, upto) or self._written(sends, hop, upto)
                )
                if found:
                    way = self._way((near, there, far), *found, hop)
                    is_known = way and self._is_known(way, hop) and there._is_known(way, hop)
                    return way if is_known else None
        return None

    def _peers(self, connection: Connection) -> list[Connection]:
        """The other end; of loopback in the same namespace, of which there are many."""
        netns, local, remote = connection
        every = {key for _, key in self._sends}
        found = [each for each in every if (each[1], each[2]) == (remote, local)]
        return [each for each in found if each[0] == netns] or found

    @staticmethod
    def _written(sends: Rows, hop: Hop, upto: int) -> tuple[int, int, int] | None:
        """Where a message's bytes begin and end, and when they were written, the last call of it.

        None where none of them is among those until ``upto``, which the receiver has read.
        """
        rows = slice(sends.since(hop.begin), sends.until(hop.until, hop.end + hop.apart))
        seq, count = sends.columns["seq"][rows], sends.columns["bytes"][rows]
        read = np.flatnonzero(after(upto, seq + count) >= 0)
        if not len(read):
            return None
        last = int(read[-1])
        # A call that copies piece by piece has an event for each.
        while last > 0 and seq[last - 1] + count[last - 1] == seq[last] + count[last]:
            last -= 1
        return int(seq[read[0]]), int(sends.ts[rows][last]), int(seq[last] + count[last])

    def _way(
        self,
        ends: Ends,
        first: int,
        given: int,
        bytes_end: int,
        hop: Hop,
    ) -> Way | None:
        near, there, far = ends
        ready, came, out = there._ready.get(far), there._in.get(far), self._out.get(near)
        if ready is None or came is None or out is None:
            return None
        rows = slice(ready.since(given - hop.apart), ready.upto(hop.end))
        whole = np.flatnonzero(after(ready.columns["rcv_nxt"][rows], bytes_end) >= 0)
        if not len(whole):
            return None
        at = int(ready.ts[rows][whole[0]])
        arrived = slice(came.since(given - hop.apart), came.upto(at))
        seq, count = came.columns["seq"][arrived], came.columns["bytes"][arrived]
        data = np.flatnonzero((count > 0) & (after(bytes_end, seq) > 0))
        if not len(data):
            return None
        last = int(seq[data[-1]])
        came_at, taker = (int(each[arrived][data[-1]]) for each in (came.ts, came.columns["tid"]))
        sent = slice(out.since(given - EARLIER_NS), out.upto(came_at + hop.apart))
        seq, count = out.columns["seq"][sent], out.columns["bytes"][sent]
        covering = np.flatnonzero((after(last, seq) >= 0) & (after(seq + count, last) > 0))
        if not len(covering):
            return None
        gone, by = (int(each[sent][covering[-1]]) for each in (out.ts, out.columns["tid"]))
        return Way(ends, (first, bytes_end), given, gone, by, came_at, taker, last, at)

    def _calls(self, way: Way, hop: Hop) -> tuple[Handed, ...]:
        """The calls that wrote the bytes of a message, and those that read them, by time."""
        near, there, far = way.ends
        first, ended = way.message
        length = int(after(ended, first))

        def found(ts: int, came: bool, begun: int, upto: int) -> list[Handed]:
            least, most = max(begun, 0), min(upto, length)
            return [Handed(ts, came, least, most - least)] if most > least else []

        sends = self._sends[hop.sender, near]
        rows = slice(sends.since(hop.begin), sends.upto(way.ready + hop.apart))
        seq = after(sends.columns["seq"][rows], first)
        upto = seq + sends.columns["bytes"][rows]
        calls: list[Handed] = []
        for place in range(len(seq)):
            # A call that copies piece by piece has an event for each, of what it still has.
            if place == 0 or upto[place] != upto[place - 1]:
                calls += found(int(sends.ts[rows][place]), False, int(seq[place]), int(upto[place]))
        reads = there._reads[hop.receiver, far]
        copied = after(reads.columns["copied_seq"], first)
        for place in range(reads.since(way.given - hop.apart), reads.upto(hop.end)):
            before = int(copied[place - 1]) if place else 0
            calls += found(int(reads.ts[place]), True, before, int(copied[place]))
        return tuple(sorted(calls))

    def _stream_place(self, way: Way) -> int | None:
        """Place of a message's first byte in its stream, from the initial sequence number on."""
        near = way.ends[0]
        if near not in self._places:
            self._places[near] = _places(self._out[near])
        segments = self._places[near]
        last = segments.upto(way.came) - 1
        if last < 0:
            return None
        segment = segments.row(last)
        return segment["place"] + int(after(way.message[0], segment["seq"]))

    def _traffic(self, way: Way, hop: Hop) -> Traffic:
        """The segments with bytes of a message, from its thread's call on."""
        near, there, far = way.ends
        begun, ended = way.message

        def own(packets: Rows, since: int) -> Packets:
            rows = slice(packets.since(since), packets.upto(way.ready + hop.apart))
            seq, count = packets.columns["seq"][rows], packets.columns["bytes"][rows]
            first = np.maximum(after(seq, begun), 0)
            end = np.minimum(after(seq + count, begun), after(ended, begun))
            columns = packets.ts[rows], packets.columns["err_ns"][rows], first, end
            return Packets(*(column[end > first] for column in columns))

        return Traffic(
            own(self._out[near], hop.begin),
            own(there._in[far], hop.begin - hop.apart),
            (mark_of(near, begun, int(after(ended, begun))),),
            self._calls(way, hop),
            self._stream_place(way),
        )

    def _held(self, way: Way, hop: Hop) -> tuple[Held, ...]:
        """How a message was kept until it was gone.

        A segment that the sender's call sends at once was not kept. Each other one was since the
        one before it. One that the receiver had already kept nothing: TCP only asks by it whether
        it had come.
        """
        ends, message, given, gone = way.ends, way.message, way.given, way.sent
        here, there, far = ends
        out = self._out[here]
        earlier = out.since(given - EARLIER_NS)
        rows = slice(out.since(given), out.upto(gone))
        columns = [out.columns[name][rows].tolist() for name in ("seq", "bytes", "tid")]
        found: list[Held] = []
        since = given
        for number, (ts, seq, count, by) in enumerate(
            zip(out.ts[rows].tolist(), *columns, strict=True), rows.start
        ):
            if count == 0 or after(message[1], seq) <= 0:
                continue
            if there._had(far, seq + count, ts - hop.apart):
                continue
            queued, queued_by, waited = self._queued_at(here, seq, ts, by)
            left = max(queued, since)
            before = [out.columns[name][earlier:number] for name in ("seq", "bytes")]
            again = np.flatnonzero((after(seq, before[0]) >= 0) & (after(sum(before), seq) > 0))
            if len(again):
                first = int(out.ts[earlier + again[0]])
                why = "sent again" + self._resent_by(here, seq, first, ts)
                why += self._dropped(ends, seq, first, ts)
                if after(message[0], seq) > 0:
                    why = f"behind bytes before it, which were {why}"
            elif self._is_at_once(way, hop, (seq, count), queued_by, Held(since, left, "")):
                why = ""
            else:
                # What its device's queue has no room for has never left.
                dropped = self._dropped(ends, seq, since, ts)
                why = f"sent again{dropped}" if dropped else ""
                why = why or self._kept(way, hop, (seq, count), Held(since, left, ""))
            if why and left > since:
                found.append(Held(since, left, why))
            if waited and ts > left:
                found.append(Held(left, ts, self._in_queue(here, ts)))
            elif found:
                # The same call or interrupt sends several.
                found[-1] = found[-1]._replace(end=ts)
            since = ts
        return tuple(found)

    def _had(self, here: Connection, upto: int, at: int) -> bool:
        """Whether this end had all bytes up to one at an instant."""
        rows = self._ready.get(here)
        last = -1 if rows is None else rows.upto(at) - 1
        if rows is None or last < 0:
            return False
        return int(after(rows.columns["rcv_nxt"][last], upto)) >= 0

    def _acknowledged(self, here: Connection, since: int, until: int) -> bool:
        """Whether anything came to the sender's socket in a time."""
        rows = self._received.get(here)
        return rows is not None and rows.upto(until) > rows.since(since)

    def _dropped(self, ends: Ends, seq: int, first: int, gone: int) -> str:
        """The drop of a byte between two times when it was sent, in words; empty: none is told."""
        here, there, (netns, local, remote) = ends
        hosts = (self, here, "its host"), (there, (netns, remote, local), "the receiver's host")
        for ledger, packets, host in hosts:
            if why := ledger._drop_of(packets, seq, first, gone):
                return f"; {host} dropped it: {why}"
        return ""

    def _nagle(self, way: Way, released: int, at: Held) -> str:
        """The cause of a wait for an acknowledgement, which came at an instant."""
        took = way.ends[1]._acknowledging(way.ends[2], released)
        delayed = took is not None and 2 * took > at.end - at.start
        return f"{NAGLE}, which the receiver delayed" if delayed else NAGLE

    def _acknowledging(self, here: Connection, at: int) -> int | None:
        """How long after the last bytes had come this end acknowledged them, until ``at``."""
        out, came = self._out.get(here), self._in.get(here)
        last = -1 if out is None else out.upto(at) - 1
        if out is None or came is None or last < 0:
            return None
        acknowledged = int(out.ts[last])
        data = np.flatnonzero(came.columns["bytes"][: came.upto(acknowledged)] > 0)
        return acknowledged - int(came.ts[data[-1]]) if len(data) else None


def _places(out: Rows) -> Rows:
    """The segments that a connection sent since its first one, with their places in its stream."""
    begun = np.flatnonzero(out.columns["tcp_flags"] & _SYN)
    if not len(begun):
        return Rows(out.ts[:0], {})
    since = int(begun[-1]) + 1
    seq = out.columns["seq"][since - 1 :]
    # The first one's number is the initial one, which is that of no byte. A stream may be longer
    # than there are numbers.
    places = np.cumsum(after(seq[1:], seq[:-1])) - 1
    return Rows(out.ts[since:], {"seq": seq[1:], "place": places})


def mark_of(sender: Connection, seq: int, count: int) -> Mark:
    """What is known of some bytes that a connection sent."""
    source, target = (int(address.rpartition(":")[2]) for address in sender[1:])
    return Mark(TCP, source, target, seq, count)
