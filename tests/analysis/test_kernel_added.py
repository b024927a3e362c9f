"""What recording the kernel adds, from messages in times with it and without."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from loopscope.analysis.kernel_added import read_added
from loopscope.timeline.loss import KernelGap

MS = 1_000_000
EACH = 100 * MS
# Ticks of its counter are a third of a ns, and it began elsewhere.
RATE, BEGAN = 3, 7_000_000_000


def counter(ts: int) -> int:
    return BEGAN + RATE * ts


def played(seed: int, adds: int, pairs: int = 20) -> tuple[Any, dict[str, Any]]:
    """A run in which a message takes some 50 us, and ``adds`` more while the kernel is recorded.

    While it is switched, messages take very long; and some are under way from one time to another.
    """
    drawn = random.Random(seed)
    gaps, rows, starts, lengths = [], [], [], []
    at = 10 * MS
    for _ in range(pairs):
        on = (at, at + int(EACH * drawn.uniform(0.75, 1.25)))
        off = (on[1], on[1] + int(EACH * drawn.uniform(0.75, 1.25)))
        gaps.append(KernelGap(counter(off[0]), counter(off[1]), 0))
        for begin, end in (on, off):
            for start in range(begin, end, MS):
                switching = start - begin < 4 * MS or end - start < 4 * MS
                length = int(drawn.gauss(50_000, 2_000)) + (adds if begin == on[0] else 0)
                starts.append(start)
                lengths.append(100 * MS if switching else length)
        rows += range(on[0], on[1], 10_000)
        at = off[1]
    # It goes on when the phase is over.
    rows.append(at + MS)
    # One of another kind: events were lost while it was recorded.
    lost = KernelGap(counter(10 * MS), counter(90 * MS), 7)
    table = pa.table({"ts": rows, "counter": [counter(ts) for ts in rows]})
    con = duckdb.connect()
    named = {"repeat": pa.array([1] * len(rows)), "host": pa.array(["_kernel"] * len(rows))}
    for name, column in named.items():
        table = table.append_column(name, column)
    run = SimpleNamespace(
        specification=SimpleNamespace(alternate_ns=EACH),
        repeats={1: None},
        tables=["kernel.sched_switch", "own.sent"],
        kernel_gaps={(1, "_kernel"): {"sched": [lost, *gaps], "irq": gaps}},
        relation=lambda _: con.from_arrow(table),
    )
    whole = SimpleNamespace(
        repeat=np.ones(len(starts), dtype=np.int64),
        start=np.array(starts),
        length=np.array(lengths),
    )
    messages = SimpleNamespace(path=SimpleNamespace(loop=(0, 1)), intervals=lambda *_: whole)
    return run, {"loop": messages}


@pytest.mark.parametrize("adds", [0, 5_000])
def test_what_was_added_is_found(adds: int) -> None:
    inside = 0
    for seed in range(10):
        found = read_added(*played(seed, adds))["loop"]
        assert found.pairs == 20
        assert found.p50.added_ns == found.p50.with_ns - found.p50.without_ns
        assert abs(found.p50.added_ns - adds) < 600, found
        assert found.p99.without_ns < 60_000, "one that was sent while the kernel was switched"
        assert found.p50.low_ns is not None and found.p50.high_ns is not None
        inside += found.p50.low_ns <= adds <= found.p50.high_ns
        assert found.messages_with > 1000 and found.messages_without > 1000
    # The interval is one of 95 %.
    assert inside >= 7


def test_few_pairs_have_no_interval() -> None:
    found = read_added(*played(1, 5_000, pairs=3))["loop"]
    assert (found.pairs, found.p50.low_ns, found.p50.high_ns) == (3, None, None)


def test_nothing_is_said_where_it_was_not_asked_for() -> None:
    run, paths = played(1, 0)
    run.specification.alternate_ns = None
    assert read_added(run, paths) == {}
