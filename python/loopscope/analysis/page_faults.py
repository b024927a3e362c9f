"""The page faults of a machine's threads, from the kernel's events.

All times are ns of the kernel's own place on the global time line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.kernels import rows_of

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.timeline import Run

_TABLES = ("kernel.page_fault_user", "kernel.page_fault_kernel")


class PageFaults:
    """When a kernel's threads had page faults in one repeat. How long each took is not told."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where a table cannot be read."""
        tables = [table for table in _TABLES if table in run.tables]
        self._found: dict[int, Nanoseconds] = {}
        every = [rows_of(run, table, repeat, kernel, "ts, tid") for table in tables]
        times, tids = (
            np.concatenate([np.empty(0, np.int64), *(rows[name].to_numpy() for rows in every)])
            for name in ("ts", "tid")
        )
        self.recorded = len(times) > 0
        order = np.lexsort((times, tids))
        found, starts = np.unique(tids[order], return_index=True)
        of_threads = np.split(times[order], starts[1:])
        self._found = dict(zip(found.tolist(), of_threads, strict=True)) if len(found) else {}

    def count(self, tid: int, start: int, end: int) -> int:
        """How many a thread had from an instant until another one."""
        times = self._found.get(tid)
        if times is None:
            return 0
        first, last = times.searchsorted([start, end])
        return int(last - first)
