"""The interrupts and soft interrupts of a machine's processors, from the kernel's events.

All times are ns of the kernel's own place on the global time line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.kernels import rows_of
from loopscope.experiment import kernel_events

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]
    Names = npt.NDArray[np.object_]

Gap = tuple[int, int]
"""When events were lost: from and until."""
# TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ of the kernel.
_IN_HARD = 8
_IN_SOFT = 16
_VECTORS = "HI TIMER NET_TX NET_RX BLOCK IRQ_POLL TASKLET SCHED HRTIMER RCU".split()
CLASSES = {"interrupt": "irq", "softirq": "softirq"}
"""The classes of events that tell of interruptions, by their kinds."""


@dataclass(frozen=True)
class Source:
    """The two tables that tell of interrupts: of their entries and of their exits."""

    kind: str
    """`interrupt` or `softirq`."""
    event: str
    """The name of both tables without their ends."""
    shown: tuple[str, str]
    """The interrupt's name at an entry and at an exit, as SQL."""
    columns: frozenset[str] = frozenset()
    """Those of the entries' table that the name is made of."""

    @property
    def tables(self) -> tuple[str, str]:
        return f"kernel.{self.event}_entry", f"kernel.{self.event}_exit"


_CASES = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(_VECTORS))
_VECTOR = f"CASE vec {_CASES} ELSE 'vector ' || vec END"
_HANDLER = "'irq ' || irq || ' ' || name"
SOURCES = (
    Source("interrupt", "irq_handler", (_HANDLER, "'irq ' || irq"), frozenset({"irq", "name"})),
    *(Source("interrupt", name, (f"'{name}'", f"'{name}'")) for name in kernel_events.VECTORS),
    Source("softirq", "softirq", (_VECTOR, _VECTOR), frozenset({"vec"})),
)


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

    def __init__(
        self, run: Run, repeat: int, kernel: str, lost: Mapping[str, Sequence[Gap]]
    ) -> None:
        """``lost``: when events were lost, by class. Raises `RunError` where a table is no good."""
        found: dict[str, _Found] = {kind: [] for kind in CLASSES}
        for source in SOURCES:
            if {*source.tables} <= {*run.tables}:
                gaps = lost.get(CLASSES[source.kind], ())
                found[source.kind] += _pairs(run, repeat, kernel, source, gaps)
        self._served = {kind: _of_cpus(each) for kind, each in found.items()}
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

    def raised(self, cpu: int, served: Interrupt) -> tuple[Happening, int] | None:
        """What asked for a soft interrupt first since the end of the one of that name before it.

        And when that was; -1: there was none.
        """
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
        return Happening(int(times[place]), int(by[place]), within, cpu), since


_Served = tuple["Names", "Integers", "Integers"]
_NEVER = np.iinfo(np.int64).max
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


def _pairs(
    run: Run,
    repeat: int,
    kernel: str,
    source: Source,
    lost: Sequence[Gap],
) -> _Found:
    """The interrupts of each processor, from an entry to the exit that follows it.

    Where one of the two is lost, as far as it surely went on: from or to a gap.
    """
    ends = [
        rows_of(run, table, repeat, kernel, f"cpu, ts, {text} AS name")
        for table, text in zip(source.tables, source.shown, strict=True)
    ]
    cpus, times = ([each[column].to_numpy() for each in ends] for column in ("cpu", "ts"))
    names = [_texts(each["name"]) for each in ends]
    found: _Found = []
    for cpu in np.unique(np.concatenate(cpus)).tolist():
        here = [each == cpu for each in cpus]
        begun, ended = (each[of] for each, of in zip(times, here, strict=True))
        of_entry, of_exit = (each[of] for each, of in zip(names, here, strict=True))
        place = np.searchsorted(ended, begun, side="right")
        following = np.append(begun[1:], _NEVER)
        whole = np.append(ended, _NEVER)[place] < following
        found.append((cpu, (of_entry[whole], begun[whole], ended[place[whole]])))
        if not lost:
            continue
        parts = []
        for row in np.flatnonzero(~whole).tolist():
            gap = next(
                (gap for gap in lost if begun[row] < gap[1] and gap[0] < following[row]), None
            )
            if gap is not None:
                parts.append((of_entry[row], int(begun[row]), max(gap[0], int(begun[row]))))
        for row in np.setdiff1d(np.arange(len(ended)), place[whole]).tolist():
            before = int(ended[row - 1]) if row else -_NEVER
            gap = next((gap for gap in lost if before < gap[1] and gap[0] < ended[row]), None)
            if gap is not None:
                parts.append((of_exit[row], min(gap[1], int(ended[row])), int(ended[row])))
        if parts:
            columns = [np.array(column) for column in zip(*parts, strict=True)]
            found.append((cpu, (columns[0].astype(object), columns[1], columns[2])))
    return found


def _texts(column: pa.ChunkedArray) -> Names:
    """A column of few different texts."""
    coded = column.dictionary_encode().combine_chunks()
    words = np.array(coded.dictionary.to_pylist(), dtype=object)
    return words[coded.indices.to_numpy()] if len(words) else np.array([], dtype=object)


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
