"""What reports call the threads that use channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from loopscope.analysis.channel_result import ChannelsResult


class ChannelThread(Protocol):
    """What a result says of a thread."""

    @property
    def repeat(self) -> int: ...
    @property
    def component(self) -> str: ...
    @property
    def tid(self) -> int: ...


def has_others(of: ChannelThread, among: Iterable[ChannelThread]) -> bool:
    """Whether its component has other threads, so that its name needs the thread's number."""
    mine = of.repeat, of.component
    return any((each.repeat, each.component) == mine and each.tid != of.tid for each in among)


def every_thread(channels: ChannelsResult) -> list[ChannelThread]:
    """The threads that are known of a run's channels, some of them several times."""
    return [*channels.uses, *channels.threads, *channels.remote_items]
