"""Parts in which threads ran, cut at their system calls."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from loopscope.analysis.calls import Calls
from loopscope.analysis.critical_path import Part

OURS, OTHER = 20, 30


def played(seed: int) -> tuple[Calls, list[tuple[int, int, str]], random.Random]:
    """Calls of two threads, and those of the first one."""
    drawn = random.Random(seed)
    rows: list[dict[str, Any]] = []
    ours = []
    for tid in (OURS, OTHER):
        at = 0
        for _ in range(drawn.randrange(1, 40)):
            begin = at + drawn.choice([0, 1, 50])
            at = begin + drawn.choice([1, 5, 200])
            name = drawn.choice(["read", "write", "futex"])
            row = {"ts": at, "counter": 3 * at, "tid": tid, "duration_ns": at - begin}
            rows.append({"repeat": 1, "host": "_kernel", "syscall": name, **row})
            if tid == OURS:
                ours.append((begin, at, name))
    drawn.shuffle(rows)
    con = duckdb.connect()
    table = pa.Table.from_pylist(rows)
    run = SimpleNamespace(
        tables=["kernel.system_call"], relation=lambda _: con.from_arrow(table), repeats={1: None}
    )
    return Calls(run, 1, "_kernel"), ours, drawn  # type: ignore[arg-type]


class Scheduled:
    """A kernel of which events of a class were lost in a time."""

    def __init__(self, lost: bool = False) -> None:
        self._lost = lost

    def lost(self, kind: str, start: int, end: int) -> bool:
        assert kind == "call" and start < end
        return self._lost


@pytest.mark.parametrize("seed", range(50))
def test_each_instant_has_the_call_that_it_was_in(seed: int) -> None:
    calls, ours, drawn = played(seed)
    start = drawn.randrange(-20, ours[-1][1])
    part = Part("running", start, start + drawn.randrange(1, 1000), OURS, 0)
    cut = list(calls.cut(Scheduled(), part))  # type: ignore[arg-type]
    assert (cut[0].start, cut[-1].end) == (part.start, part.end)
    assert all(before.end == after.start for before, after in zip(cut, cut[1:], strict=False))
    for each in cut:
        assert each.start < each.end
        inside = [name for begin, end, name in ours if begin <= each.start and each.end <= end]
        assert each.what == (f"in {inside[0]}" if inside else "")
        touched = [begin for begin, end, _ in ours if begin < each.end and each.start < end]
        assert len(touched) == len(inside)


def test_what_is_not_cut() -> None:
    calls, ours, _ = played(1)
    end = ours[-1][1]
    for part in (
        Part("blocked", 0, end, OURS, None),
        Part("running", 0, end, 40, 0),
        Part("network", 0, end, None, None),
    ):
        assert list(calls.cut(Scheduled(), part)) == [part]  # type: ignore[arg-type]
    part = Part("running", 0, end, OURS, 0)
    assert list(calls.cut(Scheduled(lost=True), part)) == [part]  # type: ignore[arg-type]
    assert len(list(calls.cut(Scheduled(), part))) > 1  # type: ignore[arg-type]
