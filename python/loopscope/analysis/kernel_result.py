"""What a run's results say of the kernels that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from loopscope.analysis.document import INTERNAL, OPTIONAL, UNLESS_EMPTY, Document

SHARED = "_kernel"
"""Among the hosts: the kernel of a machine whose hosts share it."""


@dataclass(frozen=True)
class KernelLoss(Document):
    """Events of a class of the kernels'; `emitted == recorded + overwritten + dropped`."""

    emitted: int = 0
    recorded: int = 0
    dropped: int = 0
    overwritten: int = 0
    """That a flight recorder did not write."""


@dataclass(frozen=True)
class KernelCost(Document):
    """What recording kernels added to a path's messages, at most."""

    events: int
    """The kernels' events between the first and the last event of a message, on all processors:
    the median over the messages."""
    ns: int
    """The cost of the events if all of them were on the message's way, ns: also the median."""


@dataclass(frozen=True)
class Added(Document):
    """A statistic of a path's messages while the kernels were recorded, and while they were not."""

    with_ns: int
    without_ns: int
    added_ns: int
    """The difference."""
    low_ns: int | None
    high_ns: int | None
    """Ends of its 95 % interval, from the pairs resampled; None of too few of them."""


@dataclass(frozen=True)
class KernelAdded(Document):
    """What recording kernels added to a path's messages, by taking turns with not recording."""

    pairs: int
    """Of times with and without."""
    messages_with: int
    messages_without: int
    p50: Added
    p99: Added


@dataclass(frozen=True)
class ToldEvents(Document):
    """Events of a group that are told from the kernels', in all repeats.

    They are those of ``trace.messages`` and ``trace.wakeups``.
    """

    name: Annotated[str, INTERNAL]
    events: Mapping[str, int]
    """How many there are, by name: `sent`, `received` by each component that read them, `fired`."""
    missing: int | None
    """The most events of them that may be missing; None: there may be any number."""
    number: Annotated[str | None, OPTIONAL] = None
    """The event that has their numbers, where that is another one."""
    numberless: Annotated[int, UNLESS_EMPTY] = 0
    """How many have none, as no such event followed; they are not among the events."""


@dataclass(frozen=True)
class KernelDrops(Document):
    """Datagrams that a kernel dropped for one reason."""

    target: str
    """Address and port that they were for."""
    reason: str
    """Its name in the kernel, such as SOCKET_RCVBUFF."""
    function: str
    """The kernel's function that did it."""
    count: int


@dataclass(frozen=True)
class HistogramSlot(Document):
    """How many times were from one bound on and below another one, ns."""

    from_ns: int
    below_ns: int
    count: int


@dataclass(frozen=True)
class KernelHistogram(Document):
    """Times of one kind that a kernel counted in a repeat, without records of their events."""

    repeat: int
    kernel: str
    kind: str
    """`woken` or `preempted`: for how long a thread then waited for a processor. `softirq`: for how
    long a processor served soft interrupts."""
    of: str
    """The thread, or the kind of soft interrupt and the processor."""
    count: int
    sum_ns: int
    p50_ns: int
    """The end of the slot in which the median is, so up to a quarter above it; ``p99_ns`` too."""
    p99_ns: int
    largest_ns: int
    slots: tuple[HistogramSlot, ...]


@dataclass(frozen=True)
class KernelResult(Document):
    classes: Mapping[str, KernelLoss]
    absent: tuple[str, ...]
    """Tracepoints that a kernel has not."""
    unrecorded: Mapping[str, str]
    """Why a kernel could not be recorded, by kernel."""
    event_ns: Mapping[str, float]
    """What an event cost the thread in which it happened, as measured before the run.

    By class, or as `CLASS:NAME` where the events of a class differ.

    The largest of all kernels and repeats; without those of which it is not known.
    """
    cost_unknown: str | None
    """Why it is not known of one of them, after its name."""
    costs: Mapping[str, KernelCost]
    """By path; of no path where an event's cost is not known, or where `added` says it."""
    unobservable: tuple[str, ...]
    """What the events do not tell on these machines, in words."""
    drops: tuple[KernelDrops, ...]
    """Those of UDP; TCP drops what it has had before and sends again what is missing."""
    stolen_ns: int | None
    """What hypervisors took of the processors while the kernels were recorded, ns; None where that
    is not counted."""
    added: Annotated[Mapping[str, KernelAdded], UNLESS_EMPTY]
    """By path, where `trace.alternate` of the experiment asks for it."""
    histograms: Annotated[tuple[KernelHistogram, ...], UNLESS_EMPTY]
    """Where `trace.kernel_histograms` asks for them, those of the most time first."""
    left_out: Annotated[tuple[str, ...], UNLESS_EMPTY] = ()
    """Classes that `kernel: auto` leaves out for their cost, where it recorded events."""
