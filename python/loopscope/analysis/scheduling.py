"""What the threads of a machine did, from the events of its scheduler and its interrupts.

All times are ns of the kernel's own place on the global time line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.timeline import Run
    from loopscope.timeline.relation import Relation

    Integers = npt.NDArray[np.int64]

IDLE = 0
"""The number of every processor's idling thread."""
# TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ of the kernel.
_IN_INTERRUPT = 8 | 16
# Bits of prev_state that say why a thread sleeps; above them, that it was preempted.
_SLEEPS = 0xFF
_VECTORS = "HI TIMER NET_TX NET_RX BLOCK IRQ_POLL TASKLET SCHED HRTIMER RCU".split()

State = Literal["running", "runnable", "blocked", "unknown"]


class Stretch(NamedTuple):
    """A time in which a thread was in one state."""

    start: int
    state: State
    cpu: int | None
    """The processor that it was on, or came to then; None: it is not known."""
    waking: int | None = None
    """The index of the event that ended its sleep, where the stretch begins with that."""


@dataclass(frozen=True)
class Waking:
    """An event that ended a thread's sleep."""

    at: int
    by: int
    """The thread in which it happened."""
    in_interrupt: bool
    """Whether that was interrupted then."""


class Scheduling:
    """The switches and wake-ups of a kernel in one repeat."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the tables cannot be read."""
        columns = (
            "ts, counter, cpu, prev_tid, prev_state, next_tid, next_comm::VARCHAR AS next_comm"
        )
        switches = _rows(run, "kernel.sched_switch", repeat, kernel, columns)
        self._counter = switches["counter"].to_numpy()
        self._ts: Nanoseconds = switches["ts"].to_numpy()
        self._cpu = switches["cpu"].to_numpy().astype(np.int64)
        self._next: Integers = switches["next_tid"].to_numpy().astype(np.int64)
        self._prev: Integers = switches["prev_tid"].to_numpy().astype(np.int64)
        self._sleeps = (switches["prev_state"].to_numpy() & _SLEEPS) != 0
        self._names = switches["next_comm"].dictionary_encode().combine_chunks()
        columns = "ts, tid, task, common_flags"
        wakings = _rows(run, "kernel.sched_waking", repeat, kernel, columns)
        self._woken_at: Nanoseconds = wakings["ts"].to_numpy()
        self._woken = wakings["task"].to_numpy().astype(np.int64)
        self._waker = wakings["tid"].to_numpy().astype(np.int64)
        self._waker_flags = wakings["common_flags"].to_numpy()
        self._in = _by(self._next)
        self._out = _by(self._prev)
        self._wakings = _by(self._woken)
        self._on = _by(self._cpu)
        self._interrupts = {
            "interrupt": _interrupts(run, repeat, kernel),
            "softirq": _soft_interrupts(run, repeat, kernel),
        }

    def time_of(self, counter: int) -> int:
        """The kernel's time at a value of the counter."""
        if not len(self._counter):
            return 0
        place = int(np.clip(np.searchsorted(self._counter, counter), 1, len(self._counter) - 1))
        first, last = place - 1, place
        ticks = int(self._counter[last]) - int(self._counter[first])
        rate = (int(self._ts[last]) - int(self._ts[first])) / ticks if ticks else 0.0
        return int(self._ts[first]) + round((counter - int(self._counter[first])) * rate)

    def before(self, tid: int, at: int) -> Stretch | None:
        """What a thread did just before an instant, and since when.

        None where no event tells of it.
        """
        came = self._last(self._in, tid, self._ts, at)
        went = self._last(self._out, tid, self._ts, at)
        woken = self._last(self._wakings, tid, self._woken_at, at)
        came_at = -1 if came is None else int(self._ts[came])
        went_at = -1 if went is None else int(self._ts[went])
        woken_at = -1 if woken is None else int(self._woken_at[woken])
        if came is not None and came_at >= went_at:
            return Stretch(came_at, "running", int(self._cpu[came]))
        if went is None:
            return None
        sleeps = bool(self._sleeps[went])
        begin = went_at
        if sleeps:
            # One that comes before the thread is gone keeps it from sleeping.
            if woken is None or woken_at < went_at:
                return Stretch(went_at, "blocked", None)
            begin = woken_at
        waking = woken if sleeps else None
        comes, goes = self._next_of(self._in, tid, at), self._next_of(self._out, tid, at)
        if comes is None and goes is None:
            return Stretch(begin, "unknown", None, waking)
        if comes is None or (goes is not None and self._ts[goes] < self._ts[comes]):
            # It went again without having come: the kernel did not tell of that.
            assert goes is not None
            return Stretch(begin, "unknown", int(self._cpu[goes]), waking)
        return Stretch(begin, "runnable", int(self._cpu[comes]), waking)

    def slept_since(self, tid: int, at: int) -> int | None:
        """When a thread that was woken at an instant went to sleep."""
        went = self._last(self._out, tid, self._ts, at)
        return None if went is None else int(self._ts[went])

    def waking(self, index: int) -> Waking:
        """The wake-up of that index."""
        return Waking(
            int(self._woken_at[index]),
            int(self._waker[index]),
            bool(self._waker_flags[index] & _IN_INTERRUPT),
        )

    def on(self, cpu: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The threads that a processor had one after the other: thread, start and end of each."""
        rows = self._on.get(cpu)
        if rows is None:
            return
        at = self._ts[rows]
        first = max(int(np.searchsorted(at, start, side="right")) - 1, 0)
        for place in range(first, len(rows)):
            begin = max(int(at[place]), start)
            until = int(at[place + 1]) if place + 1 < len(rows) else end
            if begin >= end:
                return
            tid = int(self._next[rows[place]])
            if place + 1 < len(rows):
                # Where it is not told when idling ended, who goes next had come before.
                tid = int(self._prev[rows[place + 1]])
            if until > begin:
                yield tid, begin, min(until, end)

    def is_idle(self, cpu: int, at: int, but: int) -> bool:
        """Whether a processor idled at an instant, or had the thread ``but``."""
        found = [tid for tid, _, _ in self.on(cpu, at, at + 1)]
        return bool(found) and found[0] in (IDLE, but)

    def interrupted(
        self, kind: str, cpu: int, start: int, end: int
    ) -> Iterator[tuple[str, int, int]]:
        """Interrupts of a kind (`interrupt`, `softirq`) on a processor: name, start and end."""
        names, starts, ends = self._interrupts[kind].get(cpu, ((), (), ()))
        first = int(np.searchsorted(ends, start, side="right"))
        for place in range(first, len(starts)):
            if starts[place] >= end:
                return
            yield names[place], max(int(starts[place]), start), min(int(ends[place]), end)

    def name(self, tid: int) -> str:
        """The name of a thread, as it was when it last came onto a processor."""
        if tid == IDLE:
            return "idle"
        rows = self._in.get(tid)
        if rows is None:
            return f"thread {tid}"
        return str(self._names[int(rows[-1])].as_py())

    def _last(
        self, groups: dict[int, Integers], tid: int, times: Nanoseconds, at: int
    ) -> int | None:
        rows = groups.get(tid)
        if rows is None:
            return None
        place = int(np.searchsorted(times[rows], at, side="left")) - 1
        return int(rows[place]) if place >= 0 else None

    def _next_of(self, groups: dict[int, Integers], tid: int, at: int) -> int | None:
        rows = groups.get(tid)
        if rows is None:
            return None
        place = int(np.searchsorted(self._ts[rows], at, side="left"))
        return int(rows[place]) if place < len(rows) else None


def _rows(run: Run, table: str, repeat: int, kernel: str, columns: str) -> pa.Table:
    return _of(run, table, repeat, kernel).project(columns).to_arrow_table()


def _of(run: Run, table: str, repeat: int, kernel: str) -> Relation:
    rows = run.relation(table).filter(f"repeat = {repeat} AND host = '{kernel}'")
    return rows.order("counter")


def _by(keys: Integers) -> dict[int, Integers]:
    """The indexes of the rows of each key, rising."""
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, starts[1:]), strict=True))


_Times = dict[int, tuple[list[str], "Integers", "Integers"]]


def _interrupts(run: Run, repeat: int, kernel: str) -> _Times:
    pairs = {
        name.removesuffix("_entry"): f"{name.removesuffix('entry')}exit"
        for table in run.tables
        if (name := table.removeprefix("kernel.")) != table
        and name.endswith("_entry")
        and not name.startswith(("softirq", "timer_expire", "hrtimer"))
        and f"{table.removesuffix('entry')}exit" in run.tables
    }
    found = []
    for name, end in pairs.items():
        shown = "'irq ' || irq || ' ' || name" if name == "irq_handler" else f"'{name}'"
        found += _pairs(run, repeat, kernel, f"{name}_entry", end, shown)
    return _in_order(found)


def _soft_interrupts(run: Run, repeat: int, kernel: str) -> _Times:
    if "kernel.softirq_entry" not in run.tables or "kernel.softirq_exit" not in run.tables:
        return {}
    cases = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(_VECTORS))
    shown = f"CASE vec {cases} ELSE 'vector ' || vec END"
    return _in_order(_pairs(run, repeat, kernel, "softirq_entry", "softirq_exit", shown))


def _pairs(
    run: Run, repeat: int, kernel: str, entry: str, end: str, shown: str
) -> list[tuple[int, int, int, str]]:
    """Processor, start, end and name of each entry that is followed by its exit."""
    entries = _of(run, f"kernel.{entry}", repeat, kernel).project(f"cpu, ts, {shown} AS name")
    exits = _of(run, f"kernel.{end}", repeat, kernel).project("cpu, ts")
    ends: dict[int, Nanoseconds] = {}
    table = exits.to_arrow_table()
    cpus, times = table["cpu"].to_numpy(), table["ts"].to_numpy()
    for cpu in np.unique(cpus).tolist():
        ends[cpu] = times[cpus == cpu]
    found = []
    for row in entries.to_arrow_table().to_pylist():
        of_cpu = ends.get(row["cpu"])
        if of_cpu is None:
            continue
        place = int(np.searchsorted(of_cpu, row["ts"], side="left"))
        if place < len(of_cpu):
            found.append((row["cpu"], row["ts"], int(of_cpu[place]), row["name"]))
    return found


def _in_order(found: list[tuple[int, int, int, str]]) -> _Times:
    by_cpu: dict[int, list[tuple[int, int, int, str]]] = defaultdict(list)
    for each in sorted(found):
        before = by_cpu[each[0]]
        # One that interrupts another of its kind is part of it.
        if not before or each[1] >= before[-1][2]:
            before.append(each)
    return {
        cpu: (
            [each[3] for each in rows],
            np.array([each[1] for each in rows]),
            np.array([each[2] for each in rows]),
        )
        for cpu, rows in by_cpu.items()
    }
