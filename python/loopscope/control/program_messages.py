"""The messages of programs that record nothing themselves, told from the kernel's events.

``trace.messages`` of the experiment says what is a message; its events get tables as those have
that programs record.
"""

from __future__ import annotations

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

    ``made`` is the folder with its time line. How many there are, and may be missing on each
    kernel, goes into the summary as ``messages``, what is wrong to its problems. Raises OSError
    where a table cannot be written.
    """
    if not experiment.messages:
        return
    summary["messages"] = {}
    kernels = [_kernel(experiment, repeat, made, *each) for each in recorded(repeat).items()]
    to_port = [(each.protocol, each.port) for each in experiment.messages if not each.from_port]
    for messages in experiment.messages:
        there = {kernel.name: kernel for kernel in kernels if kernel.has(messages.protocol)}
        # The kernel has the number of the kind to a port where a message is of two kinds.
        elsewhere = [port for protocol, port in to_port if protocol == messages.protocol]
        tables = [kernel.tables for kernel in there.values()]
        found = FINDERS[messages.protocol](tables, messages, elsewhere)
        lost = {name: kernel.dropped[messages.protocol] for name, kernel in there.items()}
        if any(lost.values()):
            found.unknown += len(found.read)
            found.read.clear()
            problem = (
                f"{sum(lost.values())} events of class {messages.protocol} found no room, so it is "
                "not known which messages programs read"
            )
            summary["problems"].append(_problem(max(lost, key=lost.__getitem__), messages, problem))
        elif found.unknown:
            problem = f"of {found.unknown} messages it is not known who read them"
            summary["problems"].append(_problem(next(iter(there)), messages, problem))
        about = {}
        unread = {_SENT: 0, _RECEIVED: found.unknown}
        for name, seen in zip(OF_MESSAGES, (found.sent, found.read), strict=True):
            rows = []
            missing = dict.fromkeys(there, unread[name])
            for kernel in there.values():
                of_kernel = [each for each in seen if each[0].kernel == kernel.name]
                added, numberless, others = _rows(of_kernel, messages, kernel.threads)
                rows += added
                missing[kernel.name] += lost[kernel.name] + numberless
                # The others are of programs that are none of the run's, unless it was lost who
                # started them.
                missing[kernel.name] += others if kernel.dropped.get("sched", 1) else 0
                if numberless:
                    problem = f"{numberless} that were {name} are too short to have a number"
                    summary["problems"].append(_problem(kernel.name, messages, problem))
            _write(out, messages.name, name, rows)
            about[name] = {"events": len(rows), "missing": missing}
        summary["messages"][messages.name] = about


def _problem(kernel: str, messages: ProgramMessages, what: str) -> dict[str, str]:
    return {"host": kernel, "file": f"messages {messages.name}", "what": what}


@dataclass(frozen=True)
class _Kernel:
    """A kernel that was recorded."""

    name: str
    tables: KernelTables
    absent: set[str]
    """Tracepoints that it has not."""
    dropped: dict[str, int]
    """Events that found no room, by class."""
    threads: dict[int, tuple[str, str]]
    """Host and component of the run's threads."""

    def has(self, protocol: str) -> bool:
        """Whether the events of a protocol were recorded."""
        return protocol in self.dropped and not self.absent & {*kernel_events.CLASSES[protocol]}


def _kernel(
    experiment: Experiment, repeat: Path, made: Path, name: str, absent: set[str]
) -> _Kernel:
    tables = KernelTables(made, name)
    threads = owners(experiment, repeat, tables)
    return _Kernel(name, tables, absent, tables.dropped(), threads)


def _rows(
    seen: list[tuple[Stamp, Content]],
    messages: ProgramMessages,
    threads: dict[int, tuple[str, str]],
) -> tuple[list[dict[str, Any]], int, int]:
    """The rows of the events of some threads' components.

    And how many of them have no number, and how many events are of other threads.
    """
    number = messages.number or {"width": 8, "order": "little"}
    mine = [(*each, *threads[each[0].tid]) for each in seen if each[0].tid in threads]
    rows = [
        {
            **stamp._asdict(),
            "host": host,
            "process": component,
            "id": _number(content.word, number["width"], number["order"]),
            "bytes": content.bytes,
        }
        for stamp, content, host, component in mine
        if content.word_bytes >= number["width"]
    ]
    return rows, len(mine) - len(rows), len(seen) - len(mine)


def _number(word: int, width: int, order: Literal["little", "big"]) -> int:
    """The number in the first bytes of a word; one of eight bytes is a signed one."""
    return int.from_bytes(word.to_bytes(8, "little")[:width], order, signed=width == 8)


def _write(out: Path, group: str, name: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["ts"]), SCHEMA)
        file = out / layout.EVENTS / group / name / "part-0.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file, compression="zstd")
