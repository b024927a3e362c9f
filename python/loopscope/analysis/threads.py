"""The component and host that each thread of a machine belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.analysis.kernel_result import SHARED
from loopscope.timeline.relation import literal

if TYPE_CHECKING:
    from loopscope.timeline import Run

_FORKS = "kernel.sched_process_fork"


class Threads:
    """The components' threads, and those that they started in turn, on one kernel."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """`kernel` is the host's whose it is, or `SHARED`."""
        self._first: dict[int, str] = {
            each.pid: f"{each.component} of {each.host}"
            for each in run.exits
            if each.repeat == repeat and each.pid is not None and kernel in (SHARED, each.host)
        }
        self._component = dict(self._first)
        if _FORKS in run.tables:
            here = f"repeat = {repeat} AND host = {literal(kernel)}"
            rows = run.relation(_FORKS).filter(here).order("ts")
            for parent, child in rows.project("parent_tid, child_tid").fetchall():
                if parent in self._component:
                    self._component[child] = self._component[parent]

    def are_of_one(self, tid: int, other: int) -> bool:
        """Whether two threads are of one component."""
        component = self._component.get(tid)
        return component is not None and component == self._component.get(other)

    def named(self, tid: int, name: str, process: int | None = None) -> str:
        """A thread for people: its component, or the name that the kernel has for it.

        ``process`` is its process's, where that is known; a component's first one has its number.
        """
        component = self._component.get(tid) or self._component.get(process or tid)
        if component is None:
            return name
        return component if tid in self._first else f"{component} ({name})"
