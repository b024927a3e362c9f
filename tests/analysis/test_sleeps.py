"""On what threads slept, by the records of programs in the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from loopscope.analysis.sleeps import Sleeps, in_words


class Kernel:
    """Records of sleeps, as a run offers them: time, thread, system call, stack of each.

    Those in which a program waits also have who holds that, in runs of today.
    """

    def __init__(
        self,
        interruptible: list[tuple[int, int, str, str, int]] | list[tuple[int, int, str, str]],
        uninterruptible: list[tuple[int, int, str, str]],
    ) -> None:
        self._con = duckdb.connect()
        self._tables = {
            "kernel.interruptible_sleep": self._table(interruptible),
            "kernel.uninterruptible_sleep": self._table(uninterruptible),
        }
        self.tables = [name for name, table in self._tables.items() if len(table)]

    def _table(self, rows: Sequence[tuple[int | str, ...]]) -> pa.Table:
        names = ("ts", "tid", "syscall", "stack", "holder")
        filled: list[dict[str, Any]] = [
            dict(zip(names, row, strict=False))
            | {"repeat": 1, "host": "_kernel", "counter": 3 * int(row[0])}
            for row in rows
        ]
        return pa.Table.from_pylist(filled)

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        return self._con.from_arrow(self._tables[name])


class Comes:
    """When threads came onto a processor."""

    def __init__(self, times: list[int]) -> None:
        self._times = times

    def came_before(self, tid: int, at: int) -> int | None:
        return max((time for time in self._times if time < at), default=None)


def test_the_sleep_that_ended_last_is_the_one_that_is_told() -> None:
    kernel = Kernel([(100, 7, "futex", ""), (500, 7, "recvfrom", "")], [(300, 7, "fsync", "a;b")])
    sleeps = Sleeps(kernel, 1, "_kernel")  # type: ignore[arg-type]
    scheduling: Any = Comes([50, 200, 400])
    assert sleeps.on(scheduling, 7, 150) == "in futex"
    assert sleeps.on(scheduling, 7, 350) == "in fsync (a)"
    assert sleeps.on(scheduling, 7, 600) == "in recvfrom"
    # The record of its last sleep was lost: an earlier one tells nothing of it.
    assert sleeps.on(Comes([50, 200, 400, 550]), 7, 600) == ""  # type: ignore[arg-type]
    assert sleeps.on(scheduling, 8, 600) == "" and sleeps.on(scheduling, 7, 90) == ""


def test_a_lock_has_its_holder_where_its_words_say_it() -> None:
    slept = [(100, 7, "futex", "", 9), (500, 7, "futex", "", 0)]
    kernel = Kernel(slept, [(300, 7, "fsync", "a;b")])
    sleeps = Sleeps(kernel, 1, "_kernel")  # type: ignore[arg-type]
    scheduling: Any = Comes([50, 200, 400])
    assert sleeps.holder(scheduling, 7, 150) == 9
    for until in (350, 600, 90):
        assert sleeps.holder(scheduling, 7, until) is None
    # Runs of older versions did not record it.
    older = Sleeps(Kernel([(100, 7, "futex", "")], []), 1, "_kernel")  # type: ignore[arg-type]
    assert older.holder(scheduling, 7, 150) is None and older.on(scheduling, 7, 150) == "in futex"


def test_without_records_nothing_is_told() -> None:
    sleeps = Sleeps(Kernel([], []), 1, "_kernel")  # type: ignore[arg-type]
    assert sleeps.on(Comes([]), 7, 600) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("syscall", "stack", "words"),
    [
        ("futex", "", "in futex"),
        ("clock_nanosleep", "__schedule;schedule;do_nanosleep;hrtimer", "in clock_nanosleep"),
        (
            "fdatasync",
            "__schedule;schedule;io_schedule;folio_wait_bit;do_fsync",
            "in fdatasync (folio_wait_bit)",
        ),
        (
            "",
            "__schedule;io_schedule;folio_wait_bit;filemap_fault;exc_page_fault;asm_exc_page_fault",
            "in a page fault (folio_wait_bit)",
        ),
        # A fault within a system call is what it waits for.
        (
            "read",
            "io_schedule;folio_wait_bit;exc_page_fault;vfs_read",
            "in a page fault (folio_wait_bit)",
        ),
        ("", "schedule;?;task_work_run", "in task_work_run"),
        ("read", "?;?", "in read"),
        ("", "", ""),
    ],
)
def test_words(syscall: str, stack: str, words: str) -> None:
    assert in_words(syscall, stack) == words
