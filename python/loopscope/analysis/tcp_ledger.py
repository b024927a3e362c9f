"""What the kernel's TCP did with the bytes of a message, from the events of class ``tcp``.

A thread wrote the bytes (``tcp_send``), and another one had read up to one of them (``tcp_read``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.kernels import rows_of
from loopscope.analysis.ledger import IN_QUEUE, Held, Hop, Rows, after, coded, groups
from loopscope.analysis.stream_ledger import (
    EARLIER_NS,
    FULL_WINDOW,
    UNTOLD,
    StreamLedger,
    Way,
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
# SK_PACING_NEEDED: the socket waits by timers of its own; SK_PACING_FQ: its device's queue paces
# it.
_PACED_BY_TCP, _PACED_BY_QUEUE = 1, 2
PACED = "its pacing"
PACED_OR_QUEUED = f"{PACED}, or the queue of its device"
"""Where the events do not tell when a segment was given to the queue."""

_TOLD_NS = 1_000_000
"""Time within which the kernel tells that it sent a segment again, after the segment."""


class TcpLedger(StreamLedger):
    """The sockets and segments of a kernel in one repeat."""

    PROTOCOL = "TCP"

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the tables cannot be read. `recorded` says whether they exist."""
        super().__init__()
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
        self._index()

    @staticmethod
    def recorded(run: Run) -> bool:
        """Whether a run has what it takes."""
        return set(TABLES) <= set(run.tables)

    def _drop_of(self, packets: Connection, seq: int, first: int, gone: int) -> str:
        return self._drops.why(packets, seq, first, gone)

    def _is_at_once(self, way: Way, hop: Hop, segment: tuple[int, int], by: int, at: Held) -> bool:
        del segment
        return by == hop.sender and not self._acknowledged(way.ends[0], at.start, at.end)

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

    def _queued_at(self, here: Connection, seq: int, gone: int, by: int) -> tuple[int, int, bool]:
        """When and in which thread a segment came into the queue of the device that it left.

        And whether it waited there: a segment passes an empty queue at once. So it is taken to have
        done where no event tells of the queue.
        """
        rows = self._queued.get(here) if self._queued is not None else None
        if rows is None:
            return gone, by, False
        of_time = slice(rows.since(gone - EARLIER_NS), rows.upto(gone))
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
        return super()._in_queue(here, at)

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

    def _kept(self, way: Way, hop: Hop, segment: tuple[int, int], at: Held) -> str:
        """Why a segment, given by its first byte and length, was not sent at once.

        The answer is in what the socket was like when the segment came that released it.
        """
        near, given, gone = way.ends[0], at.start, at.end
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
            return FULL_WINDOW
        if was["nagle_off"] & _CORKED:
            return "the program had set TCP_CORK"
        if under_way > 0 and count < was["mss"] and not was["nagle_off"] & _NODELAY:
            return self._nagle(way, int(rows.ts[last]), at)
        return paced
