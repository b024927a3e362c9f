"""The tables of a kernel's events, from plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa

from loopscope.analysis.scheduling import Scheduling
from loopscope.timeline.loss import KernelGap

KSOFTIRQD = 40
SLEEPS, PREEMPTED = 1, 0
IN_SOFTIRQ = 16
NET_RX = 3


Served = tuple[int, int | None, int | None]
"""Processor, start and end of an interrupt; None: that event is lost."""


class Kernel:
    """The tables of a kernel's events, as a run offers them."""

    def __init__(
        self,
        switches: Sequence[tuple[int, int, int, int, int]],
        wakings: Sequence[tuple[int, int, int, int, int]] = (),
        timers: Sequence[Served] = (),
        raises: Sequence[tuple[int, int, int, int]] = (),
        served: Sequence[Served] = (),
        throttled: Sequence[tuple[int, int]] | None = None,
        names: Mapping[int, str] = MappingProxyType({KSOFTIRQD: "ksoftirqd/0"}),
    ) -> None:
        """Switches: time, processor, thread that goes, its state, thread that comes.

        Wakings: time, processor, thread in which it happens, thread that is woken, flags. Timers:
        processor, start, end. Of NET_RX, raises: time, processor, thread, flags; served: processor,
        start, end; None: that event is lost. Throttled: time, thread; None: not recorded. The
        counter is 3 times the time.
        """
        self._con = duckdb.connect()
        columns: dict[str, list[dict[str, Any]]] = {
            "kernel.sched_switch": [
                {
                    "ts": ts,
                    "counter": 3 * ts,
                    "cpu": cpu,
                    "prev_tid": prev,
                    "prev_state": state,
                    "next_tid": come,
                    "next_comm": names.get(come, f"thread-{come}"),
                }
                for ts, cpu, prev, state, come in switches
            ],
            "kernel.sched_waking": [
                {
                    "ts": ts,
                    "counter": 3 * ts,
                    "cpu": cpu,
                    "tid": by,
                    "task": woken,
                    "common_flags": flags,
                }
                for ts, cpu, by, woken, flags in wakings
            ],
            "kernel.local_timer_entry": [
                {"ts": start, "counter": 3 * start, "cpu": cpu}
                for cpu, start, _ in timers
                if start is not None
            ],
            "kernel.local_timer_exit": [
                {"ts": end, "counter": 3 * end, "cpu": cpu}
                for cpu, _, end in timers
                if end is not None
            ],
            "kernel.softirq_raise": [
                {
                    "ts": ts,
                    "counter": 3 * ts,
                    "cpu": cpu,
                    "vec": NET_RX,
                    "tid": by,
                    "common_flags": flags,
                }
                for ts, cpu, by, flags in raises
            ],
            "kernel.softirq_entry": [
                {"ts": start, "counter": 3 * start, "cpu": cpu, "vec": NET_RX}
                for cpu, start, _ in served
                if start is not None
            ],
            "kernel.softirq_exit": [
                {"ts": end, "counter": 3 * end, "cpu": cpu, "vec": NET_RX}
                for cpu, _, end in served
                if end is not None
            ],
        }
        if throttled is not None:
            columns["kernel.throttled"] = [
                {"ts": ts, "counter": 3 * ts, "tid": tid} for ts, tid in throttled
            ]
        columns_of_all = ("ts", "counter", "cpu", "tid", "task", "common_flags", "vec")
        empty = dict.fromkeys(columns_of_all, 0)
        self._tables = {}
        for name, rows in columns.items():
            filled = [{"repeat": 1, "host": "_kernel", **row} for row in rows or [empty]]
            table = pa.Table.from_pylist(filled)
            self._tables[name] = table if rows else table.slice(0, 0)
        self.tables = list(self._tables)
        self.kernel_gaps: dict[tuple[int, str], dict[str, list[KernelGap]]] = {}

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        return self._con.from_arrow(self._tables[name])

    def scheduling(self) -> Scheduling:
        return Scheduling(self, 1, "_kernel")  # type: ignore[arg-type]
