"""The interrupts and soft interrupts of a machine's processors, from the kernel's events.

All times are ns of the kernel's own place on the global time line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.kernels import rows_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]
    Names = npt.NDArray[np.object_]

# TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ of the kernel.
_IN_HARD = 8
_IN_SOFT = 16
_VECTORS = "HI TIMER NET_TX NET_RX BLOCK IRQ_POLL TASKLET SCHED HRTIMER RCU".split()


def interruption(flags: int) -> str | None:
    """What an event's `common_flags` say that it happened in: `interrupt`, `softirq`.

    None where it happened in a thread that was not interrupted.
    """
    if flags & _IN_HARD:
        return "interrupt"
    return "softirq" if flags & _IN_SOFT else None


class Interrupt(NamedTuple):
    """A time in which a processor served an interrupt."""

    name: str
    start: int
    end: int


class Happening(NamedTuple):
    """A waking, or the raising of a soft interrupt: in which thread, and within what."""

    at: int
    by: int
    """The thread."""
    within: str | None
    """What that was interrupted by then, see `interruption`."""
    cpu: int


class Interrupts:
    """What interrupted the processors of a kernel in one repeat."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where the tables cannot be read."""
        self._served = {
            "interrupt": _of_cpus(_hard(run, repeat, kernel)),
            "softirq": _of_cpus(_soft(run, repeat, kernel)),
        }
        self._raises = _raises(run, repeat, kernel)

    def recorded(self, kind: str) -> bool:
        """Whether any of a kind (`interrupt`, `softirq`) were recorded."""
        return bool(self._served[kind])

    def served(self, kind: str) -> Mapping[int, tuple[Names, Integers, Integers]]:
        """Name, start and end of those of a kind on each processor, rising."""
        return self._served[kind]

    def between(self, kind: str, cpu: int, start: int, end: int) -> Iterator[Interrupt]:
        """Those of a kind (`interrupt`, `softirq`) on a processor, cut to a time."""
        names, starts, ends = self._served[kind].get(cpu, _NONE)
        first = int(ends.searchsorted(start, side="right"))
        for place in range(first, len(starts)):
            if starts[place] >= end or end <= start:
                return
            begun, ended = max(int(starts[place]), start), min(int(ends[place]), end)
            yield Interrupt(names[place], begun, ended)

    def at(self, kind: str, cpu: int, at: int) -> Interrupt | None:
        """The one of a kind that a processor served at an instant."""
        names, starts, ends = self._served[kind].get(cpu, _NONE)
        place = int(starts.searchsorted(at, side="right")) - 1
        if place < 0 or ends[place] < at:
            return None
        return Interrupt(names[place], int(starts[place]), int(ends[place]))

    def raised(self, cpu: int, served: Interrupt) -> Happening | None:
        """What asked for a soft interrupt first since the one of that name before it."""
        found = self._raises.get((cpu, served.name))
        if found is None:
            return None
        times, by, flags = found
        names, _, ends = self._served["softirq"].get(cpu, _NONE)
        before = int(ends.searchsorted(served.start, side="right")) - 1
        while before >= 0 and names[before] != served.name:
            before -= 1
        since = int(ends[before]) if before >= 0 else -1
        place = int(times.searchsorted(since, side="left"))
        if place == len(times) or times[place] > served.start:
            return None
        within = interruption(int(flags[place]))
        return Happening(int(times[place]), int(by[place]), within, cpu)


_Served = tuple["Names", "Integers", "Integers"]
_NONE: _Served = (
    np.array([], dtype=object),
    np.array([], dtype=np.int64),
    np.array([], dtype=np.int64),
)
_Found = list[tuple[int, _Served]]


def _of_cpus(found: _Found) -> dict[int, _Served]:
    """Name, start and end of the interrupts of each processor, rising."""
    parts: dict[int, list[_Served]] = defaultdict(list)
    for cpu, served in found:
        parts[cpu].append(served)
    return {cpu: _in_order(each) for cpu, each in parts.items()}


def _in_order(parts: list[_Served]) -> _Served:
    names, starts, ends = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(starts, kind="stable")
    names, starts, ends = names[order], starts[order], ends[order]
    # One that interrupts another of its kind is part of it.
    before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ends)[:-1]])
    outer = starts >= before
    return names[outer], starts[outer], ends[outer]


def _hard(run: Run, repeat: int, kernel: str) -> _Found:
    found: _Found = []
    for table in run.tables:
        name = table.removeprefix("kernel.").removesuffix("_entry")
        if table != f"kernel.{name}_entry" or name.startswith(("softirq", "timer_", "hrtimer_")):
            continue
        if f"kernel.{name}_exit" in run.tables:
            shown = "'irq ' || irq || ' ' || name" if name == "irq_handler" else f"'{name}'"
            found += _pairs(run, repeat, kernel, name, shown)
    return found


def _soft(run: Run, repeat: int, kernel: str) -> _Found:
    if not {"kernel.softirq_entry", "kernel.softirq_exit"} <= set(run.tables):
        return []
    return _pairs(run, repeat, kernel, "softirq", _VECTOR)


_CASES = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(_VECTORS))
_VECTOR = f"CASE vec {_CASES} ELSE 'vector ' || vec END"


def _pairs(run: Run, repeat: int, kernel: str, name: str, shown: str) -> _Found:
    """The entries of each processor that are followed by their exit."""
    columns = f"cpu, ts, {shown} AS name"
    entries = rows_of(run, f"kernel.{name}_entry", repeat, kernel, columns)
    exits = rows_of(run, f"kernel.{name}_exit", repeat, kernel, "cpu, ts")
    cpus, starts = entries["cpu"].to_numpy(), entries["ts"].to_numpy()
    coded = entries["name"].dictionary_encode().combine_chunks()
    words = np.array(coded.dictionary.to_pylist(), dtype=object)
    names = words[coded.indices.to_numpy()] if len(words) else np.array([], dtype=object)
    exit_cpus, exit_times = exits["cpu"].to_numpy(), exits["ts"].to_numpy()
    found: _Found = []
    for cpu in np.unique(cpus).tolist():
        ends = exit_times[exit_cpus == cpu]
        begun = starts[cpus == cpu]
        place = np.searchsorted(ends, begun, side="right")
        ended = place < len(ends)
        found.append((cpu, (names[cpus == cpu][ended], begun[ended], ends[place[ended]])))
    return found


_Raised = tuple["Integers", "Integers", "Integers"]


def _raises(run: Run, repeat: int, kernel: str) -> dict[tuple[int, str], _Raised]:
    """Time, thread and flags of the events that ask for each soft interrupt of a processor."""
    table = "kernel.softirq_raise"
    if table not in run.tables:
        return {}
    rows = rows_of(run, table, repeat, kernel, "ts, cpu, vec, tid, common_flags")
    cpus, vectors = rows["cpu"].to_numpy(), rows["vec"].to_numpy()
    columns = [rows[each].to_numpy().astype(np.int64) for each in ("ts", "tid", "common_flags")]
    found = {}
    for cpu, vector in {*zip(cpus.tolist(), vectors.tolist(), strict=True)}:
        of = (cpus == cpu) & (vectors == vector)
        name = _VECTORS[vector] if vector < len(_VECTORS) else f"vector {vector}"
        found[cpu, name] = (columns[0][of], columns[1][of], columns[2][of])
    return found
