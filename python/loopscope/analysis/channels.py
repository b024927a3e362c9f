"""Channels of space-time memory: their counts, and the time of the threads that use them.

A thread's time is split as in Ramachandran et al., *Space-Time Memory* (PPoPP 1999), tables 2 to 4:
what it does between calls is the application's, what it waits in calls for an item or for room is
blocking, and the rest of a call is the runtime's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loopscope.analysis.channel_result import (
    ChannelResult,
    ChannelsResult,
    ChannelUse,
    ThreadTimes,
)
from loopscope.analysis.missing_events import UNACCOUNTED, missing_events
from loopscope.experiment import Channel
from loopscope.strict_json import from_json
from loopscope.timeline import Run, RunError

if TYPE_CHECKING:
    from loopscope.timeline.relation import Relation

SERVICE = "_channels"
"""Process name of the service of a host's channels; the host's name goes on with `-`."""
_WAITS = ("get_wait", "put_wait")
_USES = ("put", "got", "looked")
_THREAD = "repeat, host, process, pid, tid"


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
            file = directory / f"hosts/{home}/components/{SERVICE}-{home}/files/channels.json"
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
    calls = _rows(run, [(name, "call") for name in names])
    gaps = calls.project(
        f"{_THREAD}, channel, start, ts, ts - start AS length, "
        f"start - lag(ts) OVER (PARTITION BY {_THREAD} ORDER BY start, ts) AS gap"
    )
    spent = gaps.aggregate(
        f"{_THREAD}, list_sort(list(DISTINCT channel)) AS channels, count(*) AS calls, "
        "(max(ts) - min(start))::BIGINT AS whole, coalesce(sum(gap), 0)::BIGINT AS application, "
        "sum(length)::BIGINT AS called",
        _THREAD,
    ).order(_THREAD)
    blocked: dict[Any, int] = defaultdict(int)
    waits = [(name, wait) for name in names for wait in _WAITS if f"{name}.{wait}" in run.tables]
    if waits:
        sums = _rows(run, waits).aggregate(f"{_THREAD}, sum(ts - start)::BIGINT", _THREAD)
        blocked |= {tuple(thread): ns for *thread, ns in sums.fetchall()}
    rows = spent.fetchall()
    missing = {component: _missing(run, component, names) for _, _, component, *_ in rows}
    return [
        ThreadTimes(
            repeat=repeat,
            host=host,
            component=component,
            pid=pid,
            tid=tid,
            channels=tuple(used),
            calls=count,
            time_ns=whole,
            application_ns=application,
            blocked_ns=blocked[repeat, host, component, pid, tid],
            runtime_ns=called - blocked[repeat, host, component, pid, tid],
            missing=missing[component],
        )
        for repeat, host, component, pid, tid, used, count, whole, application, called in rows
    ]


def _missing(run: Run, component: str, channels: Sequence[str]) -> int | None:
    entities = (f"{channel}:{name}" for channel in channels for name in ("call", *_WAITS))
    counts = [missing_events(run, component, entity) for entity in entities]
    return None if max(counts) == UNACCOUNTED else sum(counts)


def _of_threads(run: Run, channel: str, event: str, columns: str) -> Relation:
    """Columns of a channel's event, after those of its thread."""
    thread = "repeat, host::VARCHAR AS host, process::VARCHAR AS process, pid, tid"
    return run.relation(f"{channel}.{event}").project(f"{thread}, {columns}")


def _rows(run: Run, intervals: Sequence[tuple[str, str]]) -> Relation:
    """The rows of some channels' intervals whose start is known."""
    parts = [
        _of_threads(run, channel, name, f"'{channel}' AS channel, start, ts").filter(
            "start IS NOT NULL"
        )
        for channel, name in intervals
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole
