"""What is told of the kernels of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from test_ranking import held_run

from loopscope.analysis import analyse
from loopscope.analysis.kernels import read_kernels
from loopscope.analysis.messages import Messages
from loopscope.experiment import PathEdge
from loopscope.experiment.kernel_events import AUTO, CLASSES, OF_MESSAGES
from loopscope.report.rows import kernel_line
from loopscope.timeline import open_run

FOUND = {"error": None, "asked": True, "absent": [], "threads_known": True}


@dataclass
class Plan:
    """An experiment, as far as it says what is recorded of kernels."""

    kernel: tuple[str, ...]
    phases: tuple[Any, ...] = ()
    alternate_ns: int | None = None


class Kernel:
    """A run with the switches of one kernel: processor, thread that goes, thread that comes."""

    def __init__(self, switches: list[tuple[int, int, int]], **found: Any) -> None:
        self.kernels = {1: {"_kernel": {**FOUND, **found}}}
        self.kernel_accounts = ()
        self.specification: Plan | None = None
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
    run.specification = Plan(AUTO)
    result, problems = read_kernels(run, {})
    assert result is not None and result.unrecorded == {"_kernel": "takes root"}
    assert problems == ["_kernel, repeat 1: kernel events: takes root"]
    # Nothing was left out of what was not recorded at all.
    assert result.left_out == ()


@pytest.mark.parametrize(
    ("patterns", "left_out"),
    [
        (
            AUTO,
            {"softirq", "timer", "idle", "syscall", "fault", "block", "net", "tcp", "udp", "call"},
        ),
        # Messages are told from events of a class of their own.
        ((*AUTO, *OF_MESSAGES["tcp"]), set(CLASSES) - {"sched", "irq", "sleep", "drop", "tcp"}),
        (("sched:*", "irq:*"), set()),
        ((), set()),
    ],
)
def test_what_auto_leaves_out_is_told(patterns: tuple[str, ...], left_out: set[str]) -> None:
    run: Any = Kernel([(0, 0, 7), (0, 7, 0)])
    run.specification = Plan(patterns)
    result, _ = read_kernels(run, {})
    assert result is not None and set(result.left_out) == left_out
    shown: Any = SimpleNamespace(kernel=result, paths=(), graphs=())
    said = f"auto leaves out for their cost: {', '.join(result.left_out)}"
    assert kernel_line(shown) == (said if left_out else "")
    assert result.to_dict().get("left_out", []) == list(result.left_out)


@pytest.mark.parametrize(
    ("edges", "told"),
    [
        ((), True),
        ((PathEdge(0, 1, "key", "id"),), True),
        ((PathEdge(0, 1, "key", "id"), PathEdge(0, 2, "key", "id")), False),
    ],
    ids=["list", "one way", "several ways"],
)
def test_what_recording_cost_messages_is_told_of_paths_with_one_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edges: tuple[PathEdge, ...], told: bool
) -> None:
    made = held_run(tmp_path / "run", expect=(), edges=edges)
    found = {**FOUND, "costs": {"sched": {"event_ns": 300.0, "unknown": None}}}
    (made / "base/1/kernel.json").write_text(json.dumps({"kernels": {"_kernel": found}}))
    compared: list[tuple[str, int]] = []

    def added(_: Any, paths: Mapping[str, Messages]) -> dict[str, Any]:
        compared.extend((name, len(each)) for name, each in paths.items())
        return {}

    monkeypatch.setattr("loopscope.analysis.kernels.read_added", added)
    results = analyse(open_run(made))
    assert results.kernel is not None
    assert compared == ([("loop", 20)] if told else [])
    # A waking, and the switches with which its sender goes and its receiver comes.
    costs = {"loop": {"events": 3, "ns": 900}} if told else {}
    assert results.kernel.to_dict()["costs"] == costs
    line = "cost at most 900 ns (0.0099 %) of loop's p50"
    assert (line in kernel_line(results)) == told
