"""Finds the datagram that each read of a socket had.

A socket of UDP is a queue: its next read has the datagram that is the first in it. When one comes
into the queue the kernel tells (``datagram_ready``), on the processor on which the datagram came to
the machine (``datagram_in``), and before others come there, but for those of the same batch.
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

    def take(self, socket: int) -> Arrival | None:
        """The datagram that comes into a socket; None where it is not known."""
        self.over = True
        for each in self.waiting:
            if each.is_for(socket):
                each.sockets.add(socket)
                return each.arrival
        return None

    def drop(self, dropped: Dropped) -> None:
        self.over = True
        for each in self.waiting:
            of_it = (each.arrival.length, each.arrival.content)
            if each.is_for(dropped.socket) and of_it == (dropped.length, dropped.content):
                each.sockets.add(dropped.socket)
                return


def reads_of_datagrams(
    arrivals: Iterable[Arrival],
    readies: Iterable[Ready],
    reads: Iterable[Read],
    drops: Iterable[Dropped],
) -> Iterator[tuple[Read, Arrival | None]]:
    """Each read with the datagram that it had; None where that is not known.

    All are of one kernel, each in the order of its counter.
    """
    batches: dict[tuple[int, int, int], _Batch] = {}
    queues: dict[int, deque[Arrival | None]] = {}
    # What has the same stamp happened in this order.
    streams: Sequence[Iterable[_Event]] = (arrivals, drops, readies, reads)
    for event in heapq.merge(*streams, key=lambda each: each.counter):
        if isinstance(event, Read):
            queue = queues.get(event.socket)
            found = queue.popleft() if queue else None
            # What is not whole may be another one.
            yield event, found if found is not None and found.length == event.bytes else None
            continue
        batch = batches.setdefault((event.cpu, event.netns, event.port), _Batch())
        if isinstance(event, Arrival):
            batch.add(event)
        elif isinstance(event, Dropped):
            batch.drop(event)
        else:
            queues.setdefault(event.socket, deque()).append(batch.take(event.socket))
