"""What channels of space-time memory have counted, and how threads spent their time at them."""

from __future__ import annotations

from dataclasses import dataclass

from loopscope.analysis.document import Document


@dataclass(frozen=True)
class ChannelResult(Document):
    """What a channel had counted when its run ended."""

    repeat: int
    host: str
    """Its home."""
    channel: str
    capacity: int
    """Items that it may have."""
    put: int
    """Items that were put."""
    collected: int
    """Items of these whose slot was free again."""
    dropped: int
    """Items of these that were dropped to make room."""
    left: int
    """Items that it still had."""


@dataclass(frozen=True)
class ThreadTimes(Document):
    """How a thread spent its time from its first call of a channel to the end of its last one."""

    repeat: int
    host: str
    component: str
    pid: int
    tid: int
    calls: int
    """Calls that did something or waited; polls that found nothing are not among them."""
    time_ns: int
    application_ns: int
    """Time between calls."""
    blocked_ns: int
    """Time in calls in which it waited for an item or for room."""
    runtime_ns: int
    """The rest of the time in calls."""
    application_cpu_ns: int | None
    """Processor time between calls, from the kernel's events; None where it is not known."""
    runtime_cpu_ns: int | None
    """Processor time in calls but for the waits, likewise."""
    missing: int | None
    """Records of its component that may be missing at most; None where that is not known.

    The time of a call that is missing counts as application.
    """


@dataclass(frozen=True)
class ChannelUse(Document):
    """An edge of the graph of threads and channels: what a thread puts or gets."""

    repeat: int
    host: str
    component: str
    pid: int
    tid: int
    channel: str
    event: str
    """``put``, ``got`` or ``looked``."""
    items: int
    bytes: int
    rate_hz: float | None
    """Items a second, from the first one to the last one; None of fewer than two."""


@dataclass(frozen=True)
class ChannelsResult(Document):
    """What is known of a run's channels."""

    channels: tuple[ChannelResult, ...]
    uses: tuple[ChannelUse, ...]
    """Empty where what programs do with the channels was not recorded."""
    threads: tuple[ThreadTimes, ...]
    """Empty where the channels' calls were not recorded."""
