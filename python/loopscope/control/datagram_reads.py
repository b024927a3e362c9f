"""Finds the datagram that each read of a socket had.

A socket of UDP is a queue: its next read has the datagram that is the first in it. After one came
into the queue the kernel tells (``datagram_ready``), mostly on the processor on which the datagram
came to the machine (``datagram_in``), and before others come there, but for those of the same
batch. Two things are otherwise:

- A thread that does not sleep may read the datagram before the kernel tells of it.
- While one processor puts its datagram into a queue it may do that for those of other processors
  too (Linux 6.18, ``__udp_enqueue_schedule_skb``), and tells of them after its own.

So two datagrams that come to a socket on two processors at the same moment may be swapped here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Arrival(NamedTuple):
    """A whole datagram came to a machine."""

    counter: int
    cpu: int
    netns: int
    port: int
    """The port that it is for."""
    length: int
    content: int
    """Hash of its first bytes."""
    to_group: bool
    """Whether each member of a group has a copy."""
    what: Any = None
    """Whatever the caller wants back with it."""


class Ready(NamedTuple):
    """A datagram came into the queue of a socket."""

    counter: int
    cpu: int
    netns: int
    port: int
    """The socket's own port."""
    socket: int


class Dropped(NamedTuple):
    """The kernel dropped a datagram after it had come."""

    counter: int
    cpu: int
    netns: int
    port: int
    socket: int
    """The socket that was to have it; 0: none was found."""
    length: int
    content: int


class Read(NamedTuple):
    """A thread read a datagram from a socket."""

    counter: int
    socket: int
    bytes: int
    what: Any = None
    """Whatever the caller wants back with it."""


_Event = Arrival | Ready | Dropped | Read


@dataclass
class _Waiting:
    """A datagram that came."""

    arrival: Arrival
    sockets: set[int] = field(default_factory=set)
    """Those that have it, or were to have it when it was dropped."""

    def is_for(self, socket: int) -> bool:
        """Whether a socket may have it yet."""
        return socket not in self.sockets if self.arrival.to_group else not self.sockets


@dataclass
class _Batch:
    """The datagrams that came on a processor to a port before the first of them was done with."""

    waiting: list[_Waiting] = field(default_factory=list)
    over: bool = False
    """Whether the next one that comes is of another batch."""

    def add(self, arrival: Arrival) -> None:
        if self.over:
            self.waiting.clear()
            self.over = False
        self.waiting.append(_Waiting(arrival))

    def first_for(self, socket: int) -> _Waiting | None:
        """The first datagram that a socket may have yet."""
        return next((each for each in self.waiting if each.is_for(socket)), None)

    def drop(self, dropped: Dropped) -> bool:
        """Notes a drop; whether the datagram is one of these."""
        for each in self.waiting:
            of_it = (each.arrival.length, each.arrival.content)
            if each.is_for(dropped.socket) and of_it == (dropped.length, dropped.content):
                each.sockets.add(dropped.socket)
                return True
        return False


class _Port:
    """What came to a port of a network and is in no queue yet, by processor."""

    def __init__(self) -> None:
        self._batches: dict[int, _Batch] = {}

    def _ordered(self, cpu: int) -> list[_Batch]:
        """The batch of a processor, and those of others."""
        own = self._batches.setdefault(cpu, _Batch())
        return [own, *(each for each in self._batches.values() if each is not own)]

    def add(self, arrival: Arrival) -> None:
        self._ordered(arrival.cpu)[0].add(arrival)

    def take(self, ready: Ready) -> Arrival | None:
        """The datagram that came into a socket; None where it is not known."""
        own, *others = self._ordered(ready.cpu)
        own.over = True
        found = own.first_for(ready.socket)
        if found is None:
            of_others = filter(None, (each.first_for(ready.socket) for each in others))
            found = min(of_others, key=lambda each: each.arrival.counter, default=None)
        if found is None:
            return None
        found.sockets.add(ready.socket)
        return found.arrival

    def drop(self, dropped: Dropped) -> None:
        batches = self._ordered(dropped.cpu)
        batches[0].over = True
        any(batch.drop(dropped) for batch in batches)


@dataclass
class _Queue:
    """The datagrams in a socket."""

    arrivals: deque[Arrival | None] = field(default_factory=deque)
    """Those of which the kernel told; None where it is not known which one it was."""
    early: deque[Read] = field(default_factory=deque)
    """Reads of datagrams of which the kernel has not told yet."""

    def put(self, arrival: Arrival | None) -> Iterator[tuple[Read, Arrival | None]]:
        """Takes a datagram in; the reads of which that tells something."""
        while self.early:
            read = self.early.popleft()
            if arrival is None or arrival.counter < read.counter:
                yield read, _had(read, arrival)
                return
            yield read, None
        self.arrivals.append(arrival)

    def read(self, read: Read) -> Iterator[tuple[Read, Arrival | None]]:
        """Takes the first datagram out; the read, if that tells something of it."""
        if self.arrivals:
            yield read, _had(read, self.arrivals.popleft())
        else:
            self.early.append(read)


def _had(read: Read, first: Arrival | None) -> Arrival | None:
    """The datagram that a read had, by the first one in the queue."""
    # What is not whole may be another one.
    return first if first is not None and first.length == read.bytes else None


def reads_of_datagrams(
    arrivals: Iterable[Arrival],
    readies: Iterable[Ready],
    reads: Iterable[Read],
    drops: Iterable[Dropped],
) -> Iterator[tuple[Read, Arrival | None]]:
    """Each read with the datagram that it had, in no order; None where that is not known.

    All are of one kernel, each in the order of its counter.
    """
    ports: dict[tuple[int, int], _Port] = {}
    queues: dict[int, _Queue] = {}
    # What has the same stamp happened in this order.
    streams: Sequence[Iterable[_Event]] = (arrivals, drops, readies, reads)
    for event in heapq.merge(*streams, key=lambda each: each.counter):
        if isinstance(event, Read):
            yield from queues.setdefault(event.socket, _Queue()).read(event)
            continue
        port = ports.setdefault((event.netns, event.port), _Port())
        if isinstance(event, Arrival):
            port.add(event)
        elif isinstance(event, Dropped):
            port.drop(event)
        else:
            queue = queues.setdefault(event.socket, _Queue())
            yield from queue.put(port.take(event))
    for queue in queues.values():
        yield from ((read, None) for read in queue.early)
