"""Channels of space-time memory: their counts, and the time of the threads that use them.

A thread's time is split as in Ramachandran et al., *Space-Time Memory* (PPoPP 1999), tables 2 to 4:
what it does between calls is the application's, what it waits in calls for an item or for room is
blocking, and the rest of a call is the runtime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.channel_result import (
    ChannelResult,
    ChannelsResult,
    ChannelUse,
    ThreadTimes,
)
from loopscope.analysis.missing_events import UNACCOUNTED, missing_events
from loopscope.analysis.recorded_kernels import RecordedKernels
from loopscope.analysis.running_time import Nanoseconds
from loopscope.experiment import Channel
from loopscope.strict_json import from_json
from loopscope.timeline import Run, RunError

if TYPE_CHECKING:
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.timeline.relation import Relation

# The component that serves a host's channels, before `-` and the host's name.
_SERVICE = "_channels"
_WAITS = ("get_wait", "put_wait")
_USES = ("put", "got", "looked")
_THREAD = "repeat, host, process, pid, tid"
_Thread = tuple[int, str, str, int, int]
_Intervals = tuple[Nanoseconds, Nanoseconds]
_NONE: _Intervals = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def read_channels(run: Run, channels: Sequence[Channel]) -> tuple[ChannelsResult | None, list[str]]:
    """What the experiment's channels did, None where it has none; and what is wrong with that.

    Raises `RunError` where an account cannot be read.
    """
    if not channels:
        return None, []
    counts, problems = _counts(run, channels)
    names = [channel.name for channel in channels]
    found = ChannelsResult(tuple(counts), tuple(_uses(run, names)), tuple(_threads(run, names)))
    return found, problems


def _counts(run: Run, channels: Sequence[Channel]) -> tuple[list[ChannelResult], list[str]]:
    found, problems = [], []
    for repeat, directory in run.repeats.items():
        for home in dict.fromkeys(channel.home for channel in channels):
            file = directory / f"hosts/{home}/components/{_SERVICE}-{home}/files/channels.json"
            if not file.exists():
                problems.append(
                    f"{home}, repeat {repeat}: the service of the channels left no account "
                    f"({file.relative_to(directory)}); what they counted is not known"
                )
                continue
            try:
                accounts = from_json(file.read_text(encoding="utf-8"))
                found += [_count(repeat, home, account) for account in accounts]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise RunError(f"{file}: not an account of channels: {error}") from error
    return found, problems


def _count(repeat: int, home: str, account: dict[str, Any]) -> ChannelResult:
    numbers = {key: int(account[key]) for key in ("capacity", "put", "collected", "dropped")}
    left = numbers["put"] - numbers["collected"]
    return ChannelResult(repeat=repeat, host=home, channel=account["name"], left=left, **numbers)


def _uses(run: Run, channels: Sequence[str]) -> list[ChannelUse]:
    found = []
    for channel in channels:
        for event in _USES:
            if f"{channel}.{event}" not in run.tables:
                continue
            rows = _of_threads(run, channel, event, "bytes, ts").aggregate(
                f"{_THREAD}, count(*), sum(bytes)::BIGINT, "
                "(count(*) - 1) * 1e9 / nullif(max(ts) - min(ts), 0)",
                _THREAD,
            )
            found += [
                ChannelUse(repeat, host, component, pid, tid, channel, event, items, size, rate)
                for repeat, host, component, pid, tid, items, size, rate in (
                    rows.order(_THREAD).fetchall()
                )
            ]
    return found


def _threads(run: Run, channels: Sequence[str]) -> list[ThreadTimes]:
    names = [name for name in channels if f"{name}.call" in run.tables]
    if not names:
        return []
    waits = [(name, wait) for name in names for wait in _WAITS if f"{name}.{wait}" in run.tables]
    calls = _intervals(run, [(name, "call") for name in names])
    waited = _intervals(run, waits)
    kernels = RecordedKernels(run)
    missing = {component: _missing(run, component, names) for _, _, component, *_ in calls}
    found = []
    for thread, (start, end) in calls.items():
        repeat, host, component, pid, tid = thread
        waits_of = waited.get(thread, _NONE)
        spent_ns = _processor_time(kernels.of(repeat, host), tid, (start, end), waits_of)
        blocked_ns = int(np.sum(waits_of[1] - waits_of[0]))
        found.append(
            ThreadTimes(
                repeat=repeat,
                host=host,
                component=component,
                pid=pid,
                tid=tid,
                calls=len(start),
                time_ns=int(end[-1] - start[0]),
                application_ns=int(np.sum(start[1:] - end[:-1])),
                blocked_ns=blocked_ns,
                runtime_ns=int(np.sum(end - start)) - blocked_ns,
                application_cpu_ns=None if spent_ns is None else spent_ns[0],
                runtime_cpu_ns=None if spent_ns is None else spent_ns[1],
                missing=missing[component],
            )
        )
    return found


def _processor_time(
    kernel: Scheduling | None, tid: int, calls: _Intervals, waits: _Intervals
) -> tuple[int, int] | None:
    """The processor time of a thread between calls, and in calls but for their waits, ns.

    None where it is not known: of more than a hundredth of the time nobody knows whether the thread
    had a processor.
    """
    running = None if kernel is None else kernel.running_time(tid)
    (start, end), begin, last = calls, int(calls[0][0]), int(calls[1][-1])
    if kernel is None or running is None or kernel.lost("sched", begin, last):
        return None
    if running.untold_in(begin, last) > (last - begin) / 100:
        return None
    application_ns = running.in_all(end[:-1], start[1:])
    return application_ns, running.in_all(start, end) - running.in_all(*waits)


def _missing(run: Run, component: str, channels: Sequence[str]) -> int | None:
    entities = (f"{channel}:{name}" for channel in channels for name in ("call", *_WAITS))
    counts = [missing_events(run, component, entity) for entity in entities]
    return None if max(counts) == UNACCOUNTED else sum(counts)


def _of_threads(run: Run, channel: str, event: str, columns: str) -> Relation:
    """Columns of a channel's event, after those of its thread."""
    thread = "repeat, host::VARCHAR AS host, process::VARCHAR AS process, pid, tid"
    return run.relation(f"{channel}.{event}").project(f"{thread}, {columns}")


def _intervals(run: Run, entities: Sequence[tuple[str, str]]) -> dict[_Thread, _Intervals]:
    """Begins and ends of some channels' intervals, by thread, rising."""
    parts = [
        _of_threads(run, channel, name, "start, ts").filter("start IS NOT NULL")
        for channel, name in entities
    ]
    if not parts:
        return {}
    whole = reduce(lambda one, other: one.union(other), parts)
    table = whole.order(f"{_THREAD}, start, ts").to_arrow_table()
    of_threads = whole.aggregate(f"{_THREAD}, count(*)", _THREAD).order(_THREAD).fetchall()
    if not of_threads:
        return {}
    start, end = (table[name].to_numpy() for name in ("start", "ts"))
    edges = np.cumsum([count for *_, count in of_threads])[:-1]
    pairs = zip(np.split(start, edges), np.split(end, edges), strict=True)
    return {tuple(thread): pair for (*thread, _), pair in zip(of_threads, pairs, strict=True)}
