"""The tables of accelerated programs' events, from plain Python."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from loopscope.analysis.ledger import Carried, Hop
from loopscope.analysis.stack_ledger import StackLedger

SENDER, RECEIVER, HELPER, OTHER = 10, 20, 30, 31
HERE, THERE = "10.77.0.1:4000", "10.77.0.2:5000"
MS = 1_000_000
WINDOW = 500
SPACE = 2**32


class End:
    """One end of a connection; sequence numbers are of ``base`` when they are written down."""

    def __init__(self, run: StackRun, host: str, process: str, number: int, of: range) -> None:
        self.run, self.host, self.base = run, host, of.start
        self.common = {"host": host, "process": process, "pid": 7, "id": number}
        self.written = self.read = 0
        """Bytes since it was taken."""

    def add(self, table: str, ts: int, tid: int, **columns: Any) -> None:
        numbers = ("seq", "ack", "write_seq", "copied_seq", "snd_una", "snd_nxt", "rcv_nxt")
        columns = {
            key: (value + self.base) % SPACE if key in numbers else value
            for key, value in columns.items()
        }
        row = {"repeat": 1, "counter": 3 * ts, "tid": tid, "err_ns": 0}
        self.run.rows.setdefault(f"stack.{table}", []).append(self.common | row | columns)

    def taken(self, local: str, remote: str, ts: int = 1) -> End:
        self.add(
            "taken", ts, SENDER, local=local, remote=remote, write_seq=0, copied_seq=0, snd_una=0,
            snd_nxt=0, rcv_nxt=0, fd=3,
        )  # fmt: skip
        return self

    def write(self, ts: int, count: int, tid: int = SENDER) -> None:
        self.add("write", ts, tid, seq=self.written, bytes=count, offset=self.written)
        self.written += count

    def take(self, ts: int, count: int, tid: int = RECEIVER) -> None:
        """The program reads."""
        self.add("read", ts, tid, seq=self.read, bytes=count, offset=self.read)
        self.read += count

    def out(
        self, ts: int, seq: int, count: int, tid: int = SENDER, again: int = 0, cut: int = 0
    ) -> None:
        self.add(
            "segment_sent", ts, tid, seq=seq, ack=0, window=WINDOW, bytes=count, segment=cut,
            tcp_flags=16, retransmission=again,
        )  # fmt: skip

    def came(
        self, ts: int, seq: int, count: int, tid: int = RECEIVER, ack: int = 0, window: int = WINDOW
    ) -> None:
        self.add(
            "segment_received", ts, tid, seq=seq, ack=ack, window=window, bytes=count, tcp_flags=16
        )

    def acknowledged(self, ts: int, ack: int, tid: int = SENDER, window: int = WINDOW) -> None:
        self.came(ts, 0, 0, tid, ack, window)

    def timer(self, ts: int, name: str, tid: int = HELPER) -> None:
        self.add("timer", ts, tid, timer=name)

    def call(self, table: str, ts: int, tid: int = SENDER) -> None:
        """``wait``, ``sleep`` or ``woken``."""
        self.add(table, ts, tid)


class StackRun:
    """The events of two hosts, as a run offers them."""

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._con = duckdb.connect()
        self._ledgers: tuple[int, StackLedger, StackLedger] | None = None
        """Those of so many events."""
        names = "taken write read segment_sent segment_received timer wait sleep woken"
        self.tables = [f"stack.{name}" for name in names.split()]

    def end(self, host: str, process: str, number: int = 1) -> End:
        return End(self, host, process, number, range(self.base, self.base + 1))

    def pair(self, here: str = HERE, there: str = THERE, number: int = 1) -> tuple[End, End]:
        """The ends of a connection from `here` on h1 to `there` on h2."""
        ends = self.end("h1", "source", number), self.end("h2", "sink", number)
        return ends[0].taken(here, there), ends[1].taken(there, here)

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        columns = (
            "repeat host process pid id tid counter err_ns local remote write_seq copied_seq "
            "snd_una snd_nxt rcv_nxt fd seq ack window bytes offset segment tcp_flags "
            "retransmission timer"
        ).split()
        texts = ("host", "process", "local", "remote", "timer")
        empty = {name: "" if name in texts else 0 for name in columns}
        found = [empty | row for row in self.rows.get(name, ())]
        table = pa.Table.from_pylist(found or [empty])
        return self._con.from_arrow(table if found else table.slice(0, 0))

    def ledger(self, host: str) -> StackLedger:
        def times_of(counters: Any) -> Any:
            return np.asarray(counters) // 3

        return StackLedger(self, 1, host, times_of)  # type: ignore[arg-type]

    def carried(
        self,
        begin: int = 1_000,
        until: int | None = None,
        end: int = 500 * MS,
        *,
        packets: bool = False,
        sender: int = SENDER,
        receiver: int = RECEIVER,
    ) -> Carried | None:
        hop = Hop(sender, receiver, begin, until, end)
        count = sum(map(len, self.rows.values()))
        if self._ledgers is None or self._ledgers[0] != count:
            self._ledgers = count, self.ledger("h1"), self.ledger("h2")
        return self._ledgers[1].carried(hop, self._ledgers[2], packets=packets)
