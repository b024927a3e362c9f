"""Events of programs that record nothing themselves, as they are told from the kernel's events."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from loopscope import layout
from loopscope.control.kernel_tables import FORKS, KernelTables, Losses, owners, recorded
from loopscope.experiment import Experiment, kernel_events

_COLUMNS = {
    "ts": pa.int64(),
    "err_ns": pa.int64(),
    "counter": pa.uint64(),
    "host": pa.string(),
    "process": pa.string(),
    "pid": pa.uint32(),
    "tid": pa.uint32(),
    "cpu": pa.uint16(),
    "id": pa.int64(),
}
"""Columns that programs' own events have too; counter and pid are null."""


class Stamp(NamedTuple):
    """When and where something happened."""

    kernel: str
    ts: int
    err_ns: int
    tid: int
    cpu: int


@dataclass(frozen=True)
class Kernel:
    """A kernel that was recorded."""

    name: str
    tables: KernelTables
    absent: set[str]
    """Tracepoints that it has not."""
    losses: Losses
    threads: dict[int, tuple[str, str]]
    """Host and component of the run's threads."""

    def has(self, kind: str) -> bool:
        """Whether the events of a class were recorded."""
        return kind in self.losses.of_class and not self.absent & {*kernel_events.CLASSES[kind]}

    def threads_lost(self) -> bool:
        """Whether threads may be the run's of which that is not known."""
        return self.losses.of(*FORKS) > 0


def kernels(experiment: Experiment, repeat: Path, made: Path) -> list[Kernel]:
    """The kernels of a repeat that were recorded; ``made`` is the folder with its time line."""
    found = []
    for name, absent in recorded(repeat).items():
        tables = KernelTables(made, name)
        threads = owners(experiment, repeat, tables)
        found.append(Kernel(name, tables, absent, tables.losses(), threads))
    return found


def write_events(
    out: Path, group: str, name: str, rows: list[dict[str, Any]], **columns: pa.DataType
) -> None:
    """Writes the table of an event, if there are any; ``columns`` are those besides the usual."""
    if rows:
        schema = pa.schema(_COLUMNS | columns)
        table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["ts"]), schema)
        file = out / layout.EVENTS / group / name / "part-0.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file, compression="zstd")
