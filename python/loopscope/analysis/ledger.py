"""What the network's code did with a message, as the events of its packets tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]


TCP, UDP = 6, 17
"""Numbers of protocols in IP."""
IN_QUEUE = "in the queue of its device"


class Rows(NamedTuple):
    """Events of one thread, connection or packet, rising."""

    ts: Integers
    columns: dict[str, Integers]

    def upto(self, at: int) -> int:
        """The number of events until an instant."""
        return int(self.ts.searchsorted(at, side="right"))

    def row(self, place: int) -> dict[str, int]:
        """The columns of one."""
        return {name: int(column[place]) for name, column in self.columns.items()}

    def since(self, at: int) -> int:
        """The index of the first event from an instant on."""
        return int(self.ts.searchsorted(at, side="left"))

    def until(self, other: int | None, end: int) -> int:
        """The number of events until ``end`` and before ``other``, if there is one.

        Where messages are told from these events, that is the next message's.
        """
        upto = self.upto(end)
        return upto if other is None else min(self.since(other), upto)


class Sending(NamedTuple):
    """A datagram with a part of an item of a channel, as the thread recorded that sent it."""

    tid: int
    at: int
    """When it was about to send it, on the time line of its kernel."""
    until: int | None
    """The same of its next one; None: there is none."""
    part: int
    parts: int
    """How many the item has."""
    bytes: int
    """Those of the datagram."""


class Hop(NamedTuple):
    """A message that went from one thread to another, as ledgers are asked for it; instants in ns.

    ``begin`` and ``until`` are on the time line of the sender's kernel, ``end`` on that of the
    receiver's.
    """

    sender: int
    """The thread that sent it."""
    receiver: int
    """The thread that received it."""
    begin: int
    """When it was sent: before its thread gave it away."""
    until: int | None
    """When the sender sends its next one; None: it does not."""
    end: int
    """When it was received: after its thread had read it."""
    apart: int = 0
    """How far the two kernels' clocks may be from each other."""
    sendings: tuple[Sending, ...] | None = None
    """The datagrams of an item of a channel, by time; empty: they are not known. None: it is
    another message."""


class Held(NamedTuple):
    """A time in which the sender's network code kept a message, or bytes before it."""

    start: int
    end: int
    why: str


class Mark(NamedTuple):
    """What a packet of a message is known by, wherever it is seen.

    Of TCP also several packets: those that have any of some bytes.
    """

    protocol: int
    """IP's number of it: `TCP` or `UDP`."""
    source: int
    """The sender's port."""
    target: int
    """The receiver's."""
    mark: int
    """The first byte's sequence number; of UDP the hash of the content's first bytes."""
    bytes: int
    """How many bytes of TCP's stream; of UDP the length of the content."""
    fragment: int | None = None
    """The number that its fragments have; None: it is in one packet."""
    place: int = 0
    """Where its first byte is in the message."""

    @property
    def is_whole_datagram(self) -> bool:
        """Whether it is of one packet of UDP."""
        return self.protocol == UDP and self.fragment is None

    def after(self, seq: Any) -> Any:
        """By how much sequence numbers are after that of the mark's first byte."""
        return after(seq, self.mark)


class Packet(NamedTuple):
    """A packet with bytes of a message, at a device."""

    ts: int
    came: bool
    """Whether it came to the receiver's machine; else it left the sender's."""
    first: int
    """Place of its first byte in the message."""
    bytes: int
    again: bool
    """Whether its first byte had left, or come, before."""


class Handed(NamedTuple):
    """Bytes of a message that its thread gave to the network's code, or took from it, by a call."""

    ts: int
    came: bool
    """Whether the receiver took them; else the sender gave them."""
    first: int
    """Place of the first of them in the message."""
    bytes: int


class Packets(NamedTuple):
    """Packets of a message at one device, a row for each, in the order of time."""

    ts: Integers
    err: Integers
    """Maximum error of ``ts``."""
    first: Integers
    """Place of its first byte in the message."""
    end: Integers
    """The same, after its last byte."""

    @property
    def again(self) -> npt.NDArray[np.bool_]:
        """Whether the first byte of each was in one before it."""
        found = np.zeros(len(self.ts), np.bool_)
        upto = np.maximum.accumulate(self.end)
        for row in np.flatnonzero(self.first[1:] < upto[:-1]) + 1:
            before = (self.first[:row] <= self.first[row]) & (self.first[row] < self.end[:row])
            found[row] = before.any()
        return found

    @staticmethod
    def joined(parts: Sequence[Packets]) -> Packets:
        """Those of several parts of a message."""
        columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Packets(*(column[order] for column in columns))


class Traffic(NamedTuple):
    """The packets of a message at both devices."""

    left: Packets
    """Those that left the sender's machine, with those that were lost later."""
    came: Packets
    """Those that came to the receiver's machine."""
    marks: tuple[Mark, ...] = ()
    """What the packets are known by at other places of their way."""
    calls: tuple[Handed, ...] = ()
    """The calls that wrote and read what is in them, as far as they are known."""
    stream_place: int | None = None
    """Place of the message's first byte in its TCP connection's stream; None: it is not known."""

    def moved(self, by: int) -> Traffic:
        """The same of a message that has so many bytes before these."""
        left, came = (
            of._replace(first=of.first + by, end=of.end + by) for of in (self.left, self.came)
        )
        marks = (mark._replace(place=by) for mark in self.marks)
        calls = (call._replace(first=call.first + by) for call in self.calls)
        return Traffic(left, came, tuple(marks), tuple(calls))

    @staticmethod
    def joined(parts: Sequence[Traffic]) -> Traffic:
        """That of several datagrams of a message."""
        return Traffic(
            Packets.joined([each.left for each in parts]),
            Packets.joined([each.came for each in parts]),
            tuple(mark for each in parts for mark in each.marks),
            tuple(sorted(call for each in parts for call in each.calls)),
        )

    def listed(self) -> tuple[Packet, ...]:
        """All of them, by time."""
        found: list[Packet] = []
        for came, of in ((False, self.left), (True, self.came)):
            columns = (of.ts, of.first, of.end - of.first, of.again)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            found += [Packet(ts, came, first, count, again) for ts, first, count, again in rows]
        return tuple(sorted(found))


class Taker(NamedTuple):
    """A thread of a program with a TCP of its own, which takes a segment."""

    tid: int
    woken: int | None
    """When it last went on after a sleep in its TCP; None: that is not told."""


@dataclass(frozen=True)
class Carried:
    """A message's way through the network's code; instants are ns.

    Those up to ``sent`` are on the time line of the sender's kernel, the others on that of the
    receiver's.
    """

    protocol: str
    """TCP, user-mode TCP or UDP."""
    given: int
    """When its thread began to give away the last of its bytes."""
    sent: int
    """When the packet went out that made it whole at the receiver."""
    by: int
    """The thread in which that was."""
    came: int
    """When that packet came to the receiver's machine."""
    ready: int
    """When all of its bytes were in the receiver's socket, as far as it is told: not before
    ``came``."""
    held: tuple[Held, ...]
    """How it was kept between the two: one after the other, until ``sent``. Empty: it was not."""
    last: Mark
    """What the packet is known by that made it whole."""
    marks: tuple[Mark, ...] = ()
    """What all of its bytes are known by, of TCP."""
    traffic: Traffic | None = None
    """The packets that it was in, if they were asked for; none of those that were lost came."""
    taker: Taker | None = None
    """The thread of the receiver's program that took that packet; None: the kernel did."""


def after(seq: Any, other: Any) -> Any:
    """By how much TCP's sequence numbers are after others; negative where they are before.

    Modulo 2**32 (RFC 9293, section 3.4).
    """
    half = 1 << 31
    return (np.asarray(seq, np.int64) - other + half) % (1 << 32) - half


def coded(column: Any) -> tuple[Integers, list[str]]:
    """A column of texts as numbers, and the text of each number."""
    found = column.dictionary_encode().combine_chunks()
    return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()


def groups(keys: list[Integers]) -> Iterator[tuple[list[int], Integers]]:
    """The rows of each combination of keys, rising."""
    order = np.lexsort(keys)
    if not len(order):
        return
    changes = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    for at in np.split(order, np.flatnonzero(changes) + 1):
        yield [int(key[at[0]]) for key in keys], at
