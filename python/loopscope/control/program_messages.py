"""The messages of programs that record nothing themselves, told from the kernel's events.

``trace.messages`` of the experiment says what is a message; its events get tables as those have
that programs record.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from loopscope import layout
from loopscope.control.found_messages import FINDERS, Content, Stamp
from loopscope.control.kernel_tables import KernelTables, owners, recorded
from loopscope.experiment import Experiment, kernel_events
from loopscope.experiment.event_values import OF_MESSAGES
from loopscope.experiment.plan import ProgramMessages

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("err_ns", pa.int64()),
        ("counter", pa.uint64()),
        ("host", pa.string()),
        ("process", pa.string()),
        ("pid", pa.uint32()),
        ("tid", pa.uint32()),
        ("cpu", pa.uint16()),
        ("id", pa.int64()),
        ("bytes", pa.uint32()),
    ]
)
"""Columns of the events, those that programs' own have; counter and pid are null."""
_SENT, _RECEIVED = OF_MESSAGES


def write_messages(
    experiment: Experiment, repeat: Path, made: Path, out: Path, summary: dict[str, Any]
) -> None:
    """Writes the tables of a repeat's ``trace.messages`` into ``out``.

    ``made`` is the folder with its time line. How many there are, and may be missing, goes into the
    summary as ``messages``, what is wrong to its problems. Raises OSError where a table cannot be
    written.
    """
    if not experiment.messages:
        return
    summary["messages"] = {}
    kernels = [
        _Kernel(
            kernel, tables, absent, tables.dropped(), owners(experiment, repeat, tables, kernel)
        )
        for kernel, absent in sorted(recorded(repeat).items())
        for tables in [KernelTables(made, kernel)]
    ]
    to_port = [(each.protocol, each.port) for each in experiment.messages if not each.from_port]
    for messages in experiment.messages:
        # Of a message that is of two kinds the kernel has the number of the one to a port.
        elsewhere = [port for protocol, port in to_port if protocol == messages.protocol]
        parts = [kernel.events(messages, elsewhere) for kernel in kernels]
        about = {}
        for name in OF_MESSAGES:
            rows = [row for part in parts for row in part.rows[name]]
            _write(out, messages.name, name, rows)
            missing = [part.missing[name] for part in parts]
            whole = None if None in missing or not missing else sum(map(int, filter(None, missing)))
            about[name] = {"events": len(rows), "missing": whole}
        summary["messages"][messages.name] = about
        summary["problems"] += [
            {"host": kernel.name, "file": f"messages {messages.name}", "what": what}
            for kernel, part in zip(kernels, parts, strict=True)
            for what in part.problems
        ]


@dataclass
class _Events:
    """The events of some messages on one kernel, by `OF_MESSAGES`."""

    rows: dict[str, list[dict[str, Any]]]
    missing: dict[str, int | None]
    """The most that may be missing; None: there may be any number."""
    problems: list[str]


@dataclass
class _Kernel:
    name: str
    tables: KernelTables
    absent: set[str]
    dropped: dict[str, int]
    threads: dict[int, tuple[str, str]]

    def events(self, messages: ProgramMessages, elsewhere: Collection[int]) -> _Events:
        """The events of some messages; of those from a port not of what goes to ``elsewhere``."""
        protocol = messages.protocol
        needed = set(kernel_events.CLASSES[protocol])
        if protocol not in self.dropped or needed & self.absent:
            nothing: dict[str, list[dict[str, Any]]] = {name: [] for name in OF_MESSAGES}
            return _Events(nothing, dict.fromkeys(OF_MESSAGES), [])
        found = FINDERS[protocol](self.tables, messages, elsewhere)
        problems = []
        lost = self.dropped[protocol]
        if lost:
            found.unknown += len(found.read)
            found.read.clear()
            problems.append(
                f"{lost} events of class {protocol} found no room, so it is not known which "
                "messages programs read"
            )
        elif found.unknown:
            problems.append(f"of {found.unknown} messages it is not known who read them")
        rows, missing = {}, {}
        unread = {_SENT: 0, _RECEIVED: found.unknown}
        for name, seen in zip(OF_MESSAGES, (found.sent, found.read), strict=True):
            threads = self.threads
            mine = [(*each, threads[each[0].tid]) for each in seen if each[0].tid in threads]
            rows[name], numberless = _rows(mine, messages)
            # The others are of programs that are none of the run's, unless it was lost who started
            # them.
            others = len(seen) - len(mine) if self.dropped.get("sched", 1) else 0
            missing[name] = lost + unread[name] + numberless + others
            if numberless:
                problems.append(f"{numberless} that were {name} are too short to have a number")
        return _Events(rows, dict(missing), problems)


def _rows(
    seen: list[tuple[Stamp, Content, tuple[str, str]]], messages: ProgramMessages
) -> tuple[list[dict[str, Any]], int]:
    """The rows of the events of some components, and how many messages have no number."""
    number = messages.number or {"width": 8, "order": "little"}
    rows = [
        {
            **stamp._asdict(),
            "host": host,
            "process": component,
            "id": _number(content.word, number["width"], number["order"]),
            "bytes": content.bytes,
        }
        for stamp, content, (host, component) in seen
        if content.word_bytes >= number["width"]
    ]
    return rows, len(seen) - len(rows)


def _number(word: int, width: int, order: Literal["little", "big"]) -> int:
    """The number in the first bytes of a word; one of eight bytes is a signed one."""
    return int.from_bytes(word.to_bytes(8, "little")[:width], order, signed=width == 8)


def _write(out: Path, group: str, name: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["ts"]), SCHEMA)
        file = out / layout.EVENTS / group / name / "part-0.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file, compression="zstd")
