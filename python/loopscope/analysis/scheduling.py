"""What the threads of a machine did, from the events of its scheduler and its interrupts.

All times are ns of the kernel's own place on the global time line.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from loopscope.analysis.interrupts import Happening, Interrupts, interruption
from loopscope.analysis.kernels import rows_of
from loopscope.analysis.running_time import RunningTime, running_time
from loopscope.timeline.stolen import read_stolen

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

IDLE = 0
"""The number of every processor's idling thread."""
# Bits of prev_state that say why a thread sleeps; above them, that it was preempted.
_SLEEPS = 0xFF

UNTOLD = "when it came onto it is not told"
UNTOLD_WAKING = "what ended its sleep is not told"
LOST = "events of the kernel are missing"

State = Literal["running", "runnable", "throttled", "blocked", "unknown"]
After = Literal["preempted", "woken"]
"""Whether a thread that waits for a processor had lost one, or slept before."""

_THROTTLED = "kernel.throttled"
_SAME_NS = 1_000_000
"""The record of a throttled thread is of a switch that is at most so far from it."""


class Stretch(NamedTuple):
    """A time in which a thread was in one state."""

    start: int
    state: State
    cpu: int | None
    """The processor that it was on, or came to then; None: it is not known."""
    waking: int | None = None
    """The index of the event that ended its sleep, where the stretch begins with that."""
    why: str = ""
    """What is not told, where the state is unknown."""
    told_at: int = 0
    """When the last event was by which this is known, if it was later than the time of it."""
    after: After | None = None
    """What a runnable thread waits after."""


class Scheduling:
    """The switches and wake-ups of a kernel in one repeat."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the tables cannot be read."""
        columns = (
            "ts, counter, cpu, prev_tid, prev_state, next_tid, next_comm::VARCHAR AS next_comm"
        )
        switches = rows_of(run, "kernel.sched_switch", repeat, kernel, columns)
        # Signed, as Python's numbers are: searching among others would convert all of them.
        self._counter = switches["counter"].to_numpy().astype(np.int64)
        self._ts: Nanoseconds = switches["ts"].to_numpy()
        self._cpu = switches["cpu"].to_numpy().astype(np.int64)
        self._next: Integers = switches["next_tid"].to_numpy().astype(np.int64)
        self._prev: Integers = switches["prev_tid"].to_numpy().astype(np.int64)
        self._sleeps = (switches["prev_state"].to_numpy() & _SLEEPS) != 0
        self._names = switches["next_comm"].dictionary_encode().combine_chunks()
        self._known: dict[int, str] = {}
        columns = "ts, tid, task, common_flags, cpu"
        wakings = rows_of(run, "kernel.sched_waking", repeat, kernel, columns)
        self._woken_at: Nanoseconds = wakings["ts"].to_numpy()
        self._waker = wakings["tid"].to_numpy().astype(np.int64)
        self._waker_flags = wakings["common_flags"].to_numpy()
        self._waker_cpu = wakings["cpu"].to_numpy().astype(np.int64)
        woken = wakings["task"].to_numpy().astype(np.int64)
        self._wakings = _by(woken, self._woken_at)
        self._in = _by(self._next, self._ts)
        self._out = _by(self._prev, self._ts)
        self._asleep = _by(self._prev[self._sleeps], self._ts[self._sleeps])
        self._throttled = self._throttled_in(run, repeat, kernel)
        self._on = _by(self._cpu, self._ts)
        self._lost = {
            kind: [(self.time_of(begin), self.time_of(end)) for begin, end, _ in gaps]
            for kind, gaps in run.kernel_gaps.get((repeat, kernel), {}).items()
        }
        self.interrupts = Interrupts(run, repeat, kernel, self._lost)
        self._of = run, repeat, kernel

    def _throttled_in(self, run: Run, repeat: int, kernel: str) -> set[int] | None:
        """The switches at which a thread was throttled.

        None where they were not recorded.
        """
        if _THROTTLED not in run.tables:
            return None
        rows = rows_of(run, _THROTTLED, repeat, kernel, "ts, tid")
        found = set()
        for ts, tid in zip(rows["ts"].to_pylist(), rows["tid"].to_pylist(), strict=True):
            near = [each(self._out, tid, ts) for each in (_last, _next)]
            apart = {abs(int(self._ts[row]) - ts): row for row in near if row is not None}
            if apart and min(apart) <= _SAME_NS:
                found.add(apart[min(apart)])
        return found

    @property
    def recorded(self) -> tuple[int, int]:
        """The counter at the first and at the last switch; (0, 0): there was none."""
        return (int(self._counter[0]), int(self._counter[-1])) if len(self._counter) else (0, 0)

    def named(self, name: str) -> list[int]:
        """The threads that had a name when they last came onto a processor."""
        return [tid for tid in self._in if tid != IDLE and self.name(tid) == name]

    def time_of(self, counter: int) -> int:
        """The kernel's time at a value of the counter."""
        return int(self.times_of(np.array([counter], dtype=np.int64))[0])

    def times_of(self, counters: Integers) -> Nanoseconds:
        """The kernel's times at values of the counter."""
        if not len(self._counter):
            return np.zeros(len(counters), dtype=np.int64)
        place = np.maximum(self._counter.searchsorted(counters), 1)
        last = np.minimum(place, len(self._counter) - 1)
        first = last - 1
        ticks = self._counter[last] - self._counter[first]
        passed = self._ts[last] - self._ts[first]
        rate = np.divide(passed, ticks, out=np.zeros(len(ticks)), where=ticks != 0)
        found: Nanoseconds = self._ts[first] + np.rint(
            (counters - self._counter[first]) * rate
        ).astype(np.int64)
        return found

    def lost(self, kind: str, start: int, end: int) -> bool:
        """Whether events of a class may have been lost in a time."""
        gaps = self._lost.get(kind, ())
        return bool(gaps) and any(begin < end and start < until for begin, until in gaps)

    def running_time(self, tid: int) -> RunningTime | None:
        """For how long a thread had a processor until each switch. None: no event is of it."""
        none = np.zeros(0, dtype=np.int64)
        came, went = (group[tid].times if tid in group else none for group in (self._in, self._out))
        return running_time(came, went, int(self._ts[-1]))

    def stolen(self, cpu: int, start: int, end: int) -> int:
        """The most that a hypervisor may have taken of a processor in a time, ns."""
        taken = (
            ns
            for of, begin, until, ns in self._taken
            if of == cpu and begin < end and start < until
        )
        return min(sum(taken), end - start)

    @cached_property
    def _taken(self) -> list[tuple[int, int, int, int]]:
        """Processor, begin and end of looks, and what a hypervisor took between them, ns."""
        run, repeat, kernel = self._of
        found = read_stolen(run.repeats[repeat], kernel) or ()
        return [(of, self.time_of(begin), self.time_of(end), ns) for of, begin, end, ns in found]

    def before(self, tid: int, at: int) -> Stretch | None:
        """What a thread did just before an instant, and since when.

        None where no event tells of it.
        """
        came = _last(self._in, tid, at)
        went = _last(self._out, tid, at)
        came_at = -1 if came is None else int(self._ts[came])
        went_at = -1 if went is None else int(self._ts[went])
        if came is not None and came_at >= went_at:
            return self._running(tid, came, at)
        if went is None:
            return None
        begin, waking = went_at, None
        if self._sleeps[went]:
            ended = self._ends_sleep(tid, went_at)
            if ended is None:
                return Stretch(went_at, "unknown", None, why=UNTOLD_WAKING)
            if self._woken_at[ended] >= at:
                told_at = int(self._woken_at[ended])
                return Stretch(went_at, "blocked", None, told_at=told_at)
            if self._woken_at[ended] >= went_at:
                begin, waking = int(self._woken_at[ended]), ended
        comes, goes = _next(self._in, tid, at), _next(self._out, tid, at)
        if comes is None and goes is None:
            return Stretch(begin, "unknown", None, waking, UNTOLD)
        if comes is None or (goes is not None and self._ts[goes] < self._ts[comes]):
            # It went again without having come: the kernel did not tell of that.
            assert goes is not None
            cpu, told_at = int(self._cpu[goes]), int(self._ts[goes])
            return Stretch(begin, "unknown", cpu, waking, UNTOLD, told_at)
        cpu, told_at = int(self._cpu[comes]), int(self._ts[comes])
        if waking is None and self._throttled is not None:
            if went in self._throttled:
                return Stretch(begin, "throttled", cpu, told_at=told_at)
            if self.lost("sleep", went_at - _SAME_NS, went_at + _SAME_NS):
                return Stretch(begin, "unknown", None, why=LOST, told_at=told_at)
        after: After = "woken" if self._sleeps[went] else "preempted"
        return Stretch(begin, "runnable", cpu, waking, told_at=told_at, after=after)

    def _running(self, tid: int, came: int, at: int) -> Stretch:
        """What a thread does after it came onto a processor, until ``at``."""
        goes = _next(self._out, tid, at)
        if goes is not None and self._ts[goes] == at and self._sleeps[goes]:
            ended = self._ends_sleep(tid, at)
            if ended is not None and self._woken_at[ended] < at:
                # It was leaving the processor to sleep when it was woken.
                return Stretch(int(self._woken_at[ended]), "running", int(self._cpu[came]), ended)
        return Stretch(int(self._ts[came]), "running", int(self._cpu[came]))

    def _ends_sleep(self, tid: int, went_at: int) -> int | None:
        """The wake-up that ends the sleep for which a thread leaves its processor at an instant.

        Another processor may wake it while it is still leaving. None where no event tells.
        """
        came, comes = _last(self._in, tid, went_at), _next(self._in, tid, went_at)
        goes = _next(self._out, tid, went_at + 1)
        until = min((int(self._ts[each]) for each in (comes, goes) if each is not None), default=-1)
        earlier, later = _last(self._wakings, tid, went_at), _next(self._wakings, tid, went_at)
        if later is not None and (until < 0 or self._woken_at[later] <= until):
            return later
        if earlier is not None and came is not None and self._woken_at[earlier] >= self._ts[came]:
            return earlier
        return None

    def slept_since(self, tid: int, at: int) -> int | None:
        """When a thread that was woken at an instant went to sleep."""
        went = _last(self._out, tid, at)
        return None if went is None else int(self._ts[went])

    def came_before(self, tid: int, at: int) -> int | None:
        """When a thread last came onto a processor before an instant."""
        came = _last(self._in, tid, at)
        return None if came is None else int(self._ts[came])

    def sleeps_after(self, tid: int, at: int) -> int | None:
        """When a thread first went to sleep after an instant."""
        group = self._asleep.get(tid)
        if group is None:
            return None
        place = int(group.times.searchsorted(at, side="right"))
        return int(group.times[place]) if place < len(group.times) else None

    def woken_after(self, tid: int, at: int) -> int | None:
        """When a thread was first woken from an instant on."""
        group = self._wakings.get(tid)
        if group is None:
            return None
        place = int(group.times.searchsorted(at, side="left"))
        return int(group.times[place]) if place < len(group.times) else None

    def waking(self, index: int) -> Happening:
        """The wake-up of that index."""
        return Happening(
            int(self._woken_at[index]),
            int(self._waker[index]),
            interruption(int(self._waker_flags[index])),
            int(self._waker_cpu[index]),
        )

    def on(self, cpu: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The threads that a processor had one after the other: thread, start and end of each."""
        group = self._on.get(cpu)
        if group is None:
            return
        rows, at = group
        first = max(int(at.searchsorted(start, side="right")) - 1, 0)
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

    def name(self, tid: int) -> str:
        """The name of a thread, as it was when it last came onto a processor."""
        if tid == IDLE:
            return "idle"
        if tid not in self._known:
            group = self._in.get(tid)
            name = f"thread {tid}" if group is None else self._names[int(group.rows[-1])].as_py()
            self._known[tid] = str(name)
        return self._known[tid]


class _Group(NamedTuple):
    """The rows of one key, rising, and their times."""

    rows: Integers
    times: Nanoseconds


def _by(keys: Integers, times: Nanoseconds) -> dict[int, _Group]:
    """The rows of each key."""
    if not len(keys):
        return {}
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    groups = np.split(order, starts[1:])
    return {
        key: _Group(rows, times[rows]) for key, rows in zip(found.tolist(), groups, strict=True)
    }


def _last(groups: dict[int, _Group], key: int, at: int) -> int | None:
    """The last row of a key before an instant."""
    group = groups.get(key)
    if group is None:
        return None
    place = int(group.times.searchsorted(at, side="left")) - 1
    return int(group.rows[place]) if place >= 0 else None


def _next(groups: dict[int, _Group], key: int, at: int) -> int | None:
    """The first row of a key from an instant on."""
    group = groups.get(key)
    if group is None:
        return None
    place = int(group.times.searchsorted(at, side="left"))
    return int(group.rows[place]) if place < len(group.rows) else None
