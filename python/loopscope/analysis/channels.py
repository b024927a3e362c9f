"""Channels of space-time memory: their counts, who uses them, and the time of those threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopscope.analysis.channel_result import ChannelResult, ChannelsResult, ChannelUse
from loopscope.analysis.channel_threads import THREAD, of_threads, read_threads
from loopscope.analysis.remote_items import read_remote_items
from loopscope.experiment import Channel, service
from loopscope.strict_json import from_json
from loopscope.timeline import Run, RunError

_USES = ("put", "got", "looked")


def read_channels(run: Run, channels: Sequence[Channel]) -> tuple[ChannelsResult | None, list[str]]:
    """What the experiment's channels did, None where it has none; and what is wrong with that.

    Raises `RunError` where an account cannot be read.
    """
    if not channels:
        return None, []
    counts, problems = _counts(run, channels)
    names = [channel.name for channel in channels]
    found = ChannelsResult(
        tuple(counts),
        tuple(_uses(run, names)),
        tuple(read_threads(run, names)),
        read_remote_items(run, channels),
    )
    return found, problems


def _counts(run: Run, channels: Sequence[Channel]) -> tuple[list[ChannelResult], list[str]]:
    found, problems = [], []
    for repeat, directory in run.repeats.items():
        for home in dict.fromkeys(channel.home for channel in channels):
            file = directory / f"hosts/{home}/components/{service(home)}/files/channels.json"
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
            rows = of_threads(run, channel, event, "bytes, ts").aggregate(
                f"{THREAD}, count(*), sum(bytes)::BIGINT, "
                "(count(*) - 1) * 1e9 / nullif(max(ts) - min(ts), 0)",
                THREAD,
            )
            found += [
                ChannelUse(repeat, host, component, pid, tid, channel, event, items, size, rate)
                for repeat, host, component, pid, tid, items, size, rate in (
                    rows.order(THREAD).fetchall()
                )
            ]
    return found
