"""Finds the read that had the last byte of what a call wrote to a connection.

The kernel tells at which sequence number a call's bytes begin (``tcp_send``) and up to which one a
read has come (``tcp_read``). Sequence numbers are compared modulo 2**32 (RFC 9293, section 3.4).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

Ends = tuple[str, str]
"""A socket's own address and the other's."""
Network = tuple[str, int]
"""A kernel and a network namespace of its own."""


class Call(NamedTuple):
    """A call writes to a connection; one that copies piece by piece has several of these."""

    socket: int
    network: Network
    ends: Ends
    seq: int
    """The sequence number of its first byte that is left."""
    bytes: int
    """The bytes that are left."""
    what: Any = None
    """Whatever the caller wants back with it."""


class Read(NamedTuple):
    """A thread has read from a connection."""

    socket: int
    network: Network
    ends: Ends
    upto: int
    """The sequence number of the first byte that nobody has read."""
    what: Any = None
    """Whatever the caller wants back with it."""


class Written(NamedTuple):
    """What a call wrote, and what read it."""

    place: int
    """The number of calls on the connection before it."""
    call: Call
    """When all of its bytes were left."""
    read: Read | None
    """None where nobody read all of it, or where it is not known who did."""
    known: bool
    """Whether the receiver's socket is known."""


def written(calls: Iterable[Call], reads: Iterable[Read]) -> Iterator[Written]:
    """What was written to connections, with what read it; each is in the order of time."""
    of_reader: dict[Ends, dict[tuple[Network, int], list[Read]]] = {}
    for read in reads:
        sockets = of_reader.setdefault(read.ends, {})
        sockets.setdefault((read.network, read.socket), []).append(read)
    of_writer: dict[tuple[Network, int, Ends], list[Call]] = {}
    for call in calls:
        of_writer.setdefault((call.network, call.socket, call.ends), []).append(call)
    writers: dict[Ends, int] = {}
    for _, _, ends in of_writer:
        writers[ends] = writers.get(ends, 0) + 1
    for (network, _, ends), of_socket in of_writer.items():
        whole = list(_whole(of_socket))
        if not whole:
            continue
        readers = _peers(of_reader.get((ends[1], ends[0]), {}), network)
        # Several connections may have the same addresses, one after the other or in different
        # networks.
        known = len(readers) < 2 and writers[ends] == 1
        there = readers[0] if readers and known else []
        begin = whole[0].seq
        upto = list(accumulate(_unwrapped([read.upto for read in there], begin), max))
        starts = _unwrapped([call.seq for call in whole], begin)
        for place, (call, start) in enumerate(zip(whole, starts, strict=True)):
            at = bisect_left(upto, start + call.bytes)
            yield Written(place, call, there[at] if at < len(there) else None, known)


def _whole(calls: Iterable[Call]) -> Iterator[Call]:
    """The calls of a socket, each once."""
    end = None
    for call in calls:
        upto = (call.seq + call.bytes) % (1 << 32)
        if call.bytes and upto != end:
            yield call
        end = upto


def _peers(sockets: dict[tuple[Network, int], list[Read]], network: Network) -> list[list[Read]]:
    """The sockets in other networks; of loopback in the same one."""
    others = [reads for (there, _), reads in sockets.items() if there != network]
    return others or list(sockets.values())


def _unwrapped(numbers: Iterable[int], begin: int) -> list[int]:
    """Sequence numbers that rise, as distances from one of them."""
    found, at, last = [], 0, begin
    for number in numbers:
        at += (number - last + (1 << 31)) % (1 << 32) - (1 << 31)
        last = number
        found.append(at)
    return found
