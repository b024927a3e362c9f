"""The clock probes of a run: each exchange's instants, and the threads that it was with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.maximum_error import COUNTER, on_one_host
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.timeline.probe_log import MOMENTS, read_probe_log

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.kernel_causes import Kernels
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.timeline import Run

LEG_ENDS = (0, 1, 3, 4, 5)
"""Columns of `Exchanges.at`: a leg of an exchange is from each to the next."""
SOURCES = {1: "kernel", 2: "program", 3: "interface"}
"""Who stamped (`schema/clock-log.md`)."""
# The names of the agents' threads.
_ASKS, _ASKS_FOLLOWERS, _ANSWERS = "clock-prober", "clock-mesh", "clock-responder"
_SAMPLE = 200
"""So many instants tell which thread wrote a log."""


@dataclass(frozen=True)
class Exchanges:
    """The exchanges between two hosts in a repeat, of while their kernels were recorded."""

    repeat: int
    host: str
    """That which asks."""
    peer: str
    """That which answers."""
    id: Nanoseconds
    at: Nanoseconds
    """A row for each: when the probe left, came, and was read; when the reply left, came, and was
    read. Of the kernel's time at the host of each, and none before the one that it follows."""
    err: Nanoseconds
    """Maximum errors of the times between the instants at `LEG_ENDS`, then that of the whole."""
    threads: tuple[int | None, int | None]
    """The thread that asks and the one that answers; None: it is not known."""
    stamps: Counter[str]
    """The stamps by who made them, see `SOURCES`."""
    incomplete: int
    """Probes without all stamps, or with one twice: they or their reply were lost, for example."""
    unrecorded: int
    """Exchanges at whose time one of the two kernels was not recorded."""


def read_exchanges(run: Run, kernels: Kernels) -> Iterator[Exchanges]:
    """The exchanges of each repeat and pair of hosts, those with the reference first.

    Raises `RunError`.
    """
    rows = run.relation("hosts").order("repeat, host").to_arrow_table().to_pylist()
    # Earlier versions had no `apart_ns`.
    claims = [_Claim(*map(row.get, _Claim._fields)) for row in rows]
    read = cache(read_probe_log)
    for repeat, directory in run.repeats.items():
        found = {each.host: each for each in claims if each.repeat == repeat}
        clocks = {name: directory / "hosts" / name / "clock" for name in found}
        references = [name for name, each in found.items() if each.reference]
        ways = [
            (_ASKS, "probes", name, peer, clocks[name] / "probes")
            for peer in references
            for name in found
            if name not in references
        ]
        ways += [
            (_ASKS_FOLLOWERS, "answers", name, log.name, log)
            for name, clock in clocks.items()
            for log in sorted(clock.glob("mesh/*"))
        ]
        for asks, answers, name, peer, log in ways:
            there = clocks[peer] / answers
            if not (log.is_dir() and there.is_dir()):
                continue
            near, far = (
                _End(end, thread, kernels.of(repeat, end), found.get(kernel, found[end]))
                for end, thread in ((name, asks), (peer, _ANSWERS))
                for kernel in [kernels.name_of(repeat, end)]
            )
            yield _placed(repeat, near, far, *_joined(read(log), read(there)))


class _Claim(NamedTuple):
    """What a host's clock claims, or that of a kernel which several hosts share."""

    repeat: int
    host: str
    reference: bool
    max_err_ns: int | None
    drift_ppm: float | None
    apart_ns: int | None

    def to(self, other: _Claim, length: Nanoseconds) -> Nanoseconds:
        """Maximum errors of times from one of its instants to one of another clock, or its own."""
        if other is self:
            drift = np.nan if self.drift_ppm is None else self.drift_ppm
            found = on_one_host(length, np.array([(drift, self.apart_ns or 0)], dtype=COUNTER))
        else:
            both = [each.max_err_ns for each in (self, other)]
            found = np.full(len(length), np.nan if None in both else sum(filter(None, both)))
        known = np.where(np.isnan(found), UNKNOWN_NS, found)
        err: Nanoseconds = np.minimum(known, UNKNOWN_NS).astype(np.int64)
        return err


_Columns = dict[str, "npt.NDArray[np.int64]"]


def _joined(near: dict[str, pa.Table], far: dict[str, pa.Table]) -> tuple[_Columns, int]:
    """Columns `id` and, of each moment, `MOMENT_lo` and so on, of the exchanges that are whole.

    And how many probes were sent that make none.
    """
    keys = ["peer", "id"]
    tables = []
    for moment, log in zip(MOMENTS, (near, far, far, near), strict=True):
        names = [name if name in keys else f"{moment}_{name}" for name in log[moment].column_names]
        rows = log[moment].rename_columns(names)
        # Nobody knows which of two stamps of a probe is right.
        counts = rows.group_by(keys).aggregate([([], "count_all")])
        once = counts.filter(np.equal(counts["count_all"].to_numpy(), 1)).select(keys)
        tables.append(rows.join(once, keys, join_type="left semi"))
    whole = reduce(lambda left, right: left.join(right, keys, join_type="inner"), tables)
    whole = whole.sort_by("probe_sent_lo")
    columns = {name: whole[name].to_numpy().astype(np.int64) for name in whole.column_names}
    return columns, len(near[MOMENTS[0]]) - len(whole)


class _End(NamedTuple):
    host: str
    thread: str
    """The name of the thread that asks or answers."""
    kernel: Scheduling | None
    claim: _Claim
    """What its kernel's clock claims."""


def _placed(repeat: int, near: _End, far: _End, columns: _Columns, incomplete: int) -> Exchanges:
    every = len(columns["id"])
    columns = _recorded(columns, near.kernel, far.kernel)
    at: Nanoseconds = np.zeros((0, 6), dtype=np.int64)
    half: Nanoseconds = at
    threads: tuple[int | None, int | None] = (None, None)
    if near.kernel is not None and far.kernel is not None:
        at, half = _times(near.kernel, far.kernel, columns)
        # The stamps' errors may put one before the one that it follows.
        at = np.maximum.accumulate(at, axis=1)
        asks = _thread(near.kernel, near.thread, at[:, 5])
        threads = asks, _thread(far.kernel, far.thread, at[:, 2])
    sources = np.concatenate([columns[f"{each}_source"] for each in MOMENTS])
    return Exchanges(
        repeat=repeat,
        host=near.host,
        peer=far.host,
        id=columns["id"],
        at=at,
        err=_errors(at, half, near.claim, far.claim),
        threads=threads,
        stamps=Counter(SOURCES[each] for each in sources.tolist()),
        incomplete=incomplete,
        unrecorded=every - len(at),
    )


def _recorded(columns: _Columns, near: Scheduling | None, far: Scheduling | None) -> _Columns:
    """The exchanges from whose begin to whose end both kernels were recorded."""
    kept = np.zeros(len(columns["id"]), dtype=bool)
    if near is not None and far is not None:
        ends = [
            (near, "probe_sent_lo", "reply_received_logged"),
            (far, "probe_received_lo", "reply_sent_hi"),
        ]
        kept = np.logical_and.reduce(
            [
                (kernel.recorded[0] <= columns[first]) & (columns[last] <= kernel.recorded[1])
                for kernel, first, last in ends
            ]
        )
    return {name: each[kept] for name, each in columns.items()}


def _errors(at: Nanoseconds, half: Nanoseconds, near: _Claim, far: _Claim) -> Nanoseconds:
    """Maximum errors of the times between instants, see `Exchanges.err`."""
    # The instant at which a thread wrote something down is exact.
    sent, came, answered, returned = half[:, :4].T

    def time(first: int, last: int) -> Nanoseconds:
        return at[:, last] - at[:, first]

    found = [
        sent + came + near.to(far, time(0, 1)),
        came + answered + far.to(far, time(1, 3)),
        answered + returned + far.to(near, time(3, 4)),
        returned + near.to(near, time(4, 5)),
        sent + near.to(near, time(0, 5)),
    ]
    err: Nanoseconds = np.minimum(np.stack(found, axis=1), UNKNOWN_NS)
    return err


def _times(near: Scheduling, far: Scheduling, columns: _Columns) -> tuple[Nanoseconds, Nanoseconds]:
    """The instants of each exchange, see `Exchanges.at`, and how far each of its stamps may be off.

    A stamp is the middle of its interval.
    """
    at, half = [], []
    for moment, kernel in zip(MOMENTS, (near, far, far, near), strict=True):
        lo, hi = (kernel.times_of(columns[f"{moment}_{end}"]) for end in ("lo", "hi"))
        at.append(lo + (hi - lo) // 2)
        half.append((hi - lo + 1) // 2)
        if moment.endswith("received"):
            at.append(kernel.times_of(columns[f"{moment}_logged"]))
    return np.stack(at, axis=1), np.stack(half, axis=1)


def _thread(kernel: Scheduling, name: str, at: Nanoseconds) -> int | None:
    """The thread of that name that ran at most of the instants; None: none at half of them.

    Hosts that share a kernel have a thread of that name each.
    """
    sample = at[:: max(len(at) // _SAMPLE, 1)].tolist()
    ran = {tid: sum(_runs(kernel, tid, each) for each in sample) for tid in kernel.named(name)}
    best = max(ran, key=ran.__getitem__, default=None)
    return best if best is not None and 2 * ran[best] > len(sample) else None


def _runs(kernel: Scheduling, tid: int, at: int) -> bool:
    state = kernel.before(tid, at)
    return state is not None and state.state == "running"
