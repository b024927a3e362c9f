"""The system calls of a machine's threads, from the records of a program in its kernel.

All times are ns of the kernel's own place on the global time line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.kernels import rows_of

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.critical_path import Part
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.timeline import Run

_TABLE = "kernel.system_call"


class Calls:
    """The system calls of a kernel's threads in one repeat; none where they were not recorded."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the table cannot be read."""
        self._found: dict[int, tuple[Nanoseconds, Nanoseconds, list[str]]] = {}
        if _TABLE not in run.tables:
            return
        columns = "ts, tid, duration_ns, syscall::VARCHAR AS syscall"
        rows = rows_of(run, _TABLE, repeat, kernel, columns)
        tids, ends = rows["tid"].to_numpy(), rows["ts"].to_numpy()
        begins = ends - rows["duration_ns"].to_numpy().astype(np.int64)
        names = np.array(rows["syscall"].to_pylist(), dtype=object)
        order = np.lexsort((ends, tids))
        found, starts = np.unique(tids[order], return_index=True)
        groups = np.split(order, starts[1:]) if len(found) else []
        for tid, of in zip(found.tolist(), groups, strict=True):
            self._found[tid] = (begins[of], ends[of], names[of].tolist())

    def named(self, tid: int, at: int) -> str | None:
        """The name of the call that a thread was in at an instant; None where it is not known."""
        if tid not in self._found:
            return None
        begins, ends, names = self._found[tid]
        place = int(ends.searchsorted(at))
        return names[place] if place < len(ends) and begins[place] <= at else None

    def cut(self, scheduling: Scheduling, part: Part) -> Iterator[Part]:
        """A part, in which a thread may be running, cut at the begins and ends of its calls.

        What it ran in a call has that as ``what``: ``in sendto``.
        """
        of_thread = self._found.get(-1 if part.tid is None else part.tid)
        if part.name != "running" or of_thread is None:
            yield part
            return
        if scheduling.lost("call", part.start, part.end):
            yield part
            return
        begins, ends, names = of_thread
        at = part.start
        for place in range(int(ends.searchsorted(part.start, side="right")), len(ends)):
            begin, end = max(int(begins[place]), at), min(int(ends[place]), part.end)
            if begin >= part.end:
                break
            if begin > at:
                yield replace(part, start=at, end=begin)
            if end > begin:
                yield replace(part, start=begin, end=end, what=f"in {names[place]}")
            at = max(at, end)
        if at < part.end:
            yield replace(part, start=at)
