"""Finds the messages of `trace.messages`: what programs sent, and what they read.

What a program sends has its number in the event of the call. What one reads has none: a datagram is
the next in its socket's queue, and of a connection what is read goes up to a sequence number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from loopscope.control import stream_reads
from loopscope.control.datagram_reads import Arrival, Dropped, Read, Ready, reads_of_datagrams
from loopscope.control.kernel_tables import KernelTables
from loopscope.control.told_events import Stamp
from loopscope.experiment.plan import ProgramMessages

SENDS = ("datagram_queued", "tcp_send", "tcp_message")
"""Events of the calls that send."""
READS: dict[str, dict[str, tuple[str, ...]]] = {
    "udp": {"udp": ("datagram_in", "datagram_ready", "datagram_read"), "drop": ("packet_drop",)},
    "tcp": {"tcp": ("tcp_read",)},
}
"""By protocol, then by class: events that tell what is read."""
_UDP = 17
_STAMP = ("ts", "err_ns", "tid", "cpu")
_SOCKET = ("netns", "socket", "local", "remote")
_NUMBER = ("word", "word_bytes")
_FRAGMENT = ("fragment_id", "fragment_offset", "fragments_follow")


class Content(NamedTuple):
    """What is known of a message."""

    word: int
    """Eight bytes at the place of its number, the first the lowest; or its place in order."""
    word_bytes: int
    """How many of them there are."""
    bytes: int
    messages: int = 1
    """How many they are. The numbers of several that a call sent together are not known."""


@dataclass
class Found:
    """The messages of one name."""

    sent: list[tuple[Stamp, Content]] = field(default_factory=list)
    read: list[tuple[Stamp, Content]] = field(default_factory=list)
    unknown: int = 0
    """Messages of which it is not known whether and when they were read."""
    lost: set[str] = field(default_factory=set)
    """Kernels on which it is not known any more where messages of a connection begin."""


def found_by_udp(
    kernels: Sequence[KernelTables], messages: ProgramMessages, elsewhere: Collection[int]
) -> Found:
    """Datagrams to the port, or from it and to none of ``elsewhere``."""
    found = Found()
    for tables in kernels:
        _add_datagrams(found, tables, messages, elsewhere)
    return found


def _add_datagrams(
    found: Found, tables: KernelTables, messages: ProgramMessages, elsewhere: Collection[int]
) -> None:
    """Adds the datagrams of one kernel."""
    ends = ("source", "target")

    def mine(table: pa.Table) -> pa.Array:
        return _is_of(table, messages, ends, elsewhere)

    packet = (*_STAMP, "netns", *ends, "length", "segment", "hash", *_NUMBER, *_FRAGMENT)
    queued = tables.table("datagram_queued", *packet, "socket")
    # What is forwarded has no socket.
    of_socket = pc.not_equal(queued["socket"], pa.scalar(0, queued["socket"].type))
    whole = pc.equal(queued["fragment_offset"], 0)
    sent = queued.filter(pc.and_(pc.and_(of_socket, whole), mine(queued)))
    found.sent += [(_stamp(row), _datagrams(row)) for row in sent.to_pylist()]
    came = tables.table("datagram_in", *packet)
    theirs = came.filter(mine(came))["target"]
    ports = {_port(each) for each in pc.unique(theirs).to_pylist()}
    # Fragments but the first have no ports.
    packets = _at_ports(came.append_column("mine", mine(came)), "target", {*ports, 0})
    ready = _at_ports(tables.table("datagram_ready", "cpu", *_SOCKET), "local", ports)
    read = _at_ports(tables.table("datagram_read", *_STAMP, *_SOCKET, "bytes"), "local", ports)
    of_drop = ("cpu", "netns", "socket", "target", "length", "hash", "protocol")
    dropped = tables.table("packet_drop", *of_drop)
    dropped = dropped.filter(pc.equal(dropped["protocol"], _UDP))
    for each, arrival in reads_of_datagrams(
        _arrivals(packets),
        (
            Ready(row["counter"], row["cpu"], row["netns"], row["port"], row["socket"])
            for row in ready
        ),
        (Read(row["counter"], row["socket"], row["bytes"], _stamp(row)) for row in read),
        (
            Dropped(
                row["counter"],
                row["cpu"],
                row["netns"],
                row["port"],
                row["socket"],
                row["length"],
                row["hash"],
            )
            for row in _at_ports(dropped, "target", ports)
        ),
    ):
        if arrival is None:
            found.unknown += 1
        elif arrival.what["mine"]:
            content = _datagrams(arrival.what)
            if content.messages > 1:
                # What such a read gives a program is up to its socket (UDP_GRO).
                found.unknown += content.messages
            else:
                found.read.append((each.what, content))


def _arrivals(packets: list[dict[str, Any]]) -> Iterator[Arrival]:
    """The datagrams that some packets are; one in fragments has come with the last of them."""
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in packets:
        machines = (row[end].rpartition(":")[0] for end in ("source", "target"))
        key = (row["netns"], row["fragment_id"], *machines)
        if row["fragments_follow"] and not row["fragment_offset"]:
            first[key] = row
        if row["fragments_follow"] or (row["fragment_offset"] and key not in first):
            continue
        whole = first.pop(key) if row["fragment_offset"] else row
        yield Arrival(
            row["counter"],
            row["cpu"],
            row["netns"],
            whole["port"],
            whole["length"],
            whole["hash"],
            _is_of_group(whole["target"]),
            whole,
        )


def found_by_tcp(
    kernels: Sequence[KernelTables], messages: ProgramMessages, elsewhere: Collection[int]
) -> Found:
    """What was written to connections with the port, and from it to none of ``elsewhere``."""
    calls: list[stream_reads.Call] = []
    reads: list[stream_reads.Read] = []
    found = Found()
    for tables in kernels:
        event = "tcp_send" if messages.length is None else "tcp_message"
        sends = tables.table(event, *_STAMP, *_SOCKET, "seq", "bytes", *_NUMBER)
        sends = sends.filter(_is_of(sends, messages, ("local", "remote"), elsewhere))
        if messages.length is not None and pc.any(pc.equal(sends["bytes"], 0)).as_py():
            found.lost.add(tables.kernel)
        calls += (
            stream_reads.Call(row["socket"], *_ends(row), row["seq"], row["bytes"], row)
            for row in sends.to_pylist()
        )
        reads += (
            stream_reads.Read(row["socket"], *_ends(row), row["copied_seq"], _stamp(row))
            for row in tables.table("tcp_read", *_STAMP, *_SOCKET, "copied_seq").to_pylist()
        )
    for each in stream_reads.written(calls, reads):
        stamp, content = _stamp(each.call.what), _content(each.call.what, each.call.bytes)
        if messages.number is None:
            content = Content(each.place, 8, each.call.bytes)
        found.sent.append((stamp, content))
        if each.read is not None:
            found.read.append((each.read.what, content))
        found.unknown += not each.known
    return found


Finder = Callable[[Sequence[KernelTables], ProgramMessages, Collection[int]], Found]
FINDERS: dict[str, Finder] = {"udp": found_by_udp, "tcp": found_by_tcp}
"""By protocol."""


def _ends(row: Mapping[str, Any]) -> tuple[stream_reads.Network, stream_reads.Ends]:
    """The network and the addresses of a socket."""
    return (row["host"], row["netns"]), (row["local"], row["remote"])


def _is_of(
    table: pa.Table,
    messages: ProgramMessages,
    ends: tuple[str, str],
    elsewhere: Collection[int],
) -> pa.Array:
    """Whether each row is of such messages, by its addresses: from where and to where.

    What comes from their port and goes to one of ``elsewhere`` is of others.
    """
    source, target = (table[end].cast(pa.string()) for end in ends)
    end = source if messages.from_port else target
    if messages.address is None:
        found = pc.ends_with(end, f":{messages.port}")
    else:
        machine = f"[{messages.address}]" if ":" in messages.address else messages.address
        found = pc.equal(end, f"{machine}:{messages.port}")
    if not messages.from_port:
        return found
    for port in elsewhere:
        found = pc.and_not(found, pc.ends_with(target, f":{port}"))
    return found


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _at_ports(table: pa.Table, address: str, ports: set[int]) -> list[dict[str, Any]]:
    """The rows with an address that has one of some ports, which they get as ``port``."""
    if not len(table):
        return []
    numbers = pc.replace_substring_regex(table[address].cast(pa.string()), "^.*:", "")
    table = table.append_column("port", numbers.cast(pa.int64()))
    rows: list[dict[str, Any]] = table.filter(
        pc.is_in(table["port"], pa.array(ports, pa.int64()))
    ).to_pylist()
    return rows


@cache
def _is_of_group(address: str) -> bool:
    """Whether several sockets of a machine may each have a copy of what goes there."""
    machine = ip_address(address.rpartition(":")[0].strip("[]"))
    # A broadcast address nearly always ends like that.
    return machine.is_multicast or (machine.version == 4 and machine.packed[-1] == 255)


def _stamp(row: Mapping[str, Any]) -> Stamp:
    return Stamp(row["host"], row["ts"], row["err_ns"], row["tid"], row["cpu"])


def _datagrams(row: Mapping[str, Any]) -> Content:
    """Those that a packet has, which are several where a call sent them together (UDP_SEGMENT)."""
    count = -(-row["length"] // row["segment"]) if row["segment"] else 1
    return _content(row, row["length"])._replace(messages=count)


def _content(row: Mapping[str, Any], length: int) -> Content:
    return Content(row["word"], row["word_bytes"], length)
