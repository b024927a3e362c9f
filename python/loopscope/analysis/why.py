"""What held single messages of a path: each hop split into parts with their causes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from loopscope.analysis import counted, message_packets
from loopscope.analysis.causes import UNKNOWN
from loopscope.analysis.counted_tcp import Connections
from loopscope.analysis.critical_path import Part, mostly_unknown, prefixed, split
from loopscope.analysis.document import OPTIONAL, UNLESS_EMPTY, Document
from loopscope.analysis.hop_decomposition import Link, LinkEvents, Passage
from loopscope.analysis.item_datagrams import ItemDatagrams
from loopscope.analysis.kernel_causes import Kernels, WhyPart, fitted
from loopscope.analysis.ledger import Hop
from loopscope.analysis.link_packets import LinkPackets
from loopscope.analysis.losses import Losses
from loopscope.analysis.measured_links import read_links, routers
from loopscope.analysis.message_packets import WhyCall, WhyPacket
from loopscope.analysis.network import Network
from loopscope.analysis.network_path import (
    between_kernels,
    is_passage_of,
    over_link,
    over_network,
)
from loopscope.analysis.places import Place, read_places
from loopscope.analysis.quantity_text import duration, maximum_error
from loopscope.analysis.recorded_kernels import NoSchedulerError, has_events, hosts_of
from loopscope.analysis.socket_stamps import SocketStamps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loopscope.analysis.ledger import Sending
    from loopscope.analysis.messages import Messages, Rows
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.analysis.verdict import Verdict
    from loopscope.timeline import Run


@dataclass(frozen=True)
class WhyHop(Document):
    """From one event of the path to the next."""

    first: str
    last: str
    ns: int
    err_ns: int
    """Maximum error of ``ns``, and of where each part begins and ends."""
    parts: tuple[WhyPart, ...]
    unknown: str | None
    """Why nothing of it could be told, or None."""
    packets: Annotated[tuple[WhyPacket, ...], UNLESS_EMPTY] = ()
    """Those that the message was in, where they are known and were asked for."""
    calls: Annotated[tuple[WhyCall, ...], UNLESS_EMPTY] = ()
    """The system calls that wrote and read it, where they are known and packets were asked for."""
    stream_place: Annotated[int | None, OPTIONAL] = None
    """Place of its first byte in the stream of its TCP connection, where that is known and packets
    were asked for."""


@dataclass(frozen=True)
class WhyMessage(Document):
    """A message and what held it."""

    repeat: int
    id: Any
    ns: int
    """From the first to the last event that is explained."""
    err_ns: int
    lost: bool
    hops: tuple[WhyHop, ...]
    loss: str | None = None
    """Between which events it was lost, and by what where that is known."""

    def parts(self) -> Iterator[WhyPart]:
        """Those of all hops. A hop of which nothing could be told is one part."""
        for hop in self.hops:
            if hop.unknown is not None:
                yield WhyPart(UNKNOWN, max(hop.ns, 0), (hop.unknown,))
            yield from hop.parts


def can_explain(run: Run) -> bool:
    """Whether that was recorded without which nothing can be said: events, or counts of threads."""
    return has_events(run) or counted.TABLE in run.tables


def why(
    run: Run,
    messages: Messages,
    rows: Sequence[int],
    ends: tuple[int, int] | None = None,
    *,
    packets: bool = False,
) -> list[WhyMessage]:
    """What held the messages in ``rows`` from one event of the path to another.

    ``ends`` None: from the first to the last. ``packets``: with those they were in. Raises
    NothingRecordedError, and RunError.
    """
    if not can_explain(run):
        raise NoSchedulerError(run)
    explained = _Explained(run, messages, rows, ends or messages.path.loop, packets)
    return [explained.message(row) for row in rows]


class _Explained:
    """The kernels of a run, each read once."""

    def __init__(
        self,
        run: Run,
        messages: Messages,
        rows: Sequence[int],
        ends: tuple[int, int],
        packets: bool,
    ) -> None:
        self._run = run
        self._messages = messages
        self._ends = ends
        self._packets = packets
        self._places = [
            read_places(run, messages, rows, each) for each in range(len(messages.seen))
        ]
        self._kernels = Kernels(run)
        found, _ = read_links(run)
        experiment = run.specification
        self._links = LinkEvents(run, found, experiment)
        self._routers = routers(run)
        self._passages: dict[tuple[int, int], dict[int, Passage]] = {}
        self._network = Network(run, self._kernels)
        self._item_datagrams = ItemDatagrams(run)
        self._losses = Losses(experiment, messages, self._network, self._links)
        self._counted = hosts_of(run, counted.TABLE)
        self._counts: dict[tuple[int, str], tuple[counted.Counts, Connections]] = {}
        self._stamps = SocketStamps(run) if self._counted else None

    def message(self, row: int) -> WhyMessage:
        messages = self._messages
        path = messages.path
        repeat = int(messages.repeat[row])
        key = messages.keys.shown(int(messages.id[row]))
        seen = [bool(each[row]) for each in messages.seen]
        first, last = self._ends
        within = [hop for hop in path.hops if first <= hop[0] and hop[1] <= last]
        both = [hop for hop in within if seen[hop[0]] and seen[hop[1]]]
        hops = tuple(self._hop(row, repeat, hop) for hop in both)
        lost = not (seen[first] and seen[last])
        length, err = (0, 0) if lost else _length(messages, row, first, last)
        ended = next((hop for hop in within if seen[hop[0]] and not seen[hop[1]]), None)
        loss = None if ended is None else self._loss(row, repeat, ended)
        return WhyMessage(repeat, key, length, err, lost, hops, loss)

    def _loss(self, row: int, repeat: int, hop: tuple[int, int]) -> str:
        at = int(self._messages.ts[hop[0]][row])
        place = self._places[hop[0]][repeat, at]
        host, sender, counter, until, _ = place
        kernel = self._kernels.of(repeat, host)
        begin = at if kernel is None or counter is None else kernel.time_of(counter)
        of_item = None if kernel is None else self._sendings(hop, repeat, place, kernel)
        return self._losses.between(row, hop, host, sender, (begin, until), of_item)

    def _sendings(
        self, hop: tuple[int, int], repeat: int, place: Place, kernel: Scheduling
    ) -> tuple[Sending, ...] | None:
        """The datagrams of an item, see `Hop`, which began the hop at a place."""
        events = self._messages.path.events
        return self._item_datagrams.of((events[hop[0]], events[hop[1]]), repeat, place, kernel)

    def _hop(self, row: int, repeat: int, hop: tuple[int, int]) -> WhyHop:
        messages = self._messages
        events = messages.path.events
        first, last = hop
        length, err = _length(messages, row, first, last)
        named = str(events[first]), str(events[last]), length, err
        stamps = [int(messages.ts[each][row]) for each in hop]
        ends = [self._places[each][repeat, ts] for each, ts in zip(hop, stamps, strict=True)]
        kernels = [self._kernels.of(repeat, place.host) for place in ends]
        link = ends[0].host, ends[1].host
        passage = self._over_links(hop).get(row)
        if kernels[1] is None and (repeat, link[1]) in self._counted:
            untold = self._untold(link, passage)
            return self._by_counts(repeat, named, ends, stamps, passage, untold)
        if kernels[1] is None:
            return WhyHop(*named, (), f"the kernel of {link[1]} was not recorded")
        sender, receiver = ends[0].tid, ends[1].tid
        if receiver is None:
            return WhyHop(*named, (), f"it is not known which thread {events[last]} was in")
        scheduling = kernels[1]
        # Where an event has no counter, as other tools' have none, its global time must do.
        begin, end = (
            ts if place.counter is None or kernel is None else kernel.time_of(place.counter)
            for ts, kernel, place in zip(stamps, kernels, ends, strict=True)
        )
        here = kernels[0] is scheduling
        carried = None
        if kernels[0] is not None and sender is not None:
            of_item = self._sendings(hop, repeat, ends[0], kernels[0])
            of_ends = Hop(sender, receiver, begin, ends[0].next, end, err, of_item)
            carried = self._network.carried(repeat, link, of_ends, packets=self._packets)
            needed = self._network.needed(of_ends)
            if any(each.lost(kind, begin, end) for each in kernels if each for kind in needed):
                carried = None
        if carried is not None and link in self._links.links:
            # On the receiver's time line, as the stamps of links are.
            of_link = repeat, link, carried, end - length - err, carried.came + err
            found = self._link_packets.passage(*of_link)
            sent = carried.sent - begin + end - length
            if not found and passage and not is_passage_of(carried, passage, sent, err):
                # That of another packet with the message's number.
                passage = None
            passage = found or passage
        unknown_link = self._untold(link, passage)
        near: list[Part] = []
        if here and sender is not None and passage and length > 0:
            parts = over_link(scheduling, sender, end - length, passage, receiver, end, carried)
        elif here and sender is not None:
            parts = split(scheduling, sender, begin, receiver, end)
            if unknown_link and begin < end:
                parts = prefixed(parts, unknown_link)
            # What a thread did that looks for segments does not tell what kept one.
            of_stack = carried is not None and carried.taker is not None
            if carried is not None and (of_stack or carried.held or mostly_unknown(parts)):
                parts = over_network(
                    scheduling, sender, begin, carried, receiver, end, unknown_link
                )
        elif here:
            parts = split(scheduling, sender, begin, receiver, end)
        elif carried is not None and length > 0:
            assert kernels[0] is not None and sender is not None
            near, parts = between_kernels(
                kernels[0], sender, end - length, carried, scheduling, receiver, end, passage
            )
        elif length > 0:
            # The sender is none of this kernel's threads, and what it did is not looked at.
            parts = split(scheduling, None, end - length, receiver, end)
            parts = prefixed(parts, f"on its way from {link[0]}")
        else:
            parts = []
        protocol = carried.protocol if carried else ""
        caused = [
            each
            for host, of_side in zip(link, (near, parts), strict=True)
            for each in self._kernels.caused(repeat, host, of_side, link, passage, protocol)
        ]
        told = WhyHop(*named, fitted(caused, end - length, end), None)
        if carried is None or carried.traffic is None:
            return told
        assert sender is not None
        threads, traffic, begins = (sender, receiver), carried.traffic, (begin, end - length)

        def syscall(came: bool, ts: int) -> str | None:
            return self._kernels.syscall(repeat, link[came], threads[came], ts)

        on_link = self._link_packets.listed(
            repeat, link, traffic.marks, end - length - err, end + err
        )
        emulator = self._routers.get(repeat, link[0])
        return replace(
            told,
            packets=message_packets.packets(traffic, on_link, link, emulator, begins),
            calls=message_packets.calls(traffic, link, begins, syscall),
            stream_place=traffic.stream_place,
        )

    @cached_property
    def _link_packets(self) -> LinkPackets:
        return LinkPackets(self._run)

    def _untold(self, link: Link, passage: Passage | None) -> str:
        """What to say where a message's passage of an emulated link is not known."""
        if passage is not None or link not in self._links.links:
            return ""
        return f"its packet on the emulated link {link[0]} → {link[1]} is not known"

    def _by_counts(
        self,
        repeat: int,
        named: tuple[str, str, int, int],
        ends: Sequence[Place],
        stamps: Sequence[int],
        passage: Passage | None,
        unknown_link: str,
    ) -> WhyHop:
        """A hop whose receiver's kernel has no events, but counts of threads."""
        sender, receiver = (self._counted_end(repeat, each.host, each.tid) for each in ends)
        if receiver is None:
            return WhyHop(*named, (), f"it is not known which thread {named[1]} was in")
        begin, end = stamps[1] - max(named[2], 0), stamps[1]
        came, left = self._stamped(repeat, ends, (stamps[0], begin, end), named[3])
        parts = counted.held(sender, receiver, begin, end, came, passage, left, unknown_link)
        rings = {"link": passage.ring_ns} if passage else {}
        told = tuple(
            WhyPart(name, ns, (cause,), ring_ns=rings.get(name)) for name, ns, cause in parts
        )
        return WhyHop(*named, told, None)

    def _stamped(
        self, repeat: int, ends: Sequence[Place], at: tuple[int, int, int], err: int
    ) -> tuple[int | None, tuple[int, int] | None]:
        """When a message came to its socket, and when it left its host: at least and at most.

        By the stamps that the programs recorded. ``at``: the stamp of the hop's first event, and
        when the hop began and ended. One that is not within the hop was made before its clock was
        set, for example.
        """
        assert self._stamps is not None
        sent, begin, end = at
        here, there = ((repeat, each.host, each.tid, each.id) for each in ends)
        stamp, left = self._stamps.came(*there, end), self._stamps.left(*here, sent, end + err)
        came = None
        if stamp is not None and max(begin - end + stamp.ago, -stamp.ago) <= stamp.err + err:
            came = end - stamp.ago
        return came, None if left is None else (begin + left.least, begin + left.most)

    def _counted_end(self, repeat: int, host: str, tid: int | None) -> counted.End | None:
        if tid is None or (repeat, host) not in self._counted:
            return None
        if (repeat, host) not in self._counts:
            of_host = self._run, repeat, host
            self._counts[repeat, host] = counted.Counts(*of_host), Connections(*of_host)
        return counted.End(*self._counts[repeat, host], host, tid)

    def _over_links(self, hop: tuple[int, int]) -> dict[int, Passage]:
        """The messages that went over an emulated link on a hop, by their rows."""
        if hop not in self._passages:
            self._passages[hop] = self._links.passages(self._messages, *hop)
        return self._passages[hop]


def _length(messages: Messages, row: int, first: int, last: int) -> tuple[int, int]:
    interval = messages.intervals(first, last, slice(row, row + 1))
    return int(interval.length[0]), int(interval.err[0])


def summary(
    path: str, message: WhyMessage, kind: str = "message", verdict: Verdict | None = None
) -> str:
    """`message 8812: loop 14.2 ms ± 0.8 µs, FAIL: 9 ms runnable: n1 of h2 waited behind hog`."""
    judged = "" if verdict is None else f", {verdict}"
    if message.lost:
        return f"{kind} {message.id}: {path}{judged}: lost {message.loss or ''}".rstrip()
    took = f"{duration(message.ns)} {maximum_error(message.err_ns)}"
    text = f"{kind} {message.id}: {path} {took}{judged}"
    sums: Counter[tuple[str, str]] = Counter()
    for part in message.parts():
        sums[part.name, part.cause] += part.ns
    if not sums:
        return text
    (((name, cause), ns),) = sums.most_common(1)
    return f"{text}: {duration(ns)} {name}: {cause}"


def lost(messages: Messages, ends: tuple[int, int]) -> Rows:
    """The rows of the messages that were seen at the first of two events and not at the second."""
    return np.flatnonzero(messages.seen[ends[0]] & ~messages.seen[ends[1]])


def slowest(messages: Messages, ends: tuple[int, int], over_ns: int | None = None) -> Rows:
    """The rows of the messages that were seen at both events, slowest first.

    Those alone that took longer than ``over_ns`` from one to the other.
    """
    first, last = ends
    rows = np.flatnonzero(messages.seen[first] & messages.seen[last])
    length = messages.ts[last][rows] - messages.ts[first][rows]
    if over_ns is not None:
        rows, length = rows[length > over_ns], length[length > over_ns]
    return rows[np.argsort(-length, kind="stable")]
