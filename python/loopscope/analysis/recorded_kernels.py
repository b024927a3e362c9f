"""The kernels of a run of which there are events of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.analysis.kernel_result import SHARED
from loopscope.analysis.scheduling import Scheduling

if TYPE_CHECKING:
    from loopscope.timeline import Run

SCHEDULER = ("kernel.sched_switch", "kernel.sched_waking")
"""The tables without which nothing can be said."""


class NothingRecordedError(Exception):
    """The run has none of the kernel's events that it takes; the text says so, and what to do."""


class NoSchedulerError(NothingRecordedError):
    """The run has no events of the scheduler."""

    def __init__(self, run: Run) -> None:
        super().__init__(
            f"{run.path} has no events of the kernel's scheduler: record them with "
            "`kernel: [sched:*, irq:*, softirq:*]` in the experiment's `trace`, as root"
        )


class RecordedKernels:
    """Those of all repeats, each read once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._recorded = hosts_of(run, SCHEDULER[0]) if has_events(run) else set()
        self._read: dict[tuple[int, str], Scheduling] = {}

    def name_of(self, repeat: int, host: str) -> str:
        """The name of a host's kernel, which may be that of several."""
        return host if (repeat, host) in self._recorded else SHARED

    def of(self, repeat: int, host: str) -> Scheduling | None:
        """A host's kernel. None: it was not recorded. Raises `RunError`."""
        key = repeat, self.name_of(repeat, host)
        if key not in self._recorded:
            return None
        if key not in self._read:
            self._read[key] = Scheduling(self._run, *key)
        return self._read[key]


def has_events(run: Run) -> bool:
    """Whether the scheduler's events were recorded."""
    return all(table in run.tables for table in SCHEDULER)


def hosts_of(run: Run, table: str) -> set[tuple[int, str]]:
    """The repeats and hosts of which a table has rows."""
    if table not in run.tables:
        return set()
    return set(run.relation(table).project("repeat, host").distinct().fetchall())
