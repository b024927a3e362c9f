"""The tables of a kernel's events in a time line that is being made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loopscope import layout
from loopscope.experiment import Experiment
from loopscope.strict_json import from_json

_GROUP = "kernel"
FORKS = "sched", "sched_process_fork"
"""Class and name of the event that tells who started a thread."""


@dataclass(frozen=True)
class Losses:
    """Events that were lost."""

    of_class: Counter[str]
    """Those that may be any of their class; it has each class that was recorded."""
    of_event: Counter[str]
    """Those that are known, by ``kernel:NAME``."""
    uncounted: bool
    """Whether there may be more."""

    def of(self, kind: str, *events: str) -> int:
        """The most that were lost of some events of a class."""
        return self.of_class[kind] + sum(self.of_event[f"kernel:{event}"] for event in events)


class KernelTables:
    """The events of one kernel."""

    def __init__(self, made: Path, kernel: str) -> None:
        """``made`` is the folder with the time line, ``kernel`` the host's name whose it is."""
        self._made = made
        self.kernel = kernel

    def table(self, event: str, *columns: str) -> pa.Table:
        """Columns of the rows of an event, in the counter's order; no rows where it has none."""
        names = ["host", "counter", *columns]
        parts = [
            pq.read_table(file, columns=list(dict.fromkeys(names)))
            for file in layout.event_files(self._made, _GROUP, event)
        ]
        if not parts:
            return pa.table({name: pa.array([], pa.int64()) for name in names})
        table = pa.concat_tables(parts)
        return table.filter(pc.equal(table["host"], self.kernel)).sort_by("counter")

    def losses(self) -> Losses:
        """What was lost of each class that was recorded, by the kernel's account."""
        file = self._made / "hosts" / self.kernel / "kernel" / "loss.json"
        if not file.exists():
            return Losses(Counter(), Counter(), uncounted=True)
        processes = from_json(file.read_text(encoding="utf-8"))["processes"]
        uncounted = any(each.get("unknown") for each in processes)
        found = Losses(Counter(), Counter(), uncounted)
        for each in processes:
            of_class = each["process"].removeprefix("kernel ")
            known = {site["entity"]: sum(site["dropped"].values()) for site in each["sites"]}
            found.of_class[of_class] += each["dropped"] - sum(known.values())
            found.of_event.update(known)
        return found


def recorded(repeat: Path) -> dict[str, set[str]]:
    """The kernels of a repeat that were recorded, with the tracepoints that they have not.

    Without those that number threads otherwise than the programs see them.
    """
    file = repeat / layout.KERNELS
    if not file.exists():
        return {}
    kernels = from_json(file.read_text(encoding="utf-8"))["kernels"]
    return {
        name: set(found.get("absent", ()))
        for name, found in kernels.items()
        if "recorded" in found and found["threads_known"]
    }


def owners(
    experiment: Experiment, repeat: Path, tables: KernelTables
) -> dict[int, tuple[str, str]]:
    """Host and component of each thread of the run's on a kernel."""
    shared = tables.kernel not in experiment.hosts
    found = dict(_first(repeat, None if shared else tables.kernel))
    forks = tables.table(FORKS[1], "parent_tid", "child_tid")
    pairs = forks["parent_tid"].to_pylist(), forks["child_tid"].to_pylist()
    for parent, child in zip(*pairs, strict=True):
        if parent in found:
            found[child] = found[parent]
    return found


def _first(repeat: Path, host: str | None) -> Iterator[tuple[int, tuple[str, str]]]:
    """The first thread of each component of a host, or of all."""
    for file in sorted(repeat.glob(f"hosts/{host or '*'}/components/*/exit.json")):
        ended: dict[str, Any] = from_json(file.read_text(encoding="utf-8"))
        if ended.get("pid") is not None:
            yield ended["pid"], (file.parts[-4], file.parts[-2])
