"""On what the threads of a machine slept, from the records of a program in its kernel.

All times are ns of the kernel's own place on the global time line.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from loopscope.analysis.kernels import rows_of

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.timeline import Run

_TABLES = ("kernel.interruptible_sleep", "kernel.uninterruptible_sleep")
_FAULT = "page_fault"


class Sleeps:
    """The sleeps of a kernel's threads in one repeat; none where they were not recorded."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the table cannot be read."""
        self._found: dict[int, tuple[Nanoseconds, list[str], list[int]]] = {}
        every = []
        for table in _TABLES:
            if table in run.tables:
                # Runs of older versions do not have it.
                has_holder = "holder" in run.relation(table).columns
                holder = f"{'holder' if has_holder else 0}::BIGINT AS holder"
                columns = f"ts, tid, syscall::VARCHAR AS syscall, stack::VARCHAR AS stack, {holder}"
                every.append(rows_of(run, table, repeat, kernel, columns))
        if not every:
            return
        rows = pa.concat_tables(every).sort_by("ts")
        times, tids, holders = (rows[name].to_numpy() for name in ("ts", "tid", "holder"))
        told = map(in_words, rows["syscall"].to_pylist(), rows["stack"].to_pylist())
        words = np.array(list(told), dtype=object)
        for tid in np.unique(tids).tolist():
            of_thread = tids == tid
            found = words[of_thread].tolist(), holders[of_thread].tolist()
            self._found[tid] = (times[of_thread], *found)

    def on(self, scheduling: Scheduling, tid: int, until: int) -> str:
        """In what a thread slept that was asleep before an instant, in words: `in fdatasync (…)`.

        Empty where no record tells.
        """
        place = self._before(scheduling, tid, until)
        return "" if place is None else self._found[tid][1][place]

    def holder(self, scheduling: Scheduling, tid: int, until: int) -> int | None:
        """The thread that held what a thread slept for, by the words of a futex; see `on`.

        None where they do not say it. Other words may look like those of a mutex: then it is no
        thread of the program.
        """
        place = self._before(scheduling, tid, until)
        return None if place is None else self._found[tid][2][place] or None

    def _before(self, scheduling: Scheduling, tid: int, until: int) -> int | None:
        """The record of the sleep of a thread that was asleep before an instant."""
        if tid not in self._found:
            return None
        times = self._found[tid][0]
        place = int(np.searchsorted(times, until, side="right")) - 1
        # It is of this sleep if the thread has not come onto a processor since.
        came = scheduling.came_before(tid, until)
        is_other = place < 0 or (came is not None and times[place] < came)
        return None if is_other else place


@cache
def in_words(syscall: str, stack: str) -> str:
    """`in fdatasync (jbd2_log_wait_commit)`, of a record's texts; the innermost function is first.

    Functions that only give the processor away are left out, and one that is called like the system
    call.
    """
    known = (name for name in stack.split(";") if name not in ("", "?"))
    functions = [name for name in known if "schedule" not in name]
    innermost = f" ({functions[0]})" if functions else ""
    if syscall and syscall.removeprefix("clock_") in innermost:
        innermost = ""
    if any(_FAULT in name for name in functions):
        return f"in a page fault{innermost}"
    if syscall:
        return f"in {syscall}{innermost}"
    return f"in {functions[0]}" if functions else ""
