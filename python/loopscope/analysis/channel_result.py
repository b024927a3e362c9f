"""What channels of space-time memory have counted, and how threads spent their time at them."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Calls that did something or waited; polls that found nothing are not among them. Of a thread
    of a service, which relays items: the messages that it sent or received."""
    time_ns: int
    application_ns: int
    """Time between calls; 0 of a service's thread."""
    blocked_ns: int
    """Time in which it waited for an item, for room or for a message."""
    runtime_ns: int
    """The rest of the time in calls; of a service's thread, the rest of its time."""
    messaging_ns: int
    """Time in which it sent or received messages."""
    application_cpu_ns: int | None
    """Processor time between calls, from the kernel's events; None where it is not known."""
    runtime_cpu_ns: int | None
    """Processor time in calls but for waits and messages, likewise."""
    messaging_cpu_ns: int | None
    """Processor time in which it sent or received messages, likewise."""
    memory_ns: int | None
    """What of the runtime's time it took and freed places for items; None: not recorded."""
    synchronisation_ns: int | None
    """What of the runtime's time it took locks, gave them up and woke others, likewise."""
    messaging_synchronisation_ns: int | None
    """What of the time for messages it took locks, likewise."""
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


REMOTE_TIMES = ("p50", "p99", "max")
"""The statistics of each part of the way of items to another host."""


@dataclass(frozen=True)
class RemotePart(Document):
    """A part of the way of items to a reader on another host."""

    items: int
    """Items with a record of both ends."""
    times: Mapping[str, int | None]
    """Times by the names in `REMOTE_TIMES`, ns; None of no item."""
    err_ns: int | None
    """The largest maximum error among them; None where one is unknown."""


@dataclass(frozen=True)
class RemoteItems(Document):
    """The way of a channel's items to a thread of another host that got them."""

    repeat: int
    channel: str
    home: str
    host: str
    component: str
    pid: int
    tid: int
    items: int
    """Items that it got, each counted once."""
    without_put: int
    """Items of these without a record of their put."""
    without_sent: int
    without_received: int
    undecided_sent: int
    """Items of which it is open which sending was to this host, as there are several hosts.

    They are not among those without a record of it.
    """
    missing: int | None
    """Records of what its component got that may be missing at most; None: not known."""
    whole: RemotePart
    """From the put at home until it had the item.

    What a program elsewhere put is at home as soon as the home's service has received it.
    """
    put_to_sent: RemotePart
    """From the put until the home's service sent the item."""
    sent_to_received: RemotePart
    """Until the service of its host had the item."""
    received_to_got: RemotePart


@dataclass(frozen=True)
class ChannelsResult(Document):
    """What is known of a run's channels."""

    channels: tuple[ChannelResult, ...]
    uses: tuple[ChannelUse, ...]
    """Empty where what programs do with the channels was not recorded."""
    threads: tuple[ThreadTimes, ...]
    """Empty where the channels' calls were not recorded."""
    remote_items: tuple[RemoteItems, ...] = ()
    """A result for each reader on another host than its channel's home."""
