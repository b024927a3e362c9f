"""What TCP did with the bytes of a message, from the events of class ``tcp``.

The thread that sent a message wrote its bytes at known sequence numbers (``tcp_send``), and the
thread that received it had read up to one of them (``tcp_read``). So the segments that carried it
are known by address, port and sequence number, whatever else was on its way at the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from loopscope.analysis.kernels import rows_of
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
    Traffic,
    after,
    coded,
    groups,
)
from loopscope.analysis.tcp_drops import Connection, TcpDrops

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

TABLES = tuple(
    f"kernel.{name}"
    for name in ("tcp_send", "tcp_read", "tcp_ready", "tcp_receive", "segment_out", "segment_in")
)
"""Those without which nothing can be said."""
_MESSAGES = "kernel.tcp_message"
_RESENDS = "kernel.tcp_resend"
_QUEUED = "kernel.segment_queued"
# Values of a socket's `congestion_state` (TCP_CA_* of the kernel), and bits of `nagle_off`.
_RECOVERY, _LOSS = 3, 4
_NODELAY, _CORKED = 1, 2
# The flag of the header of the first segment (RFC 9293, 3.1).
_SYN = 2
# SK_PACING_NEEDED: the socket waits by timers of its own; SK_PACING_FQ: its device's queue paces
# it.
_PACED_BY_TCP, _PACED_BY_QUEUE = 1, 2
PACED, UNTOLD = "its pacing", "why is not told"
PACED_OR_QUEUED = f"{PACED}, or the queue of its device"
"""Where the events do not tell when a segment was given to the queue."""

_TOLD_NS = 1_000_000
"""Time within which the kernel tells that it sent a segment again, after the segment."""
_EARLIER_NS = 10_000_000_000
"""A segment that is sent again is looked for among those of this time before."""

_Ends = tuple[Connection, "TcpLedger", Connection]
"""The sender's connection, the receiver's kernel, and the connection as that has it."""


class _Way(NamedTuple):
    """A message's way through two sockets; see `Carried`."""

    ends: _Ends
    message: tuple[int, int]
    """Where its bytes begin and end."""
    given: int
    sent: int
    by: int
    came: int
    last: int
    """A byte of the segment that made it whole."""
    ready: int


class TcpLedger:
    """The sockets and segments of a kernel in one repeat."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the tables cannot be read. `recorded` says whether they exist."""
        state = (
            "snd_una, snd_wnd, snd_cwnd, packets_out, sacked_out, mss, nagle_off, "
            "congestion_state, pacing"
        )
        socket, packet = ("local", "remote"), ("source", "target")

        def grouped(
            table: str, ends: tuple[str, str], columns: str, *, by_thread: bool = False
        ) -> dict[Any, Rows]:
            names = [each.strip() for each in f"tid, netns, {columns}".split(",")]
            chosen = f"ts, {', '.join(names)}, {ends[0]}::VARCHAR AS a, {ends[1]}::VARCHAR AS b"
            rows = rows_of(run, table, repeat, kernel, chosen)
            arrays = {name: rows[name].to_numpy().astype(np.int64) for name in names}
            ts = rows["ts"].to_numpy().astype(np.int64)
            texts = [coded(rows[each]) for each in ("a", "b")]
            keys = [arrays["netns"], *(codes for codes, _ in texts)]
            if by_thread:
                keys.append(arrays["tid"])
            found: dict[Any, Rows] = {}
            for key, at in groups(keys):
                ends_of = [words[code] for (_, words), code in zip(texts, key[1:3], strict=True)]
                connection = (key[0], *ends_of)
                rows_at = Rows(ts[at], {name: array[at] for name, array in arrays.items()})
                found[(key[3], connection) if by_thread else connection] = rows_at
            return found

        self._sends = grouped(TABLES[0], socket, "seq, bytes", by_thread=True)
        told = _MESSAGES in run.tables
        self._told = grouped(_MESSAGES, socket, "seq, bytes", by_thread=True) if told else {}
        self._reads = grouped(TABLES[1], socket, "copied_seq", by_thread=True)
        self._ready = grouped(TABLES[2], socket, "rcv_nxt")
        self._received = grouped(TABLES[3], socket, f"ack, {state}")
        self._out = grouped(TABLES[4], packet, "seq, bytes, tcp_flags, err_ns")
        self._in = grouped(TABLES[5], (packet[1], packet[0]), "seq, bytes, err_ns")
        resends = _RESENDS in run.tables
        self._resends = grouped(_RESENDS, socket, f"seq, {state}") if resends else {}
        queued = _QUEUED in run.tables
        self._queued = grouped(_QUEUED, packet, "seq, bytes") if queued else None
        self._drops = TcpDrops(run, repeat, kernel)
        self._places: dict[Connection, Rows] = {}
        self._read_by: dict[int, list[Connection]] = {}
        for tid, connection in self._reads:
            self._read_by.setdefault(tid, []).append(connection)

    @staticmethod
    def recorded(run: Run) -> bool:
        """Whether a run has what it takes."""
        return set(TABLES) <= set(run.tables)

    def carried(self, hop: Hop, there: TcpLedger, *, packets: bool = False) -> Carried | None:
        """The way of a message from a thread here to one of the receiver's kernel.

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
            "TCP",
            way.given,
            way.sent,
            way.by,
            way.came,
            way.ready,
            held,
            last=_mark(near, way.last, 1),
            marks=(_mark(near, first, int(after(ended, first))),),
            traffic=self._traffic(way, hop) if packets else None,
        )

    def traffic(self, hop: Hop, there: TcpLedger) -> Traffic | None:
        """The segments of the message that `carried` follows."""
        way = self._followed(hop, there)
        return None if way is None else self._traffic(way, hop)

    def _followed(self, hop: Hop, there: TcpLedger) -> _Way | None:
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
                    return self._way((near, there, far), *found, hop)
        return None

    def _peers(self, connection: Connection) -> list[Connection]:
        """The other end; of loopback in the same namespace, of which there are many."""
        netns, local, remote = connection
        every = {key for _, key in self._sends}
        found = [each for each in every if (each[1], each[2]) == (remote, local)]
        return [each for each in found if each[0] == netns] or found

    def _told_of(
        self, sends: Rows, hop: Hop, near: Connection, upto: int
    ) -> tuple[int, int, int] | None:
        """The same as `_written`, of a message whose bytes the kernel's own event of it tells.

        Its event is that of when it was sent: a call may write several messages.
        """
        told = self._told.get((hop.sender, near))
        rows = range(0) if told is None else range(told.since(hop.begin), told.upto(hop.begin))
        if told is None or len(rows) != 1:
            return None
        message = told.row(rows[0])
        end = message["seq"] + message["bytes"]
        calls = slice(sends.since(hop.begin), sends.upto(hop.end + hop.apart))
        seq, count = sends.columns["seq"][calls], sends.columns["bytes"][calls]
        last = np.flatnonzero((after(end, seq) > 0) & (after(seq + count, end) >= 0))
        if not len(last) or after(upto, end) < 0:
            return None
        return message["seq"], int(sends.ts[calls][last[0]]), end

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
        ends: _Ends,
        first: int,
        given: int,
        bytes_end: int,
        hop: Hop,
    ) -> _Way | None:
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
        came_at = int(came.ts[arrived][data[-1]])
        sent = slice(out.since(given - _EARLIER_NS), out.upto(came_at + hop.apart))
        seq, count = out.columns["seq"][sent], out.columns["bytes"][sent]
        covering = np.flatnonzero((after(last, seq) >= 0) & (after(seq + count, last) > 0))
        if not len(covering):
            return None
        gone, by = (int(each[sent][covering[-1]]) for each in (out.ts, out.columns["tid"]))
        return _Way(ends, (first, bytes_end), given, gone, by, came_at, last, at)

    def _calls(self, way: _Way, hop: Hop) -> tuple[Handed, ...]:
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

    def _stream_place(self, way: _Way) -> int | None:
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

    def _traffic(self, way: _Way, hop: Hop) -> Traffic:
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
            (_mark(near, begun, int(after(ended, begun))),),
            self._calls(way, hop),
            self._stream_place(way),
        )

    def _held(self, way: _Way, hop: Hop) -> tuple[Held, ...]:
        """How a message was kept until it was gone.

        A segment that the sender's call sends at once was not kept. Each other one was since the
        one before it. One that the receiver had already kept nothing: TCP only asks by it whether
        it had come.
        """
        ends, message, given, gone = way.ends, way.message, way.given, way.sent
        here, there, far = ends
        out = self._out[here]
        earlier = out.since(given - _EARLIER_NS)
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
            elif queued_by == hop.sender and not self._acknowledged(here, since, left):
                why = ""
            else:
                # What its device's queue has no room for has never left.
                dropped = self._dropped(ends, seq, since, ts)
                why = f"sent again{dropped}" if dropped else ""
                why = why or self._kept(ends, (seq, count), since, left)
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

    def _queued_at(self, here: Connection, seq: int, gone: int, by: int) -> tuple[int, int, bool]:
        """When and in which thread a segment came into the queue of the device that it left.

        And whether it waited there: a segment passes an empty queue at once. So it is taken to have
        done where no event tells of the queue.
        """
        rows = self._queued.get(here) if self._queued is not None else None
        if rows is None:
            return gone, by, False
        of_time = slice(rows.since(gone - _EARLIER_NS), rows.upto(gone))
        first, count = (rows.columns[name][of_time] for name in ("seq", "bytes"))
        of_it = np.flatnonzero((after(seq, first) >= 0) & (after(first + count, seq) > 0))
        if not len(of_it):
            return gone, by, False
        at, tid = (int(each[of_time][of_it[-1]]) for each in (rows.ts, rows.columns["tid"]))
        return at, tid, tid != by or of_it[-1] < len(first) - 1

    def _in_queue(self, here: Connection, at: int) -> str:
        rows = self._received.get(here)
        last = -1 if rows is None else rows.upto(at) - 1
        if rows is not None and last >= 0 and rows.columns["pacing"][last] == _PACED_BY_QUEUE:
            return f"{IN_QUEUE}, which paces it"
        return IN_QUEUE

    def _acknowledged(self, here: Connection, since: int, until: int) -> bool:
        """Whether anything came to the sender's socket in a time."""
        rows = self._received.get(here)
        return rows is not None and rows.upto(until) > rows.since(since)

    def _resent_by(self, here: Connection, seq: int, first: int, gone: int) -> str:
        """What made TCP send again, in brackets; empty where no event tells."""
        resends = self._resends.get(here)
        if resends is None:
            return ""
        # The kernel tells of it when the segment has gone out.
        rows = slice(resends.since(first), resends.upto(gone + _TOLD_NS))
        of_it = np.flatnonzero(after(seq, resends.columns["seq"][rows]) >= 0)
        if not len(of_it):
            return ""
        state = int(resends.columns["congestion_state"][rows][of_it[-1]])
        names = {_LOSS: "retransmission time-out", _RECOVERY: "fast retransmission"}
        return f" ({names.get(state, 'tail loss probe')})"

    def _dropped(self, ends: _Ends, seq: int, first: int, gone: int) -> str:
        """The drop of a byte between two times when it was sent, in words; empty: none is told."""
        here, there, (netns, local, remote) = ends
        hosts = (self, here, "its host"), (there, (netns, remote, local), "the receiver's host")
        for ledger, packets, host in hosts:
            if why := ledger._drops.why(packets, seq, first, gone):
                return f"; {host} dropped it: {why}"
        return ""

    def _kept(self, ends: _Ends, segment: tuple[int, int], given: int, gone: int) -> str:
        """Why a segment, given by its first byte and length, was not sent at once.

        The answer is in what the socket was like when the segment came that released it. It has no
        numbers, so that messages with the same cause can be counted together.
        """
        near, there, far = ends
        rows = self._received.get(near)
        last = -1 if rows is None else rows.upto(gone) - 1
        if rows is None or last < 0:
            return UNTOLD
        was = {name: int(column[last]) for name, column in rows.columns.items()}
        paced = PACED_OR_QUEUED if self._queued is None else PACED
        paced = paced if was["pacing"] == _PACED_BY_TCP else UNTOLD
        if rows.ts[last] < given:
            # Nothing came that released it: a timer did.
            return paced
        seq, count = segment
        under_way = was["packets_out"] - was["sacked_out"]
        # TCP may wait with a part until more can go together.
        if under_way * was["mss"] + count > was["snd_cwnd"] * was["mss"] > 0:
            return "its congestion window was full"
        if int(after(seq + count, was["snd_una"])) > was["snd_wnd"]:
            return "the receiver's window was full"
        if was["nagle_off"] & _CORKED:
            return "the program had set TCP_CORK"
        if under_way > 0 and count < was["mss"] and not was["nagle_off"] & _NODELAY:
            took = there._acknowledging(far, int(rows.ts[last]))
            delayed = took is not None and 2 * took > gone - given
            text = "Nagle's algorithm, until what was sent before was acknowledged"
            return f"{text}, which the receiver delayed" if delayed else text
        return paced

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


def _mark(sender: Connection, seq: int, count: int) -> Mark:
    """What is known of some bytes that a connection sent."""
    source, target = (int(address.rpartition(":")[2]) for address in sender[1:])
    return Mark(TCP, source, target, seq, count)
