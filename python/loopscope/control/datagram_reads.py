"""Finds the datagram that each read of a socket had.

A socket of UDP is a queue: its first read has the datagram that was the first in it. When one comes
into the queue the kernel tells (``datagram_ready``), on the processor and soon after the datagram
came to the device (``datagram_in``).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Arrival(NamedTuple):
    """A whole datagram that came to a machine."""

    counter: int
    cpu: int
    netns: int
    port: int
    """Its receiver's."""
    length: int
    content: int
    """Hash of its first bytes."""
    what: Any = None
    """What it is to the caller."""


class Ready(NamedTuple):
    """A datagram came into the queue of a socket."""

    counter: int
    cpu: int
    netns: int
    port: int
    """The socket's own."""
    socket: int


class Read(NamedTuple):
    """A thread read a datagram from a socket."""

    counter: int
    socket: int
    bytes: int
    what: Any = None
    """What it is to the caller."""


class Dropped(NamedTuple):
    """The kernel dropped a datagram after it had come."""

    counter: int
    netns: int
    port: int
    length: int
    content: int


@dataclass
class _Port:
    """The datagrams that came on a processor to a port of a network namespace."""

    waiting: deque[Arrival] = field(default_factory=deque)
    """Those that are in no socket yet."""
    last: Arrival | None = None
    """The last one that is in a socket."""
    sockets: set[int] = field(default_factory=set)
    """The sockets that it is in: members of a group have a copy each."""


def reads_of_datagrams(
    arrivals: Iterable[Arrival],
    readies: Iterable[Ready],
    reads: Iterable[Read],
    drops: Iterable[Dropped],
) -> Iterator[tuple[Read, Arrival | None]]:
    """Each read with the datagram that it had; None where that is not known.

    All are of one kernel, each in the order of its counter.
    """
    ports: dict[tuple[int, int, int], _Port] = {}
    queues: dict[int, deque[Arrival | None]] = {}
    # What has the same stamp happened in this order.
    streams = [
        [(event.counter, place, event) for event in events]
        for place, events in enumerate((arrivals, drops, readies, reads))
    ]
    for _, _, event in heapq.merge(*streams, key=lambda each: each[:2]):
        if isinstance(event, Arrival):
            of_port = ports.setdefault((event.netns, event.port, event.cpu), _Port())
            of_port.waiting.append(event)
        elif isinstance(event, Dropped):
            _drop(ports, event)
        elif isinstance(event, Ready):
            of_port = ports.setdefault((event.netns, event.port, event.cpu), _Port())
            queues.setdefault(event.socket, deque()).append(_taken(of_port, event.socket))
        else:
            queue = queues.get(event.socket)
            found = queue.popleft() if queue else None
            # What is not whole may be another one.
            yield event, found if found is not None and found.length == event.bytes else None


def _taken(port: _Port, socket: int) -> Arrival | None:
    """The datagram that came into a socket."""
    if port.last is not None and socket not in port.sockets and not port.waiting:
        port.sockets.add(socket)
        return port.last
    if not port.waiting:
        return None
    port.last = port.waiting.popleft()
    port.sockets = {socket}
    return port.last


def _drop(ports: dict[tuple[int, int, int], _Port], dropped: Dropped) -> None:
    """Takes a datagram that was dropped out of those that wait."""
    for (netns, number, _), port in ports.items():
        if (netns, number) != (dropped.netns, dropped.port):
            continue
        for arrival in port.waiting:
            if (arrival.length, arrival.content) == (dropped.length, dropped.content):
                port.waiting.remove(arrival)
                return
