"""What TCP did with the bytes of a message, from the events of class ``tcp``.

The thread that sent a message wrote its bytes at known sequence numbers (``tcp_send``), and the
thread that received it had read up to one of them (``tcp_read``). So the segments that carried it
are known by address, port and sequence number, whatever else was on its way at the time.
Sequence numbers are compared modulo 2**32 (RFC 9293, section 3.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from loopscope.analysis.drop_reasons import reason_text
from loopscope.analysis.kernels import rows_of
from loopscope.analysis.ledger import IN_QUEUE, Carried, Held, Packets, Rows, Traffic, coded, groups

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

TABLES = tuple(
    f"kernel.{name}"
    for name in ("tcp_send", "tcp_read", "tcp_ready", "tcp_receive", "segment_out", "segment_in")
)
"""Those without which nothing can be said."""
_RESENDS = "kernel.tcp_resend"
_QUEUED = "kernel.segment_queued"
_DROPS = "kernel.packet_drop"
_TCP = 6
# What TCP drops because it has had it before.
_HAD_BEFORE = ("TCP_OLD_", "TCP_OFO")
# Values of a socket's `congestion_state` (TCP_CA_* of the kernel), and bits of `nagle_off`.
_RECOVERY, _LOSS = 3, 4
_NODELAY, _CORKED = 1, 2
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

Connection = tuple[int, str, str]
"""Network namespace, local address, remote address."""


class _Drop(NamedTuple):
    """The kernel dropped a segment."""

    ts: int
    seq: int
    bytes: int
    why: str


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
        self._reads = grouped(TABLES[1], socket, "copied_seq", by_thread=True)
        self._ready = grouped(TABLES[2], socket, "rcv_nxt")
        self._received = grouped(TABLES[3], socket, f"ack, {state}")
        self._out = grouped(TABLES[4], packet, "seq, bytes, err_ns")
        self._in = grouped(TABLES[5], (packet[1], packet[0]), "seq, bytes, err_ns")
        resends = _RESENDS in run.tables
        self._resends = grouped(_RESENDS, socket, f"seq, {state}") if resends else {}
        queued = _QUEUED in run.tables
        self._queued = grouped(_QUEUED, packet, "seq, bytes") if queued else None
        self._drops = _drops(run, repeat, kernel)
        self._read_by: dict[int, list[Connection]] = {}
        for tid, connection in self._reads:
            self._read_by.setdefault(tid, []).append(connection)

    @staticmethod
    def recorded(run: Run) -> bool:
        """Whether a run has what it takes."""
        return set(TABLES) <= set(run.tables)

    def carried(
        self,
        sender: int,
        begin: int,
        until: int | None,
        there: TcpLedger,
        receiver: int,
        end: int,
        apart: int = 0,
        packets: bool = False,
    ) -> Carried | None:
        """The way of a message from one thread, after ``begin``, to another one, until ``end``.

        ``until``: when the sender sends the next message. ``there`` is the receiver's kernel, whose
        clock may be ``apart`` ns from the sender's. ``packets``: with its segments. None where it
        is not known: the message did not go over TCP, or the threads' calls leave open which of the
        bytes are its own.
        """
        way = self._followed(sender, begin, until, there, receiver, end, apart)
        if way is None:
            return None
        held = self._held(way.ends, way.message, way.given, way.sent, sender)
        listed = self._traffic(way, begin, apart).listed() if packets else ()
        return Carried("TCP", way.given, way.sent, way.by, way.came, way.ready, held, listed)

    def traffic(
        self,
        sender: int,
        begin: int,
        until: int | None,
        there: TcpLedger,
        receiver: int,
        end: int,
        apart: int = 0,
    ) -> Traffic | None:
        """The segments of the message that `carried` follows."""
        way = self._followed(sender, begin, until, there, receiver, end, apart)
        return None if way is None else self._traffic(way, begin, apart)

    def _followed(
        self,
        sender: int,
        begin: int,
        until: int | None,
        there: TcpLedger,
        receiver: int,
        end: int,
        apart: int,
    ) -> _Way | None:
        for far in there._read_by.get(receiver, ()):
            reads = there._reads[receiver, far]
            last = reads.upto(end) - 1
            if last < 0 or reads.ts[last] < begin - apart:
                continue
            upto = int(reads.columns["copied_seq"][last])
            for near in self._peers(far):
                sends = self._sends.get((sender, near))
                found = sends and self._written(sends, begin, until, end + apart, upto)
                if found:
                    return self._way((near, there, far), *found, end, apart)
        return None

    def _peers(self, connection: Connection) -> list[Connection]:
        """The other end; of loopback in the same namespace, of which there are many."""
        netns, local, remote = connection
        found = [
            each
            for each in {key for _, key in self._sends}
            if (each[1], each[2]) == (remote, local)
        ]
        return [each for each in found if each[0] == netns] or found

    @staticmethod
    def _written(
        sends: Rows, begin: int, until: int | None, end: int, upto: int
    ) -> tuple[int, int, int] | None:
        """Where the bytes begin and end that were written in a time, and the last call's time.

        None where none of them is among those until ``upto``, which the receiver has read.
        """
        rows = slice(sends.since(begin), sends.until(until, end))
        seq, count = sends.columns["seq"][rows], sends.columns["bytes"][rows]
        read = np.flatnonzero(_after(upto, seq + count) >= 0)
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
        end: int,
        apart: int,
    ) -> _Way | None:
        near, there, far = ends
        ready, came, out = there._ready.get(far), there._in.get(far), self._out.get(near)
        if ready is None or came is None or out is None:
            return None
        rows = slice(ready.since(given - apart), ready.upto(end))
        whole = np.flatnonzero(_after(ready.columns["rcv_nxt"][rows], bytes_end) >= 0)
        if not len(whole):
            return None
        at = int(ready.ts[rows][whole[0]])
        arrived = slice(came.since(given - apart), came.upto(at))
        seq, count = came.columns["seq"][arrived], came.columns["bytes"][arrived]
        data = np.flatnonzero((count > 0) & (_after(bytes_end, seq) > 0))
        if not len(data):
            return None
        last = int(seq[data[-1]])
        came_at = int(came.ts[arrived][data[-1]])
        sent = slice(out.since(given - _EARLIER_NS), out.upto(came_at + apart))
        seq, count = out.columns["seq"][sent], out.columns["bytes"][sent]
        covering = np.flatnonzero((_after(last, seq) >= 0) & (_after(seq + count, last) > 0))
        if not len(covering):
            return None
        gone, by = (int(each[sent][covering[-1]]) for each in (out.ts, out.columns["tid"]))
        return _Way(ends, (first, bytes_end), given, gone, by, came_at, at)

    def _traffic(self, way: _Way, begin: int, apart: int) -> Traffic:
        """The segments with bytes of a message, from its thread's call on."""
        near, there, far = way.ends
        begun, ended = way.message

        def own(packets: Rows, since: int) -> Packets:
            rows = slice(packets.since(since), packets.upto(way.ready + apart))
            seq, count = packets.columns["seq"][rows], packets.columns["bytes"][rows]
            first = np.maximum(_after(seq, begun), 0)
            end = np.minimum(_after(seq + count, begun), _after(ended, begun))
            columns = packets.ts[rows], packets.columns["err_ns"][rows], first, end
            return Packets(*(column[end > first] for column in columns))

        return Traffic(own(self._out[near], begin), own(there._in[far], begin - apart))

    def _held(
        self,
        ends: _Ends,
        message: tuple[int, int],
        given: int,
        gone: int,
        sender: int,
    ) -> tuple[Held, ...]:
        """How a message, given by where its bytes begin and end, was kept until it was gone.

        A segment that the sender's call sends at once was not kept. Each other one was since the
        one before it.
        """
        here = ends[0]
        out = self._out[here]
        earlier = out.since(given - _EARLIER_NS)
        rows = slice(out.since(given), out.upto(gone))
        columns = [out.columns[name][rows].tolist() for name in ("seq", "bytes", "tid")]
        found: list[Held] = []
        since = given
        for number, (ts, seq, count, by) in enumerate(
            zip(out.ts[rows].tolist(), *columns, strict=True), rows.start
        ):
            if count == 0 or _after(message[1], seq) <= 0:
                continue
            queued, queued_by, waited = self._queued_at(here, seq, ts, by)
            left = max(queued, since)
            before = [out.columns[name][earlier:number] for name in ("seq", "bytes")]
            again = np.flatnonzero((_after(seq, before[0]) >= 0) & (_after(sum(before), seq) > 0))
            if len(again):
                first = int(out.ts[earlier + again[0]])
                why = "sent again" + self._resent_by(here, seq, first, ts)
                why += self._dropped(ends, seq, first, ts)
                if _after(message[0], seq) > 0:
                    why = f"behind bytes before it, which were {why}"
            elif queued_by == sender and not self._acknowledged(here, since, left):
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
        of_it = np.flatnonzero((_after(seq, first) >= 0) & (_after(first + count, seq) > 0))
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
        of_it = np.flatnonzero(_after(seq, resends.columns["seq"][rows]) >= 0)
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
            for drop in ledger._drops.get(packets, ()):
                of_it = _after(seq, drop.seq) >= 0 and _after(drop.seq + drop.bytes, seq) > 0
                if first <= drop.ts <= gone and of_it:
                    return f"; {host} dropped it: {drop.why}"
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
        if int(_after(seq + count, was["snd_una"])) > was["snd_wnd"]:
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


def _drops(run: Run, repeat: int, kernel: str) -> dict[Connection, list[_Drop]]:
    """The segments that a kernel dropped, by namespace, source and target."""
    found: dict[Connection, list[_Drop]] = {}
    if _DROPS not in run.tables or "seq" not in run.relation(_DROPS).columns:
        return found
    texts = ", ".join(f"{name}::VARCHAR AS {name}" for name in ("source", "target", "reason"))
    columns = f'ts, netns, seq, bytes, protocol, {texts}, "function"::VARCHAR AS function'
    rows = rows_of(run, _DROPS, repeat, kernel, columns)
    for row in rows.filter(pc.equal(rows["protocol"], _TCP)).to_pylist():
        if not row["reason"].startswith(_HAD_BEFORE):
            why = reason_text(row["reason"], row["function"])
            packets = row["netns"], row["source"], row["target"]
            found.setdefault(packets, []).append(_Drop(row["ts"], row["seq"], row["bytes"], why))
    return found


def _after(seq: Integers | int, other: Integers | int) -> Integers:
    """By how much sequence numbers are after others; negative where they are before."""
    half = 1 << 31
    return (np.asarray(seq, np.int64) - other + half) % (1 << 32) - half
