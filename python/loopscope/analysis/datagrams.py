"""The times of single packets from host to host against those of the messages that they carry.

A packet's time is from where it left the sender's device to where it came from the receiver's. A
message's is the hop that it made: its event at the sender to its event at the receiver. Their ratio
tells the network from the reassembly of messages and from what the two hosts add.

The devices of the two hosts may see other packets: one cuts a packet into several, or puts several
together. Then each packet that came is divided where one that left begins, so the smaller ones are
counted. TCP does not say which of two packets with the same byte came. So a packet that left twice
before it came has no time, as in RFC 6298, section 3; it is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.bounded_statistics import Bracket, Sample
from loopscope.analysis.document import Document
from loopscope.analysis.item_datagrams import ItemDatagrams
from loopscope.analysis.ledger import Hop, Packets
from loopscope.analysis.maximum_error import COUNTER, NO_COUNTER, maximum_errors
from loopscope.analysis.messages import Intervals, counters
from loopscope.analysis.network import Network
from loopscope.analysis.places import Place, read_places
from loopscope.analysis.recorded_kernels import (
    NothingRecordedError,
    RecordedKernels,
    has_events,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Exact
    from loopscope.analysis.ledger import Traffic
    from loopscope.analysis.messages import Messages, Rows
    from loopscope.experiment import MessagePath
    from loopscope.experiment.measures import PathEvent
    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

UNKNOWN_PACKETS = "its packets are not known"
MISSING = "events of packets are missing then"


@dataclass(frozen=True)
class Times(Document):
    """Mean and standard deviation of some times, ns.

    None where there is no time; a maximum error is also None where nothing bounds it.
    """

    count: int
    mean_ns: float | None
    mean_err_ns: int | None
    deviation_ns: float | None
    deviation_err_ns: int | None

    @classmethod
    def of(cls, length: Integers, err: Integers) -> Times:
        """Those of intervals with their maximum errors."""
        sample = Sample(length, err)
        mean, deviation = (sample.bracket(name) for name in ("mean", "deviation"))
        return cls(len(sample), *_rounded(mean), *_rounded(deviation))


@dataclass(frozen=True)
class HopDatagrams(Document):
    """Packets and messages of a hop between two hosts."""

    first: str
    last: str
    sent: int
    """Messages seen at the first event."""
    received: int
    """Messages seen at both events."""
    not_followed: Mapping[str, int]
    """Number of received messages by the reason why their packets are not known.

    What follows is of the other messages.
    """
    messages: Times
    packets: Times
    packets_per_message: float | None
    """Mean number of packets that came, each counted once."""
    bytes: int
    """Bytes of the messages in the packets that came, each counted once."""
    ratio: float | None
    """The packets' mean divided by the messages'."""
    left_again: int
    """Packets that left with a first byte that had left before."""
    came_again: int
    """The same of those that came. They have no time."""
    no_arrival: int
    """Packets that left and are not known to have come."""
    no_departure: int
    """Packets that came and are not known to have left. They have no time."""
    ambiguous: int
    """Packets that came and had left several times before. They have no time."""


@dataclass(frozen=True)
class PathDatagrams(Document):
    """A path's times, and those of the packets of its hops between two hosts."""

    path: str
    loop: Times
    """Times from its first event to its last, of all messages."""
    hops: tuple[HopDatagrams, ...]


class Paired(NamedTuple):
    """The packets of one message that came, each with where it left. Rows are packets."""

    start: Integers
    length: Integers
    start_err: Integers
    end_err: Integers
    counts: Counter[str]
    """Counts by the names in `HopDatagrams`, and of `packets` that came for the first time."""


@dataclass(frozen=True)
class Followed:
    """The packets of the messages of a hop."""

    rows: Rows
    """The messages whose packets are known."""
    not_followed: Mapping[int, str]
    """Why the packets of the other received messages are not known, by row."""
    packets: Intervals
    """From where each left to where it came. The ids are those of the messages."""
    counts: Counter[str]


def has_packets(run: Run) -> bool:
    """Whether packets were recorded, and what it takes to follow messages to them."""
    return has_events(run) and Network.recorded(run)


def _check_recorded(run: Run) -> None:
    """Raises NothingRecordedError of a run without packets."""
    if not has_packets(run):
        raise NothingRecordedError(
            f"{run.path} has no events of packets, or none of the kernel's scheduler: record both "
            "with `kernel: [sched:*, tcp:*]`, or udp:*, in the experiment's `trace`, as root"
        )


def between_hosts(path: MessagePath) -> list[tuple[int, int]]:
    """The hops of a path between two hosts."""
    events = path.events
    return [hop for hop in path.hops if events[hop[0]].host != events[hop[1]].host]


def datagrams(run: Run, messages: Messages) -> PathDatagrams:
    """The times by packet and by message of a path. Raises NothingRecordedError and RunError."""
    _check_recorded(run)
    kernels = RecordedKernels(run)
    network = Network(run, kernels)
    whole = messages.intervals(*messages.path.loop)
    hops = [_hop(run, messages, hop, kernels, network) for hop in between_hosts(messages.path)]
    return PathDatagrams(messages.path.name, Times.of(whole.length, whole.err), tuple(hops))


def followed(run: Run, messages: Messages, hop: tuple[int, int]) -> Followed:
    """The packets of a hop. Raises NothingRecordedError and RunError."""
    _check_recorded(run)
    kernels = RecordedKernels(run)
    return _followed(run, messages, hop, kernels, Network(run, kernels))


def _hop(
    run: Run,
    messages: Messages,
    hop: tuple[int, int],
    kernels: RecordedKernels,
    network: Network,
) -> HopDatagrams:
    found = _followed(run, messages, hop, kernels, network)
    intervals = messages.intervals(*hop)
    seen = np.flatnonzero(messages.seen[hop[0]] & messages.seen[hop[1]])
    own = np.isin(seen, found.rows)
    of_messages = Times.of(intervals.length[own], intervals.err[own])
    of_packets = Times.of(found.packets.length, found.packets.err)
    counts = found.counts
    ratio = None
    if of_packets.mean_ns is not None and of_messages.mean_ns:
        ratio = of_packets.mean_ns / of_messages.mean_ns
    return HopDatagrams(
        str(intervals.first),
        str(intervals.last),
        int(messages.seen[hop[0]].sum()),
        len(seen),
        Counter(found.not_followed.values()),
        of_messages,
        of_packets,
        counts["packets"] / len(found.rows) if len(found.rows) else None,
        counts["bytes"],
        ratio,
        counts["left_again"],
        counts["came_again"],
        counts["no_arrival"],
        counts["no_departure"],
        counts["ambiguous"],
    )


def _followed(
    run: Run,
    messages: Messages,
    hop: tuple[int, int],
    kernels: RecordedKernels,
    network: Network,
) -> Followed:
    seen = np.flatnonzero(messages.seen[hop[0]] & messages.seen[hop[1]])
    places = [read_places(run, messages, seen.tolist(), event) for event in hop]
    intervals = messages.intervals(*hop)
    stamps = [messages.ts[event][seen].tolist() for event in hop]
    claims = counters(run)
    events = messages.path.events[hop[0]], messages.path.events[hop[1]]
    items = ItemDatagrams(run)
    columns = messages.repeat[seen].tolist(), *stamps, intervals.err.tolist()
    rows: list[int] = []
    unknown: dict[int, str] = {}
    counts: Counter[str] = Counter()
    parts: list[tuple[Integers, ...]] = [(np.empty(0, np.int64),) * 4]
    for row, repeat, first, last, err in zip(seen.tolist(), *columns, strict=True):
        ends = places[0][repeat, first], places[1][repeat, last]
        traffic = _traffic(kernels, network, repeat, events, ends, (first, last), err, items)
        if isinstance(traffic, str):
            unknown[row] = traffic
            continue
        rows.append(row)
        names = [kernels.name_of(repeat, end.host) for end in ends]
        one_kernel = names[0] == names[1]
        paired = pair(traffic, 0 if one_kernel else err)
        counter = np.array(claims.get((repeat, names[0]), NO_COUNTER), COUNTER)
        of_both = paired.start_err + paired.end_err
        same = np.full(len(of_both), one_kernel)
        errs = maximum_errors(paired.length, of_both, counter, same)
        owner = np.full(len(of_both), row)
        parts.append((owner, paired.start, paired.length, errs))
        counts += paired.counts
    owner, start, length, errs = (np.concatenate(each) for each in zip(*parts, strict=True))
    packets = Intervals(
        intervals.first,
        intervals.last,
        messages.repeat[owner],
        messages.id[owner],
        start,
        length,
        errs,
        messages.keys,
    )
    return Followed(np.array(rows, np.intp), unknown, packets, counts)


def _traffic(
    kernels: RecordedKernels,
    network: Network,
    repeat: int,
    events: tuple[PathEvent, PathEvent],
    ends: tuple[Place, Place],
    stamps: tuple[int, int],
    err: int,
    items: ItemDatagrams,
) -> Traffic | str:
    """The packets of a message, or why they are not known."""
    times = []
    for end, ts in zip(ends, stamps, strict=True):
        kernel = kernels.of(repeat, end.host)
        if kernel is None:
            return f"the kernel of {end.host} was not recorded"
        times.append(ts if end.counter is None else kernel.time_of(end.counter))
        if end.tid is None:
            return f"it is not known which thread of {end.host} it was in"
    here, there = ends
    assert here.tid is not None and there.tid is not None
    both = [kernels.of(repeat, end.host) for end in ends]
    assert both[0] is not None
    of_item = items.of(events, repeat, here, both[0])
    hop = Hop(here.tid, there.tid, times[0], here.next, times[1], err, of_item)
    needed = network.needed(hop)
    if any(each.lost(kind, *times) for each in both if each for kind in needed):
        return MISSING
    return network.traffic(repeat, (here.host, there.host), hop) or UNKNOWN_PACKETS


def pair(traffic: Traffic, apart: int) -> Paired:
    """The packets that came, each with where it left.

    The clocks of the two kernels may be ``apart`` ns from each other.
    """
    left, whole = traffic.left, traffic.came
    came = _divided(whole, left.first)
    again = came.again
    new = Packets(*(column[~again] for column in came))
    number, departure = _departures(left, new, apart)
    timed = number == 1
    start = left.ts[departure[timed]]
    arrived = np.searchsorted(np.sort(came.first), left.first, side="right")
    arrived -= np.searchsorted(np.sort(came.end), left.first, side="right")
    counts: Counter[str] = Counter(
        packets=len(new.ts),
        bytes=int((new.end - new.first).sum()),
        left_again=int(left.again.sum()),
        came_again=int(again.sum()),
        no_arrival=int((arrived == 0).sum()),
        no_departure=int((number == 0).sum()),
        ambiguous=int((number > 1).sum()),
    )
    errs = left.err[departure[timed]], new.err[timed]
    return Paired(start, new.ts[timed] - start, *errs, counts)


def _divided(packets: Packets, begins: Integers) -> Packets:
    """The packets, divided where others begin."""
    begins = np.unique(begins)
    low = np.searchsorted(begins, packets.first, side="right")
    parts = np.searchsorted(begins, packets.end) - low + 1
    owner = np.repeat(np.arange(len(parts)), parts)
    number = np.arange(len(owner)) - (np.cumsum(parts) - parts)[owner]
    inner = number > 0
    first = packets.first[owner]
    first[inner] = begins[(low[owner] + number - 1)[inner]]
    end = packets.end[owner]
    end[:-1] = np.where(inner[1:], first[1:], end[:-1])
    return Packets(packets.ts[owner], packets.err[owner], first, end)


def _departures(left: Packets, came: Packets, apart: int) -> tuple[Integers, Integers]:
    """How many packets each may be that came, and the row of the last of these."""
    number, last = np.zeros((2, len(came.ts)), np.int64)
    if not len(left.ts):
        return number, last
    order = np.argsort(left.first, kind="stable")
    begins = np.searchsorted(left.first[order], came.first, side="right")
    ends = np.searchsorted(np.sort(left.end), came.first, side="right")
    last = order[np.maximum(begins - 1, 0)]
    before = left.ts[last] <= came.ts + apart
    only = (begins - ends == 1) & (left.end[last] > came.first) & before
    number[only] = 1
    # These are few: more than one packet had the byte.
    for row in np.flatnonzero((begins > ends) & ~only):
        first = came.first[row]
        may = (left.first <= first) & (first < left.end) & (left.ts <= came.ts[row] + apart)
        number[row] = np.count_nonzero(may)
        last[row] = np.flatnonzero(may)[-1] if number[row] else 0
    return number, last


def _rounded(bracket: Bracket | None) -> tuple[float | None, int | None]:
    """A value to a tenth of ns, and its maximum error."""
    if bracket is None:
        return None, None
    value: Exact = bracket.value
    return round(float(value), 1), bracket.err
