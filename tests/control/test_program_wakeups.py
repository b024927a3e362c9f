"""What woke a program's threads, from kernel events that are made by chance."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopscope import layout
from loopscope.control.kernel_tables import KernelTables, Losses
from loopscope.control.program_wakeups import fired
from loopscope.control.told_events import Kernel
from loopscope.experiment.plan import ProgramWakeups

HARD, SOFT = 8, 16
TIMER, NET_RX = 1, 3
OURS, THEIRS = 100, 200


class Played:
    """Two processors whose interrupts wake threads."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.rows: dict[str, list[dict[str, object]]] = {}
        self.at = 0
        self.fired: dict[str, list[int]] = {"timer": [], "disk": [], "any": []}

    def add(self, event: str, cpu: int, **columns: object) -> int:
        self.at += self.drawn.randint(1, 50)
        row = {"counter": self.at, "ts": self.at, "err_ns": 5, "cpu": cpu, **columns}
        self.rows.setdefault(event, []).append(row)
        return self.at

    def wake(self, cpu: int, flags: int, began: int | None, *kinds: str) -> None:
        """A thread is woken, of the run's or not, by what began then."""
        task = self.drawn.choice([OURS, THEIRS])
        self.add("sched_waking", cpu, task=task, comm="ctl", common_flags=flags)
        if task == OURS and began is not None:
            for kind in kinds:
                self.fired[kind].append(began)

    def interrupt(self, cpu: int) -> None:
        """One of the timer or a device, which may wake, and may ask for a soft one."""
        kind = self.drawn.choice(["timer", "disk", "net"])
        if kind == "timer":
            began, kinds = self.add("local_timer_entry", cpu), ["timer"]
        else:
            name = "virtio1-req.0" if kind == "disk" else "eth0-rx"
            began = self.add("irq_handler_entry", cpu, name=name)
            kinds = ["any", "disk"] if kind == "disk" else ["any"]
        if self.drawn.random() < 0.5:
            self.wake(cpu, HARD, began, *kinds)
        vector = TIMER if kind == "timer" else NET_RX
        asked = self.drawn.random() < 0.5
        if asked:
            self.add("softirq_raise", cpu, vec=vector, common_flags=HARD)
        if asked and self.drawn.random() < 0.3:
            # Again, before the first has been served.
            self.add("softirq_raise", cpu, vec=vector, common_flags=HARD)
        self.add(f"{'local_timer' if kind == 'timer' else 'irq_handler'}_exit", cpu)
        if asked:
            self.add("softirq_entry", cpu, vec=vector)
            if self.drawn.random() < 0.7:
                self.wake(cpu, SOFT, began, *kinds)
            self.add("softirq_exit", cpu, vec=vector)

    def thread(self, cpu: int) -> None:
        """A thread that wakes others itself, or by a soft interrupt that it asks for."""
        self.wake(cpu, 0, None)
        self.add("softirq_raise", cpu, vec=NET_RX, common_flags=0)
        self.add("softirq_entry", cpu, vec=NET_RX)
        self.wake(cpu, SOFT, None)
        self.add("softirq_exit", cpu, vec=NET_RX)

    def kernel(self, made: Path) -> Kernel:
        for event, rows in self.rows.items():
            file = made / layout.EVENTS / "kernel" / event / "part-0.parquet"
            file.parent.mkdir(parents=True)
            host = [{"host": "_kernel", **row} for row in rows]
            pq.write_table(pa.Table.from_pylist(host), file)
        tables = KernelTables(made, "_kernel")
        nothing = Losses({}, {}, uncounted=False)  # type: ignore[arg-type]
        return Kernel("_kernel", tables, set(), nothing, {OURS: ("h1", "ctl")})


def played(seed: int) -> Played:
    found = Played(seed)
    for _ in range(300):
        cpu = found.drawn.randrange(2)
        found.drawn.choice([found.interrupt, found.interrupt, found.thread])(cpu)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_each_waking_has_the_interrupt_that_it_came_of(seed: int, tmp_path: Path) -> None:
    """Also by a soft interrupt that one asked for; of others' threads none."""
    machine = played(seed)
    kernel = machine.kernel(tmp_path)
    for name, by, pattern in (
        ("timer", "timer", "*"),
        ("disk", "interrupt", "virtio*"),
        ("any", "interrupt", "*"),
    ):
        wanted = ProgramWakeups(name, by, pattern, "c*", None)  # type: ignore[arg-type]
        stamps, unknown = fired(kernel, wanted)
        assert unknown == 0
        assert sorted(each.ts for each in stamps) == sorted(machine.fired[name])
        assert {each.tid for each in stamps} <= {OURS}
    assert machine.fired["timer"] and machine.fired["disk"]
    other = ProgramWakeups("other", "timer", "*", "d*", None)
    assert fired(kernel, other) == ([], 0)


@pytest.mark.parametrize("seed", range(20))
def test_what_lost_events_leave_open_is_counted(seed: int, tmp_path: Path) -> None:
    """What is found is right, and what is missing is no more than is said."""
    machine = played(seed)
    for event in ("local_timer_entry", "softirq_raise", "softirq_entry"):
        rows = machine.rows[event]
        machine.rows[event] = [row for row in rows if machine.drawn.random() < 0.9]
    stamps, unknown = fired(
        machine.kernel(tmp_path), ProgramWakeups("timer", "timer", "*", "*", None)
    )
    assert unknown > 0
    right = Counter(machine.fired["timer"])
    found = Counter(each.ts for each in stamps)
    assert found <= right
    assert (right - found).total() <= unknown
