"""What woke the threads of programs that record nothing: timers and interrupts.

``trace.wakeups`` of the experiment says which; each has an event of the component whose thread it
woke, stamped when its interrupt began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loopscope import layout
from loopscope.control.kernel_tables import KernelTables
from loopscope.control.told_events import Kernel, Stamp, kernels, write_events
from loopscope.experiment import Experiment
from loopscope.experiment.event_values import TOLD
from loopscope.experiment.plan import ProgramWakeups

(_FIRED,) = TOLD["wakeups"]
# TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ of the kernel.
_IN_HARD, _IN_SOFT = 8, 16
# Soft interrupts in which the kernel's timers expire (include/linux/interrupt.h).
_OF_TIMERS = (1, 8)
# Handlers of timers' interrupts on machines where these are no vectors of their own.
_TIMER_HANDLERS = ("arch_timer", "timer")
_NEVER = 2**63


def write_wakeups(
    experiment: Experiment, repeat: Path, made: Path, out: Path, summary: dict[str, Any]
) -> None:
    """Writes the tables of a repeat's ``trace.wakeups`` into ``out``.

    ``made`` is the folder with its time line. How many there are, and may be missing on each
    kernel, goes into the summary as ``told``, what is wrong to its problems. Raises OSError where
    a table cannot be written.
    """
    if not experiment.wakeups:
        return
    there = kernels(experiment, repeat, made)
    there = [each for each in there if {"sched", "irq"} <= each.losses.of_class.keys()]
    for wakeups in experiment.wakeups:
        fired_by: dict[_Thread, list[Stamp]] = defaultdict(list)
        missing: dict[str, int | None] = {}
        for kernel in there:
            stamps, unknown = fired(kernel, wakeups)
            for stamp in sorted(stamps, key=lambda each: each.ts):
                host, component = kernel.threads[stamp.tid]
                fired_by[host, component, stamp.tid].append(stamp)
            losses = kernel.losses
            lost = sum(losses.of_class[kind] for kind in ("irq", "softirq"))
            if lost:
                what = (
                    f"{lost} of the kernel's events were lost, so some may be of another interrupt"
                )
                place = {"host": kernel.name, "file": f"wakeups {wakeups.name}"}
                summary["problems"].append({**place, "what": what})
            unsure = lost or losses.uncounted or kernel.threads_lost()
            missing[kernel.name] = None if unsure else losses.of("sched", "sched_waking") + unknown
        told: dict[str, Any] = {"missing": missing}
        if wakeups.number is None:
            rows = _in_order(fired_by)
        else:
            files = dict.fromkeys(
                file
                for folder in (made, out)
                for file in layout.event_files(folder, *wakeups.number.split(":"))
            )
            rows, numberless = _numbered(fired_by, list(files))
            told |= {"number": wakeups.number, "numberless": numberless}
        write_events(out, wakeups.name, _FIRED, rows)
        summary["told"][wakeups.name] = {_FIRED: {"events": len(rows), **told}}


_Thread = tuple[str, str, int]
"""Host, component and number of a thread."""


def _row(of: _Thread, stamp: Stamp, number: int) -> dict[str, Any]:
    return {**stamp._asdict(), "host": of[0], "process": of[1], "id": number}


def _in_order(fired: Mapping[_Thread, list[Stamp]]) -> list[dict[str, Any]]:
    """The rows of the events, which each component counts from 0."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    rows = []
    every = [(stamp, of) for of, stamps in fired.items() for stamp in stamps]
    for stamp, of in sorted(every, key=lambda each: each[0].ts):
        rows.append(_row(of, stamp, counts[of[:2]]))
        counts[of[:2]] += 1
    return rows


def _numbered(
    fired: Mapping[_Thread, list[Stamp]], files: list[Path]
) -> tuple[list[dict[str, Any]], int]:
    """The rows of the events that have a number: that of their thread's next event in ``files``.

    And how many have none, of threads that have such events.
    """
    columns = ["host", "process", "tid", "ts", "id"]
    numbers: dict[_Thread, list[tuple[int, int]]] = defaultdict(list)
    for row in (row for file in files for row in pq.read_table(file, columns=columns).to_pylist()):
        numbers[row["host"], row["process"], row["tid"]].append((row["ts"], row["id"]))
    rows, numberless = [], 0
    for of, stamps in ((of, stamps) for of, stamps in fired.items() if of in numbers):
        events = sorted(numbers[of])
        for stamp, following in zip_longest(stamps, stamps[1:]):
            place = bisect_left(events, (stamp.ts, -_NEVER))
            until = _NEVER if following is None else following.ts
            if place < len(events) and events[place][0] < until:
                rows.append(_row(of, stamp, events[place][1]))
            else:
                numberless += 1
    return rows, numberless


class _Happening(NamedTuple):
    """A waking, or the raising of a soft interrupt."""

    ts: int
    cpu: int
    flags: int


class _Served:
    """When processors served interrupts: begins and ends, both rising."""

    def __init__(self, *tables: tuple[pa.Table, pa.Table]) -> None:
        """``tables``: events of begins and of ends, of which neither nests in another."""
        self._times: tuple[dict[int, list[int]], ...] = (defaultdict(list), defaultdict(list))
        for pair in tables:
            for times, table in zip(self._times, pair, strict=True):
                columns = table["cpu"].to_pylist(), table["ts"].to_pylist()
                for cpu, ts in zip(*columns, strict=True):
                    times[cpu].append(ts)
        for each in (each for times in self._times for each in times.values()):
            each.sort()

    def at(self, cpu: int, ts: int) -> int | None:
        """When the one began that a processor served at an instant; None where it served none."""
        begins, ends = (times.get(cpu, []) for times in self._times)
        place = bisect_right(begins, ts) - 1
        if place < 0:
            return None
        end = bisect_left(ends, begins[place])
        return begins[place] if end < len(ends) and ends[end] >= ts else None

    def ended_before(self, cpu: int, ts: int) -> int:
        """When the last one before an instant ended; -1: there was none."""
        ends = self._times[1].get(cpu, [])
        place = bisect_left(ends, ts) - 1
        return ends[place] if place >= 0 else -1


class _Interrupts:
    """The interrupts of a kernel that are looked for, and the soft ones that they asked for."""

    def __init__(self, tables: KernelTables, wakeups: ProgramWakeups) -> None:
        handlers = tables.table("irq_handler_entry", "cpu", "ts", "name")
        handled = tables.table("irq_handler_exit", "cpu", "ts")
        timers = [tables.table(f"local_timer_{end}", "cpu", "ts") for end in ("entry", "exit")]
        names = handlers["name"].cast(pa.string())
        if wakeups.by == "timer":
            chosen = list(_TIMER_HANDLERS)
        else:
            every = pc.unique(names).to_pylist()
            chosen = [name for name in every if fnmatchcase(name, wakeups.interrupt)]
        mine = handlers.filter(pc.is_in(names, pa.array(chosen, pa.string())))
        of_vector = [(timers[0], timers[1])] if wakeups.by == "timer" else []
        self._mine = _Served((mine, handled), *of_vector)
        self._every = _Served((handlers, handled), (timers[0], timers[1]))
        soft = [tables.table(f"softirq_{end}", "cpu", "ts", "vec") for end in ("entry", "exit")]
        self._soft = {
            vector: _Served(tuple(each.filter(pc.equal(each["vec"], vector)) for each in soft))
            for vector in pc.unique(soft[0]["vec"]).to_pylist()
        }
        self._looked_for = _OF_TIMERS if wakeups.by == "timer" else tuple(self._soft)
        raises = tables.table("softirq_raise", "ts", "cpu", "vec", "common_flags")
        self._raises: dict[tuple[int, int], list[_Happening]] = defaultdict(list)
        for row in raises.to_pylist():
            raised = _Happening(row["ts"], row["cpu"], row["common_flags"])
            self._raises[row["cpu"], row["vec"]].append(raised)

    def began(self, of: _Happening) -> tuple[int | None, bool]:
        """When the interrupt began in which something happened, None if none is that is looked for.

        And whether the events tell.
        """
        if of.flags & _IN_HARD:
            began, mine = self._every.at(of.cpu, of.ts), self._mine.at(of.cpu, of.ts)
            return mine if mine == began else None, began is not None
        if not of.flags & _IN_SOFT or not self._soft:
            return None, True
        begins = ((vector, served.at(of.cpu, of.ts)) for vector, served in self._soft.items())
        vector, begin = next((each for each in begins if each[1] is not None), (None, None))
        if vector is None or begin is None:
            return None, False
        if vector not in self._looked_for:
            return None, True
        # It was asked for since the one before it ended.
        raises = self._raises.get((of.cpu, vector), [])
        ended = self._soft[vector].ended_before(of.cpu, begin)
        place = bisect_left(raises, ended, key=lambda each: each.ts)
        if place == len(raises) or raises[place].ts > begin:
            return None, False
        return self.began(raises[place])


def fired(kernel: Kernel, wakeups: ProgramWakeups) -> tuple[list[Stamp], int]:
    """What woke the run's threads on a kernel, and of how many wakings it is not known."""
    columns = ("ts", "err_ns", "cpu", "task", "comm", "common_flags")
    wakings = kernel.tables.table("sched_waking", *columns)
    ours = pa.array(list(kernel.threads), wakings["task"].type)
    interrupted = pc.not_equal(pc.bit_wise_and(wakings["common_flags"], _IN_HARD | _IN_SOFT), 0)
    wakings = wakings.filter(pc.and_(pc.is_in(wakings["task"], ours), interrupted))
    interrupts = _Interrupts(kernel.tables, wakeups)
    found, unknown = [], 0
    for row in wakings.to_pylist():
        if not fnmatchcase(row["comm"], wakeups.thread):
            continue
        waking = _Happening(row["ts"], row["cpu"], row["common_flags"])
        began, told = interrupts.began(waking)
        unknown += not told
        if began is not None:
            found.append(Stamp(kernel.name, began, row["err_ns"], row["task"], row["cpu"]))
    return found, unknown
