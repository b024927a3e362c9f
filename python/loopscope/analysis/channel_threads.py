"""How threads spend their time at channels of space-time memory.

Time is split as in Paul et al., *Performance Study of a Cluster Runtime System for Dynamic
Interactive Stream-Oriented Applications* (ISPASS 2003), section 5.3, and what memory and
synchronisation take of it as in 5.4. What a thread does between calls is the application's, what
it waits in calls for an item or for room is blocking, and the rest of a call is the runtime's. A
thread of a service that relays items between hosts has no application: it waits, sends and receives
messages (messaging), and the rest is the runtime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopscope.analysis.channel_result import ThreadTimes
from loopscope.analysis.missing_events import UNACCOUNTED, missing_events
from loopscope.analysis.recorded_kernels import RecordedKernels
from loopscope.analysis.running_time import Nanoseconds

if TYPE_CHECKING:
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.timeline import Run
    from loopscope.timeline.relation import Relation

THREAD = "repeat, host, process, pid, tid"
_CALL, _MESSAGE, _MESSAGE_WAIT = "call", "message", "message_wait"
_WAITS = ("get_wait", "put_wait", _MESSAGE_WAIT)
# Events of the group that has the channel's name and this behind it.
_INSIDE, _MEMORY, _SYNCHRONISATION = "_inside", "memory", "synchronisation"
_Thread = tuple[int, str, str, int, int]


@dataclass(frozen=True)
class _Intervals:
    """Intervals of a thread that do not overlap, by their begins and ends, ns, shape (n,) both."""

    start: Nanoseconds
    end: Nanoseconds

    @staticmethod
    def none() -> _Intervals:
        return _Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @property
    def length_ns(self) -> int:
        return int(np.sum(self.end - self.start))

    def within(self, others: _Intervals) -> npt.NDArray[np.bool_]:
        """Whether each of these begins in one of the others, shape (n,)."""
        before = np.searchsorted(others.start, self.start, side="right") - 1
        ends = np.append(others.end, np.iinfo(np.int64).min)
        return self.start < ends[before]

    def chosen(self, which: npt.NDArray[np.bool_]) -> _Intervals:
        return _Intervals(self.start[which], self.end[which])


@dataclass(frozen=True)
class _Spent:
    """What a thread did, as it was recorded."""

    calls: _Intervals
    """Its calls of the library; of a thread that relays items, all of its time."""
    waits: _Intervals
    messages: _Intervals
    count: int
    """Calls, or messages."""

    @property
    def apart(self) -> _Intervals:
        """The time between the calls."""
        return _Intervals(self.calls.end[:-1], self.calls.start[1:])


def read_threads(run: Run, channels: Sequence[str]) -> list[ThreadTimes]:
    """How each thread of which calls or messages were recorded spent its time at some channels."""
    insides = [f"{channel}{_INSIDE}" for channel in channels]
    names = [f"{channel}:{name}" for channel in channels for name in (_CALL, _MESSAGE, *_WAITS)]
    names += [f"{inside}:{name}" for inside in insides for name in (_MEMORY, _SYNCHRONISATION)]
    found, kernels = [], RecordedKernels(run)
    memory, locks = (_inside(run, insides, name) for name in (_MEMORY, _SYNCHRONISATION))
    every = _spent(run, channels)
    missing = {component: _missing(run, component, names) for _, _, component, *_ in every}
    for thread, spent in sorted(every.items()):
        repeat, host, component, pid, tid = thread
        cpu_ns = _processor_time(kernels.of(repeat, host), tid, spent) or (None, None, None)
        in_memory, in_locks = _shares(spent, thread, memory), _shares(spent, thread, locks)
        blocked_ns, messaging_ns = spent.waits.length_ns, spent.messages.length_ns
        found.append(
            ThreadTimes(
                repeat=repeat,
                host=host,
                component=component,
                pid=pid,
                tid=tid,
                calls=spent.count,
                time_ns=int(spent.calls.end[-1] - spent.calls.start[0]),
                application_ns=spent.apart.length_ns,
                blocked_ns=blocked_ns,
                runtime_ns=spent.calls.length_ns - blocked_ns - messaging_ns,
                messaging_ns=messaging_ns,
                application_cpu_ns=cpu_ns[0],
                runtime_cpu_ns=cpu_ns[1],
                messaging_cpu_ns=cpu_ns[2],
                memory_ns=in_memory[0],
                synchronisation_ns=in_locks[0],
                messaging_synchronisation_ns=in_locks[1],
                missing=missing[component],
            )
        )
    return found


def _spent(run: Run, channels: Sequence[str]) -> dict[_Thread, _Spent]:
    """What threads of programs did, and those of services that relay items."""
    waits = _intervals(run, channels, *_WAITS)
    messages = _intervals(run, channels, _MESSAGE)
    none = _Intervals.none()
    found = {
        thread: _Spent(calls, waits.get(thread, none), none, len(calls.start))
        for thread, calls in _intervals(run, channels, _CALL).items()
    }
    for thread, every in _intervals(run, channels, _MESSAGE, _MESSAGE_WAIT).items():
        whole = _Intervals(every.start[:1], np.array([np.max(every.end)]))
        its = messages.get(thread, none)
        found[thread] = _Spent(whole, waits.get(thread, none), its, len(its.start))
    return found


def _inside(run: Run, groups: Sequence[str], event: str) -> dict[_Thread, _Intervals] | None:
    """The intervals of what is inside of calls and messages; None: it was not recorded."""
    if not any(f"{group}.{event}" in run.tables for group in groups):
        return None
    return _intervals(run, groups, event)


def _shares(
    spent: _Spent, thread: _Thread, inside: dict[_Thread, _Intervals] | None
) -> tuple[int, int] | tuple[None, None]:
    """How much of a thread's intervals is the runtime's, and how much messaging's, ns."""
    if inside is None:
        return None, None
    every = inside.get(thread, _Intervals.none())
    of_calls = every.within(spent.calls) & ~every.within(spent.waits)
    of_messages = every.within(spent.messages)
    runtime = every.chosen(of_calls & ~of_messages)
    return runtime.length_ns, every.chosen(of_messages).length_ns


def _processor_time(
    kernel: Scheduling | None, tid: int, spent: _Spent
) -> tuple[int, int, int] | None:
    """The processor time of a thread in the application, the runtime and messaging, ns.

    None where it is not known: of more than a hundredth of the time nobody knows whether the thread
    had a processor.
    """
    begin, last = int(spent.calls.start[0]), int(spent.calls.end[-1])
    running = None if kernel is None else kernel.running_time(tid)
    if kernel is None or running is None or kernel.lost("sched", begin, last):
        return None
    if running.untold_in(begin, last) > (last - begin) / 100:
        return None
    application, calls, waits, messages = (
        running.in_all(each.start, each.end)
        for each in (spent.apart, spent.calls, spent.waits, spent.messages)
    )
    return application, calls - waits - messages, messages


def _missing(run: Run, component: str, entities: Sequence[str]) -> int | None:
    counts = [missing_events(run, component, entity) for entity in entities]
    return None if max(counts) == UNACCOUNTED else sum(counts)


def of_threads(run: Run, group: str, event: str, columns: str) -> Relation:
    """Columns of an event, after those of its thread."""
    thread = "repeat, host::VARCHAR AS host, process::VARCHAR AS process, pid, tid"
    return run.relation(f"{group}.{event}").project(f"{thread}, {columns}")


def _intervals(run: Run, groups: Sequence[str], *events: str) -> dict[_Thread, _Intervals]:
    """Begins and ends of some groups' intervals, by thread, rising."""
    parts = [
        of_threads(run, group, event, "start, ts").filter("start IS NOT NULL")
        for group in groups
        for event in events
        if f"{group}.{event}" in run.tables
    ]
    if not parts:
        return {}
    whole = reduce(lambda one, other: one.union(other), parts)
    table = whole.order(f"{THREAD}, start, ts").to_arrow_table()
    counts = whole.aggregate(f"{THREAD}, count(*)", THREAD).order(THREAD).fetchall()
    if not counts:
        return {}
    start, end = (table[name].to_numpy() for name in ("start", "ts"))
    edges = np.cumsum([count for *_, count in counts])[:-1]
    pairs = zip(np.split(start, edges), np.split(end, edges), strict=True)
    return {
        tuple(thread): _Intervals(*pair) for (*thread, _), pair in zip(counts, pairs, strict=True)
    }
