"""The component and host that each thread of a machine belongs to."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from typing import TYPE_CHECKING

from loopscope.analysis.kernel_result import SHARED
from loopscope.timeline.relation import literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopscope.timeline import Run

_FORKS = "kernel.sched_process_fork"
_EXITS = "kernel.sched_process_exit"
_EXITING_NS = 1_000_000_000
"""A thread that exits still has a processor for some time, as its memory is given back."""


class Threads:
    """The components' threads on one kernel.

    They are known by the first process of each component, by what these started in turn, and by the
    events of paths. A thread's number may be another one's after a fork or an exit of it: between
    two of these it is of one thread.
    """

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """`kernel` is the host's whose it is, or `SHARED`."""
        self._first: dict[int, str] = {
            each.pid: f"{each.component} of {each.host}"
            for each in run.exits
            if each.repeat == repeat and each.pid is not None and kernel in (SHARED, each.host)
        }
        self._changes: dict[int, list[int]] = defaultdict(list)
        """When a number was, or may have been, given to another thread, rising."""
        here = f"repeat = {repeat} AND host = {literal(kernel)}"
        forks = _rows(run, _FORKS, here, "ts, child_tid, parent_tid")
        exits = [(ts + _EXITING_NS, tid) for ts, tid in _rows(run, _EXITS, here, "ts, tid")]
        for ts, tid, *_ in [*forks, *exits]:
            insort(self._changes[tid], ts)
        self._component: dict[tuple[int, int], str] = {}
        """By a thread's number, and how many changes it has had before."""
        for tid, component, begin, end in _of_paths(run, repeat, kernel):
            for change in range(self._before(tid, begin), self._before(tid, end) + 1):
                self._component[tid, change] = component
        for ts, child, parent in forks:
            if (of_parent := self.component(parent, ts)) is not None:
                self._component[child, self._before(child, ts)] = of_parent

    def are_of_one(self, tid: int, other: int, at: int) -> bool:
        """Whether two threads are of one component at an instant."""
        component = self.component(tid, at)
        return component is not None and component == self.component(other, at)

    def component(self, tid: int, at: int | None = None) -> str | None:
        """The component that a thread is of at an instant, and its host; None: it is of none.

        ``at`` None: of the last thread of that number of which it is known.
        """
        changes = len(self._changes.get(tid, ())) if at is None else self._before(tid, at)
        while (tid, changes) not in self._component and at is None and changes:
            changes -= 1
        return self._component.get((tid, changes), self._first.get(tid))

    def named(self, tid: int, name: str, process: int | None = None, at: int | None = None) -> str:
        """A thread for people: its component, or the name that the kernel has for it.

        ``process`` is its process's, where that is known; a component's first one has its number.
        ``at`` as in `component`.
        """
        component = self.component(tid, at) or self.component(process or tid, at)
        if component is None:
            return name
        return component if tid in self._first else f"{component} ({name})"

    def _before(self, tid: int, at: int) -> int:
        return bisect_right(self._changes.get(tid, ()), at)


def _rows(run: Run, table: str, where: str, columns: str) -> list[tuple[int, ...]]:
    if table not in run.tables:
        return []
    return run.relation(table).filter(where).order("ts").project(columns).fetchall()


def _of_paths(run: Run, repeat: int, kernel: str) -> Iterator[tuple[int, str, int, int]]:
    """Threads that recorded the paths' events: number, component, first and last event."""
    paths = () if run.specification is None else run.specification.paths
    events = {(event.table, event.component) for path in paths for event in path.events}
    for table, component in sorted(events):
        if table not in run.tables:
            continue
        here = f"repeat = {repeat} AND process = {literal(component)} AND tid IS NOT NULL"
        rows = run.relation(table).filter(here)
        if kernel != SHARED:
            rows = rows.filter(f"host = {literal(kernel)}")
        found = rows.aggregate("tid, host::VARCHAR AS host, min(ts), max(ts)")
        for tid, host, begin, end in found.order("tid, host").fetchall():
            yield tid, f"{component} of {host}", begin, end
