"""What is told of the kernels of a run."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from loopscope.analysis.kernels import read_kernels

FOUND = {"error": None, "asked": True, "absent": [], "threads_known": True}


class Kernel:
    """A run with the switches of one kernel: processor, thread that goes, thread that comes."""

    def __init__(self, switches: list[tuple[int, int, int]], **found: Any) -> None:
        self.kernels = {1: {"_kernel": {**FOUND, **found}}}
        self.kernel_accounts = ()
        self.specification = None
        self.tables = ["kernel.sched_switch"]
        self._con = duckdb.connect()
        rows = [
            {"repeat": 1, "host": "_kernel", "ts": ts, "cpu": cpu}
            | {"prev_tid": gone, "next_tid": came, "next_comm": f"thread-{came}"}
            for ts, (cpu, gone, came) in enumerate(switches)
        ]
        self._table = pa.Table.from_pylist(rows)

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        assert name == "kernel.sched_switch"
        return self._con.from_arrow(self._table)


def unobservable(*switches: tuple[int, int, int]) -> list[str]:
    result, _ = read_kernels(Kernel([*switches]), {})  # type: ignore[arg-type]
    assert result is not None
    return list(result.unobservable)


def test_threads_that_are_not_told_to_leave_a_processor() -> None:
    whole = [(0, 0, 7), (0, 7, 8), (0, 8, 0), (0, 0, 7), (0, 7, 0)]
    assert unobservable(*whole) == []
    # Thread 9 comes twice, and no event is from when it was there.
    (text,) = unobservable(*whole, (0, 0, 9), (0, 7, 0), (0, 0, 9), (0, 7, 0))
    assert text.startswith("_kernel, repeat 1: the kernel does not tell when thread 9 (thread-9)")
    # One that came last may be there still.
    assert unobservable(*whole, (0, 0, 9)) == []


def test_a_processor_whose_idling_is_not_told_to_end() -> None:
    (text,) = unobservable((0, 0, 7), (0, 7, 0), (1, 7, 0), (1, 8, 0))
    assert "when processor 1 ends its idling" in text


def test_classes_that_could_not_be_recorded_are_told_where_they_were_asked_for() -> None:
    why = {"sleep": "no clang", "tcp": "no clang"}
    for asked in (True, False):
        run: Any = Kernel([(0, 0, 7), (0, 7, 0)], without=why, asked=asked)
        _, problems = read_kernels(run, {})
        told = ["_kernel, repeat 1: no kernel events of class sleep and tcp: no clang"]
        assert problems == (told if asked else [])


def test_why_there_are_only_counts_is_told() -> None:
    run: Any = Kernel([(0, 0, 7), (0, 7, 0)], counts_only="takes root")
    result, problems = read_kernels(run, {})
    assert result is not None and result.unrecorded == {"_kernel": "takes root"}
    assert problems == ["_kernel, repeat 1: kernel events: takes root"]
