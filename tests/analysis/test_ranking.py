"""Causes by how many late messages they account for, and a path's times without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import SECOND, Host, Row, SyntheticRun, event, expectation, path

from loopscope.analysis import analyse
from loopscope.analysis.kernel_causes import WhyPart
from loopscope.analysis.messages import read_messages
from loopscope.analysis.ranking import limit_of, rank, without
from loopscope.analysis.why import WhyHop, WhyMessage, why
from loopscope.experiment import MessagePath, PathEdge
from loopscope.experiment.measures import Allowed, Expectation, Hop, Requirement
from loopscope.timeline import open_run

HOG = "n waited on cpu0 behind hog"


def message(number: int, *hops: list[tuple[str, str, int]]) -> WhyMessage:
    """A message whose hops have these parts: name, cause and ns of each."""
    found = tuple(
        WhyHop("a", "b", sum(part[2] for part in parts), 10, tuple(_parts(parts)), None)
        for parts in hops
    )
    return WhyMessage(1, number, sum(hop.ns for hop in found), 10, False, found)


def _parts(parts: list[tuple[str, str, int]]) -> list[WhyPart]:
    return [WhyPart(name, ns, (cause,)) for name, cause, ns in parts]


def test_the_cause_of_most_misses_is_first() -> None:
    late = [
        # The parts of one cause in all hops count together, and only together they make it late.
        message(1, [("running", "n", 40), ("runnable", HOG, 40)], [("runnable", HOG, 40)]),
        message(2, [("running", "n", 5), ("runnable", HOG, 105)]),
        # Either of two would have to go, and neither is enough.
        message(3, [("runnable", HOG, 190), ("blocked", "n slept", 190)]),
        # By far the longest, and of one message.
        message(4, [("blocked", "n slept", 5000)]),
    ]
    found = rank(late, 100)
    assert [(each.name, each.in_time, each.messages, each.ns) for each in found] == [
        ("runnable", 2, 3, 375),
        ("blocked", 1, 2, 5190),
        ("running", 1, 2, 45),
    ]


def test_a_hop_of_which_nothing_is_told_is_a_cause_of_its_own() -> None:
    whole = message(1, [("running", "n", 40)])
    untold = WhyHop("b", "c", 200, 10, (), "the kernel of h2 was not recorded")
    found = replace(whole, ns=240, hops=(*whole.hops, untold)).parts()
    assert [(each.name, each.cause, each.ns) for each in found] == [
        ("running", "n", 40),
        ("unknown", "the kernel of h2 was not recorded", 200),
    ]


def test_nothing_is_late() -> None:
    assert rank([], 100) == []


def test_times_without_a_cause_are_of_all_messages() -> None:
    found = [message(i, [("running", "n", 10 + i), ("runnable", HOG, 1000)]) for i in range(4)]
    found += [message(i, [("running", "n", 10 + i)]) for i in range(4, 100)]
    result = without(found, "behind hog")
    assert (result.messages, result.held) == (100, 4)
    assert result.with_it == {"p50": 63, "p99": 1012, "max": 1013}
    assert result.without_it == {"p50": 59, "p99": 108, "max": 109}
    assert result.to_dict()["without_it"] == result.without_it
    assert without(found, "runnable: n waited").held == 4
    with pytest.raises(ValueError, match="'hogs'.*--rank"):
        without(found, "hogs")


def test_only_a_limit_on_time_makes_a_message_late() -> None:
    def expectation(stat: str, op: str, *, is_time: bool) -> Expectation:
        return Expectation("", "loop", None, stat, op, 5_000, is_time)  # type: ignore[arg-type]

    assert limit_of(expectation("p99", "<", is_time=True)) == 5_000
    assert limit_of(expectation("p99", ">", is_time=True)) is None
    assert limit_of(expectation("lost", "<", is_time=False)) is None
    for difference in ("jitter", "deviation", "asymmetry"):
        assert limit_of(expectation(difference, "<", is_time=True)) is None
    each = Requirement("", "time", "loop", Hop(0, 1), None, "<=", 7_000, None, Allowed(), None)
    assert limit_of(each) == 7_000
    order = Requirement("", "order", "loop", None, None, None, None, None, Allowed(), None)
    assert limit_of(order) is None


SENDER, RECEIVER, BUSY = 10, 20, 30
MS = 1_000_000


def kernel_table(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    known = {"err_ns": 0, "host": "_kernel", "process": "kernel sched", "pid": None, "id": None}
    table = pa.Table.from_pylist([{**known, **row} for row in rows])
    (folder / name).mkdir(parents=True)
    pq.write_table(table, folder / name / "part-0.parquet")


LATE = expectation("loop.p99 < 5ms", "p99", "<", 5 * MS)


def held_run(
    root: Path,
    expect: Sequence[Expectation] = (LATE,),
    lost: Sequence[int] = (),
    waits: Sequence[int] = (9 * MS,) * 20,
    edges: Sequence[PathEdge] = (),
    counted: bool = False,
) -> Path:
    """Messages, each of which waits for some 9 ms while another thread has the processor.

    ``edges``: the path is a graph of the event sent, the one received, and one that never is.
    ``counted``: the kernel's counts of the receiver are there instead of its events.
    """
    rows, switches, wakings = [], [], []

    def switch(ts: int, cpu: int, prev: int, state: int, come: int) -> dict[str, Any]:
        names = {"prev_comm": f"t{prev}", "next_comm": f"t{come}"}
        fields = {"prev_tid": prev, "prev_state": state, "next_tid": come, **names}
        return {"ts": ts, "counter": ts, "cpu": cpu, "tid": prev, **fields}

    for number, wait in enumerate(waits):
        at = 5 * SECOND + 20 * MS * number
        rows.append(Row("source", "pipe:sent", number, at, thread=SENDER))
        if number not in lost:
            received = at + wait + 60_000
            rows.append(Row("sink", "pipe:received", number, received, thread=RECEIVER))
        switches += [
            switch(at - 5 * MS, 1, RECEIVER, 1, BUSY),
            switch(at - 1_000, 0, 0, 0, SENDER),
            switch(at + 50_000, 0, SENDER, 1, 0),
            switch(at + wait, 1, BUSY, 0, RECEIVER),
        ]
        flags = {"common_flags": 0, "cpu": 0, "tid": SENDER, "task": RECEIVER}
        wakings.append({"ts": at + 20_000, "counter": at + 20_000, **flags})
    events = [event("source", "pipe", "sent"), event("sink", "pipe", "received")]
    of_path = path("loop", "id", events)
    if edges:
        last = max(edge.end for edge in edges)
        every = (*events, event("logger", "pipe", "received"))[: last + 1]
        of_path = MessagePath("loop", "id", every, keys=("id",) * len(every), edges=tuple(edges))
    given: dict[str, Any] = {"paths": [of_path], "expect": expect}
    made = SyntheticRun(root, rows, [Host("h1", reference=True, max_err_ns=0)], **given).write()
    folder = made / "base/1/timeline/kernel"
    if counted:
        kernel_table(folder, "schedstat", _looks(waits))
        return made
    kernel_table(folder, "sched_switch", sorted(switches, key=lambda row: row["ts"]))
    kernel_table(folder, "sched_waking", wakings)
    return made


def _looks(waits: Sequence[int]) -> list[dict[str, Any]]:
    """The kernel's counts of the receiver, around each time that it waited."""
    rows, waited = [], 0
    for number, wait in enumerate(waits):
        at = 5 * SECOND + 20 * MS * number
        for ts in (at - 1_000, at + 1_000, at + wait + 10_000):
            waited += wait if ts > at + wait else 0
            of = {"tid": RECEIVER, "root": RECEIVER, "comm": "receiver", "host": "h1"}
            counts = {"took_ns": 100, "run_ns": 0, "wait_ns": waited}
            rows.append({"ts": ts, "counter": ts, **of, **counts})
    return rows


@pytest.mark.parametrize("counters", [True, False])
def test_a_failed_deadline_names_what_held_the_messages(tmp_path: Path, counters: bool) -> None:
    """Events of other tools have no counter: their global time is as good here."""
    made = held_run(tmp_path / "run")
    if not counters:
        for file in made.glob("base/1/timeline/pipe/*/*.parquet"):
            table = pq.read_table(file)
            place = table.schema.get_field_index("counter")
            none = pa.nulls(len(table), pa.uint64())
            pq.write_table(table.set_column(place, "counter", none), file)
    run = open_run(made)
    (failed,) = analyse(run).expectations
    behind = "runnable: sink of h1 (t20) waited on cpu1 behind t30"
    assert failed.reason == f"100 % of the 20 above 5.000 ms: {behind}"
    messages, _ = read_messages(run, run.specification.paths[0])  # type: ignore[union-attr]
    (first, *_) = why(run, messages, [0])
    assert [(part.name, part.ns) for part in first.hops[0].parts] == [
        ("running", 20_000),
        ("runnable", 9 * MS - 20_000),
        ("running", 60_000),
    ]


def test_without_a_thread_nothing_is_said_of_a_hop(tmp_path: Path) -> None:
    made = held_run(tmp_path / "run")
    (file,) = made.glob("base/1/timeline/pipe/received/*.parquet")
    table = pq.read_table(file)
    place = table.schema.get_field_index("tid")
    pq.write_table(table.set_column(place, "tid", pa.nulls(len(table), pa.uint32())), file)
    run = open_run(made)
    (failed,) = analyse(run).expectations
    assert failed.verdict == "FAIL" and failed.reason is None
    messages, _ = read_messages(run, run.specification.paths[0])  # type: ignore[union-attr]
    (first, *_) = why(run, messages, [0])
    assert "which thread sink/pipe:received was in" in str(first.hops[0].unknown)
