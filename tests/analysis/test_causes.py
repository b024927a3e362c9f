"""Causes in words: what the thread that ended a sleep did meanwhile, and page faults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import SECOND, Host, Row, SyntheticRun, event, path
from test_ranking import MS, kernel_table
from test_why import HOG, IDLE, PREEMPTED, RECEIVER, SENDER, SLEEPS, Kernel

from loopscope.analysis.cause_words import text_of
from loopscope.analysis.causes import Causes
from loopscope.analysis.critical_path import Part, during_sleep, split
from loopscope.analysis.kernel_causes import fitted
from loopscope.analysis.messages import read_messages
from loopscope.analysis.page_faults import PageFaults
from loopscope.analysis.why import WhyHop, why
from loopscope.timeline import open_run
from loopscope.timeline.loss import KernelGap

US = 1_000
HOLDER = 40
# A switch.
ONE = [(10, 0, IDLE, PREEMPTED, RECEIVER)]
TEXTS = ("ts", "counter", "tid")


def switch(ts: int, prev: int, state: int, come: int) -> dict[str, Any]:
    names = {"prev_comm": f"t{prev}", "next_comm": f"t{come}"}
    fields = {"prev_tid": prev, "prev_state": state, "next_tid": come, **names}
    return {"ts": ts, "counter": ts, "cpu": 0, "tid": prev, **fields}


def locked_run(
    root: Path, sleeps: Sequence[str], *, faults: bool, given_at: int | None = None
) -> WhyHop:
    """The hop of a message whose thread wants a lock, while a third thread keeps the holder.

    ``sleeps``: the system calls of its sleep that were recorded, at most one. Then it runs, and in
    the last 100 us it has 20 page faults; it had two before it slept. ``given_at``: when it is
    woken, in us after it came.
    """
    at = 5 * SECOND
    woken, end = at + 9 * MS, at + 9 * MS + 400 * US
    given = woken if given_at is None else at + given_at * US
    rows = [
        Row("node", "pipe:received", 1, at, thread=RECEIVER),
        Row("node", "pipe:sent", 1, end, thread=RECEIVER),
    ]
    events = [event("node", "pipe", "received"), event("node", "pipe", "sent")]
    hosts = [Host("h1", reference=True, max_err_ns=0)]
    made = SyntheticRun(root, rows, hosts, paths=[path("loop", "id", events)]).write()
    folder = made / "base/1/timeline/kernel"
    switches = [
        switch(at - MS, 0, 0, RECEIVER),
        switch(at + 100 * US, RECEIVER, SLEEPS, HOLDER),
        switch(at + 1 * MS, HOLDER, PREEMPTED, HOG),
        switch(at + 8 * MS, HOG, PREEMPTED, HOLDER),
        switch(woken + 10 * US, HOLDER, PREEMPTED, RECEIVER),
        switch(end + MS, RECEIVER, SLEEPS, 0),
    ]
    kernel_table(folder, "sched_switch", switches)
    flags = {"common_flags": 0, "cpu": 0, "tid": HOLDER, "task": RECEIVER}
    kernel_table(folder, "sched_waking", [{"ts": given, "counter": given, **flags}])
    begins = at + 100 * US
    slept = [
        {**dict.fromkeys(TEXTS, begins), "tid": RECEIVER, "syscall": each, "stack": ""}
        for each in sleeps
    ]
    if slept:
        kernel_table(folder, "interruptible_sleep", slept)
    if faults:
        times = [at + 50 * US, at + 97 * US, *range(end - 100 * US, end, 5 * US)]
        had = [{**dict.fromkeys(TEXTS, ts), "tid": RECEIVER} for ts in times]
        # Another thread's, and of the kernel's code for the thread.
        kernel_table(folder, "page_fault_user", [*had[2:], {**had[0], "tid": HOG}])
        kernel_table(folder, "page_fault_kernel", had[:2])
    run = open_run(made)
    messages, _ = read_messages(run, run.specification.paths[0])  # type: ignore[union-attr]
    (message,) = why(run, messages, [0])
    (hop,) = message.hops
    return hop


def test_what_the_holder_of_a_lock_did_and_page_faults(tmp_path: Path) -> None:
    hop = locked_run(tmp_path / "run", ["futex"], faults=True)
    slept = "node of h1 (t20) slept in futex, woken by t40"
    assert [(part.name, part.ns, part.cause, part.page_faults) for part in hop.parts] == [
        ("running", 100 * US, "node of h1 (t20) on cpu0", 2),
        ("blocked", 900 * US, f"{slept}, which ran on cpu0", None),
        ("blocked", 7 * MS, f"{slept}, which waited on cpu0 behind t30", None),
        ("blocked", MS, f"{slept}, which ran on cpu0", None),
        ("runnable", 10 * US, "node of h1 (t20) waited on cpu0 behind t40", None),
        ("running", 390 * US, "node of h1 (t20) on cpu0, with page faults", 20),
    ]
    assert sum(part.ns for part in hop.parts) == hop.ns
    assert hop.parts[-1].told() == "node of h1 (t20) on cpu0, with page faults (page faults: 20)"
    assert hop.parts[1].told() == hop.parts[1].cause


def test_page_faults_of_parts_that_follow_each_other_are_added(tmp_path: Path) -> None:
    """It got the lock while it was leaving its processor, which divides what it ran before."""
    hop = locked_run(tmp_path / "run", [], faults=True, given_at=60)
    assert [(part.name, part.ns, part.page_faults) for part in hop.parts] == [
        ("running", 100 * US, 2),
        ("runnable", 900 * US, None),
        ("runnable", 7 * MS, None),
        ("runnable", 1010 * US, None),
        ("running", 390 * US, 20),
    ]


@pytest.mark.parametrize(("sleeps", "said"), [([], ""), (["recvfrom"], " in recvfrom")])
def test_other_sleeps_and_no_record_of_page_faults(
    tmp_path: Path, sleeps: list[str], said: str
) -> None:
    hop = locked_run(tmp_path / "run", sleeps, faults=False)
    assert [(part.name, part.ns, part.cause, part.page_faults) for part in hop.parts] == [
        ("running", 100 * US, "node of h1 (t20) on cpu0", None),
        ("blocked", 8900 * US, f"node of h1 (t20) slept{said}, woken by t40", None),
        ("runnable", 10 * US, "node of h1 (t20) waited on cpu0 behind t40", None),
        ("running", 390 * US, "node of h1 (t20) on cpu0", None),
    ]
    assert "page_faults" not in hop.parts[0].to_dict()
    assert [part.to_dict().get("after") for part in hop.parts] == [None, None, "woken", None]


def test_parts_of_one_cause_that_wait_after_different_things_are_two() -> None:
    told = causes(Kernel(ONE))
    waits = [
        Part("runnable", at, at + 100, RECEIVER, 0, HOG, after=after)
        for at, after in ((0, "woken"), (100, "woken"), (200, "preempted"))
    ]
    found = fitted([(part, told) for part in waits], 0, 300)
    assert [(part.ns, part.after) for part in found] == [(200, "woken"), (100, "preempted")]
    waited = "t20 waited on cpu0 behind t30"
    assert [part.told() for part in found] == [waited, f"{waited} (preempted)"]


STRANGER = 4
"""A thread of no component."""


class Named:
    """Threads by their numbers."""

    def named(self, tid: int, name: str, *, at: int) -> str:
        del name, at
        return f"t{tid}"

    def component(self, tid: int, at: int) -> str | None:
        del tid, at
        return None

    def are_of_one(self, tid: int, other: int, at: int) -> bool:
        del at
        return other != STRANGER and tid != other


class Slept:
    """Sleeps of threads."""

    def __init__(self, of: Mapping[int, str], holder: int | None = None) -> None:
        self._of = of
        self._holder = holder

    def on(self, scheduling: Any, tid: int, until: int) -> str:
        del scheduling, until
        return self._of[tid]

    def holder(self, scheduling: Any, tid: int, until: int) -> int | None:
        del scheduling, tid, until
        return self._holder


def causes(kernel: Kernel, faults: Any = None, holder: int | None = None, **slept: str) -> Causes:
    """``slept``: in what threads slept, by names such as `t10`; ``holder``: who has the locks."""
    sleeps: Any = Slept({int(name[1:]): text for name, text in slept.items()}, holder)
    named: Any = Named()
    states: Any = None
    return Causes(kernel.scheduling(), named, sleeps, faults, states, None, "", "h1", "h2")


def test_all_that_a_holder_can_do() -> None:
    """It sleeps, waits for an idle processor, runs, and is interrupted."""
    kernel = Kernel(
        switches=[
            (10, 0, IDLE, PREEMPTED, RECEIVER),
            (20, 1, IDLE, PREEMPTED, SENDER),
            (30, 1, SENDER, SLEEPS, IDLE),
            (200, 0, RECEIVER, SLEEPS, IDLE),
            (300, 1, IDLE, PREEMPTED, SENDER),
            (500, 1, SENDER, SLEEPS, IDLE),
            (640, 1, IDLE, PREEMPTED, SENDER),
            (710, 0, IDLE, PREEMPTED, RECEIVER),
            (900, 0, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[
            (250, 1, HOG, SENDER, 0),
            (600, 0, IDLE, SENDER, 8),
            (700, 1, SENDER, RECEIVER, 0),
        ],
        timers=[(1, 400, 420)],
        served=[(1, 650, 660)],
    )
    _, blocked, *_ = split(kernel.scheduling(), RECEIVER, 100, RECEIVER, 800)
    told = causes(kernel, PageFaults(NoFaults(), 1, "_kernel"), t20="in futex", t10="in read")
    assert told.is_lock(blocked)
    found = during_sleep(kernel.scheduling(), blocked)
    assert found[0].start == blocked.start == 200 and found[-1].end == blocked.end == 700
    assert all(a.end == b.start for a, b in zip(found, found[1:], strict=False))
    slept = "t20 slept in futex, woken by t10"
    assert [(part.start, text_of(told.of(part))) for part in found] == [
        (200, f"{slept}, which slept in read, woken by t30"),
        (250, f"{slept}, which waited for idle cpu1 to wake up"),
        (300, f"{slept}, which ran on cpu1"),
        (400, f"{slept}, whose cpu1 served local_timer"),
        (420, f"{slept}, which ran on cpu1"),
        (500, f"{slept}, which slept in read until an interrupt"),
        (600, f"{slept}, which waited for idle cpu1 to wake up"),
        (640, f"{slept}, which ran on cpu1"),
        (650, f"{slept}, whose cpu1 served NET_RX"),
        (660, f"{slept}, which ran on cpu1"),
    ]
    assert {part.name for part in found} == {"blocked"}


def test_a_holder_whose_cgroup_has_used_up_its_time() -> None:
    meanwhile = Part("throttled", 100, 200, SENDER, None)
    sleep = Part("blocked", 100, 200, RECEIVER, None, SENDER, meanwhile=meanwhile)
    told = causes(Kernel(ONE), t20="in futex")
    waited = "had to wait: its cgroup had used up its processor time"
    assert text_of(told.of(meanwhile)) == f"t10 {waited}"
    assert text_of(told.of(sleep)) == f"t20 slept in futex, woken by t10, which {waited}"


@pytest.mark.parametrize(
    ("holder", "text", "said"),
    [
        (40, "in futex", "in futex held by t40"),
        (None, "in futex", "in futex"),
        # Words that look like those of a lock, and a sleep in none.
        (STRANGER, "in futex", "in futex"),
        (40, "in read", "in read"),
    ],
)
def test_the_holder_of_a_lock(holder: int | None, text: str, said: str) -> None:
    sleep = Part("blocked", 100, 200, RECEIVER, None, SENDER)
    told = causes(Kernel(ONE), holder=holder, t20=text)
    assert text_of(told.of(sleep)) == f"t20 slept {said}, woken by t10"


@pytest.mark.parametrize(
    ("name", "by", "text"),
    [
        ("blocked", SENDER, "in read"),
        ("blocked", None, "in futex"),
        ("blocked", IDLE, "in futex"),
        ("running", SENDER, "in futex"),
    ],
)
def test_what_is_no_lock(name: str, by: int | None, text: str) -> None:
    part = Part(name, 100, 200, RECEIVER, None, by)
    assert not causes(Kernel(ONE), t20=text).is_lock(part)
    assert causes(Kernel(ONE), t20="in futex").is_lock(Part("blocked", 100, 200, RECEIVER, None, 5))


class NoFaults(Kernel):
    """A kernel of which no page faults were recorded."""

    def __init__(self) -> None:
        super().__init__(ONE)


class Faults:
    """A page fault every 10 ns."""

    recorded = True

    def count(self, tid: int, start: int, end: int) -> int:
        return (end - start) // 10 if tid == RECEIVER else 0


def test_page_faults_are_told_of_what_ran_and_not_where_events_of_them_were_lost() -> None:
    kernel = Kernel([(10, 0, IDLE, PREEMPTED, RECEIVER), (900, 0, RECEIVER, SLEEPS, IDLE)])
    kernel.kernel_gaps = {(1, "_kernel"): {"fault": [KernelGap(3 * 500, 3 * 510, 1)]}}
    told = causes(kernel, Faults())
    before, during = (Part("running", at, at + 100, RECEIVER, 0) for at in (100, 450))
    assert (
        told.page_faults(before) == 10
        and text_of(told.of(before)) == "t20 on cpu0, with page faults"
    )
    assert told.page_faults(during) is None and text_of(told.of(during)) == "t20 on cpu0"
    other = Part("running", 100, 200, SENDER, 0)
    assert told.page_faults(other) == 0 and text_of(told.of(other)) == "t10 on cpu0"
    waits = Part("runnable", 100, 200, RECEIVER, 0, HOG)
    assert told.page_faults(waits) is None and "page" not in text_of(told.of(waits))


def test_what_a_hypervisor_may_have_taken(tmp_path: Path) -> None:
    """It is said of long parts in a time in which it was counted, on that processor."""

    def told(of: Part, *stolen: tuple[int, int, int, int]) -> int:
        file = tmp_path / "hosts/_kernel/kernel/counts.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        keys = ("processor", "from", "until", "ns")
        counts = [dict(zip(keys, each, strict=True)) for each in stolen]
        file.write_text(json.dumps({"version": 1, "classes": {}, "stolen": counts}))
        kernel = Kernel([*ONE, (20 * MS, 0, RECEIVER, SLEEPS, IDLE)])
        kernel.repeats = {1: tmp_path}  # type: ignore[attr-defined]
        return causes(kernel).stolen(of)

    long = Part("running", MS, 5 * MS, RECEIVER, 0)
    short = Part("running", MS, 2 * MS - 1, RECEIVER, 0)
    # In the counter, of which a ns has three.
    whole = (0, 0, 3 * 20 * MS, 10 * MS)
    assert told(long) == told(short, whole) == told(replace(long, name="blocked"), whole) == 0
    assert told(long, whole) == 4 * MS
    assert told(long, (1, *whole[1:])) == 0
    assert told(long, (0, 3 * 6 * MS, 3 * 20 * MS, 10 * MS)) == 0
    assert told(long, *[(0, 0, 3 * 20 * MS, 300 * US)] * 2) == 600 * US
