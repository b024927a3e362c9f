"""The segments of TCP that a kernel dropped, from the events of class ``drop``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc

from loopscope.analysis.drop_reasons import reason_text
from loopscope.analysis.kernels import rows_of
from loopscope.analysis.ledger import TCP, after

if TYPE_CHECKING:
    from loopscope.timeline import Run

_TABLE = "kernel.packet_drop"
# What TCP drops because it has had it before.
_HAD_BEFORE = ("TCP_OLD_", "TCP_OFO")

Connection = tuple[int, str, str]
"""Network namespace, local address, remote address."""


class _Drop(NamedTuple):
    """The kernel dropped a segment."""

    ts: int
    seq: int
    bytes: int
    why: str


class TcpDrops:
    """The segments that a kernel dropped in one repeat; none where that was not recorded."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the table cannot be read."""
        self._found: dict[Connection, list[_Drop]] = {}
        if _TABLE not in run.tables or "seq" not in run.relation(_TABLE).columns:
            return
        texts = ", ".join(f"{name}::VARCHAR AS {name}" for name in ("source", "target", "reason"))
        columns = f'ts, netns, seq, bytes, protocol, {texts}, "function"::VARCHAR AS function'
        rows = rows_of(run, _TABLE, repeat, kernel, columns)
        for row in rows.filter(pc.equal(rows["protocol"], TCP)).to_pylist():
            if not row["reason"].startswith(_HAD_BEFORE):
                why = reason_text(row["reason"], row["function"])
                packets = row["netns"], row["source"], row["target"]
                drop = _Drop(row["ts"], row["seq"], row["bytes"], why)
                self._found.setdefault(packets, []).append(drop)

    def why(self, packets: Connection, seq: int, first: int, last: int) -> str:
        """Why a byte was dropped between two times, in words; empty: no drop of it is told.

        ``packets``: the namespace, where they came from, and where they went.
        """
        for drop in self._found.get(packets, ()):
            of_it = after(seq, drop.seq) >= 0 and after(drop.seq + drop.bytes, seq) > 0
            if first <= drop.ts <= last and of_it:
                return drop.why
        return ""
