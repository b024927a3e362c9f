"""Kernel activity whose phase goes with a pattern of a path's messages.

For each thread and interrupt: how long it was on the processors of the path's threads while each
message was under way. Times are those of the global time line, on which the kernel's events are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings.result import Activity
from loopscope.analysis.interrupts import Interrupts
from loopscope.analysis.kernel_result import SHARED
from loopscope.analysis.kernels import is_partial, rows_of
from loopscope.analysis.recorded_kernels import SCHEDULER
from loopscope.analysis.scheduling import IDLE
from loopscope.analysis.threads import Threads
from loopscope.timeline.relation import literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from loopscope.analysis.findings.series import Floats
    from loopscope.analysis.messages import Messages
    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

LEAST_SHARE = 0.2
"""An activity goes with a pattern if it explains this share of what the pattern does."""
LEAST_SHARE_ONCE = 0.5
"""The same of a pattern that does not repeat."""
_LEAST_PART = 0.1
"""It lasts at least this part of the time that the pattern adds."""
_MOST = 5
_SHIFTS = 50
"""Other phases, in which it must explain less."""


class Activities:
    """What the kernels of one repeat did on the processors of a path's threads."""

    def __init__(self, run: Run, messages: Messages, repeat: int) -> None:
        """Raises `RunError` where the tables cannot be read."""
        self._stretches: dict[str, list[tuple[int, Integers, Integers]]] = defaultdict(list)
        recorded = run.relation(SCHEDULER[0]).filter(f"repeat = {repeat}")
        kernels = {name for (name,) in recorded.project("host").distinct().fetchall()}
        self.recorded = bool(kernels) and not is_partial(run)
        """Whether any kernel's events were recorded in it, all of them."""
        own = _threads(run, messages, repeat)
        for kernel in sorted(kernels):
            tids = {tid for host, tid in own if kernel in (SHARED, host)}
            self._read(run, repeat, kernel, tids)

    def _read(self, run: Run, repeat: int, kernel: str, own: set[int]) -> None:
        columns = "ts, cpu, prev_tid, next_tid, next_comm::VARCHAR AS next_comm"
        rows = rows_of(run, SCHEDULER[0], repeat, kernel, columns)
        ts, cpus = rows["ts"].to_numpy(), rows["cpu"].to_numpy().astype(np.int64)
        came = rows["next_tid"].to_numpy().astype(np.int64)
        went = rows["prev_tid"].to_numpy().astype(np.int64)
        coded = rows["next_comm"].dictionary_encode().combine_chunks()
        names = dict(zip(came.tolist(), coded.indices.to_pylist(), strict=True))
        words = coded.dictionary.to_pylist()
        threads = Threads(run, repeat, kernel)
        on = np.isin(came, list(own)) | np.isin(went, list(own))
        processors = np.unique(cpus[on]).tolist()
        for cpu in processors:
            here = np.flatnonzero(cpus == cpu)
            starts, ends = ts[here][:-1], ts[here][1:]
            # Where it is not told when idling ended, who goes next had come before.
            who = went[here][1:]
            order = np.argsort(who, kind="stable")
            tids, firsts = np.unique(who[order], return_index=True)
            for tid, places in zip(tids.tolist(), np.split(order, firsts[1:]), strict=True):
                if tid != IDLE and tid not in own:
                    comm = words[names[tid]] if tid in names else f"thread {tid}"
                    name = threads.named(tid, comm)
                    self._stretches[name].append((cpu, starts[places], ends[places]))
        interrupts = Interrupts(run, repeat, kernel, {})
        for kind in ("interrupt", "softirq"):
            for cpu, (served, starts, ends) in interrupts.served(kind).items():
                if cpu in processors:
                    for name in {*served.tolist()}:
                        of = served == name
                        self._stretches[f"{kind} {name}"].append((cpu, starts[of], ends[of]))

    def ranked(
        self,
        begin: Integers,
        end: Integers,
        rest: Floats,
        fit: Floats,
        whole: Floats,
        *,
        once: bool = False,
    ) -> tuple[Activity, ...]:
        """The activities that go with a pattern, that which explains most of the times first.

        ``begin`` and ``end`` are those of the messages, ``rest`` their times without stronger
        patterns, ``fit`` what the pattern adds, ``whole`` the times. ``once``: it does not repeat,
        so that much may have been in step with it by chance.
        """
        found = []
        scale = float(np.var(rest) / np.var(whole))
        took = end - begin
        span = max(int(end.max() - begin.min()), 1)
        for name, by_cpu in self._times(begin, end):
            # A message that takes longer meets more of anything: what counts is more than that.
            whole_time = sum(
                float((until - since).sum()) for _, since, until in self._stretches[name]
            )
            times = np.sum(list(by_cpu.values()), axis=0) - whole_time / span * took
            share = _of_variance(times, fit)
            if share < (LEAST_SHARE_ONCE if once else LEAST_SHARE) or not _in_phase(
                times, fit, share
            ):
                continue
            if float(np.polyfit(fit - fit.mean(), times, 1)[0]) < _LEAST_PART:
                continue
            part = _of_variance(times, rest) * scale
            most = sum(float(each.sum()) for each in by_cpu.values())
            cpus = [cpu for cpu, each in by_cpu.items() if float(each.sum()) > 0.1 * most]
            found.append(Activity(name, tuple(sorted(cpus)), part))
        found.sort(key=lambda each: -each.explained)
        return tuple(found[:_MOST])

    def _times(self, begin: Integers, end: Integers) -> Iterator[tuple[str, Mapping[int, Floats]]]:
        """How long each was on each processor while each message was under way, ns."""
        for name, stretches in self._stretches.items():
            by_cpu: dict[int, list[tuple[Integers, Integers]]] = defaultdict(list)
            for cpu, starts, ends in stretches:
                by_cpu[cpu].append((starts, ends))
            yield name, {cpu: _within(each, begin, end) for cpu, each in by_cpu.items()}


def _threads(run: Run, messages: Messages, repeat: int) -> set[tuple[str, int]]:
    """Host and number of the threads that recorded the path's events."""
    found: set[tuple[str, int]] = set()
    for event in messages.path.events:
        if event.table in run.tables:
            here = f"repeat = {repeat} AND process = {literal(event.component)} AND tid IS NOT NULL"
            rows = run.relation(event.table).filter(here).project("host, tid").distinct()
            found.update(rows.fetchall())
    return found


def _within(stretches: list[tuple[Integers, Integers]], begin: Integers, end: Integers) -> Floats:
    """How much of each time from ``begin`` to ``end`` the stretches of one processor cover, ns."""
    starts = np.concatenate([each for each, _ in stretches])
    ends = np.concatenate([each for _, each in stretches])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    # From the first instant on: floats hold ns exactly then.
    origin = min(int(starts[0]), int(begin.min()))
    corners = np.stack([starts, ends], axis=1).ravel() - origin
    passed = np.stack([np.zeros(len(starts), np.int64), ends - starts], axis=1).ravel().cumsum()
    until = np.interp(end - origin, corners, passed)
    return np.asarray(until - np.interp(begin - origin, corners, passed), dtype=np.float64)


def _of_variance(times: Floats, values: Floats) -> float:
    """The share of the variance of values that rises with some times."""
    if not (np.ptp(times) > 0 and np.ptp(values) > 0):
        return 0.0
    together = float(np.corrcoef(times, values)[0, 1])
    return together**2 if together > 0 else 0.0


def _in_phase(times: Floats, fit: Floats, share: float) -> bool:
    """Whether the activity explains less of the pattern in most other phases."""
    shifts = np.linspace(0, len(times), _SHIFTS + 2)[1:-1].astype(np.int64)
    others = [_of_variance(np.roll(times, int(each)), fit) for each in shifts]
    return share > float(np.quantile(others, 0.8))
