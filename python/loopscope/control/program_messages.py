"""The messages of programs that record nothing themselves, told from the kernel's events.

What a program sends has its number in the event of the call. What one reads has none: a datagram is
the next in its socket's queue, and of a connection what is read goes up to a sequence number.
``trace.messages`` of the experiment says what is a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loopscope import layout
from loopscope.control import datagram_reads, stream_reads
from loopscope.control.kernel_tables import KernelTables, kernels_of, owners
from loopscope.experiment import Experiment
from loopscope.experiment.event_values import OF_MESSAGES
from loopscope.experiment.plan import ProgramMessages

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("err_ns", pa.int64()),
        ("counter", pa.uint64()),
        ("host", pa.string()),
        ("process", pa.string()),
        ("pid", pa.uint32()),
        ("tid", pa.uint32()),
        ("cpu", pa.uint16()),
        ("id", pa.int64()),
        ("bytes", pa.uint32()),
    ]
)
"""Columns of the events, those that programs' own have; counter and pid are null."""
_SENT, _RECEIVED = OF_MESSAGES
_UDP = 17
_NEEDED = {
    "udp": ("datagram_queued", "datagram_in", "datagram_ready", "datagram_read"),
    "tcp": ("tcp_send", "tcp_read"),
}
_STAMP = ("ts", "err_ns", "tid", "cpu")
_SOCKET = ("netns", "socket", "local", "remote")
_NUMBER = ("word", "word_bytes")
_FRAGMENT = ("fragment_id", "fragment_offset", "fragments_follow")


class Stamp(NamedTuple):
    """When and where something happened."""

    ts: int
    err_ns: int
    tid: int
    cpu: int


class Content(NamedTuple):
    """What is known of a message."""

    word: int
    """Eight bytes at the place of its number, the first the lowest; or its place in order."""
    known: int
    """How many of them there are."""
    bytes: int


@dataclass
class _Found:
    """The messages of one name on one kernel."""

    sent: list[tuple[Stamp, Content]] = field(default_factory=list)
    read: list[tuple[Stamp, Content]] = field(default_factory=list)
    unknown: int = 0
    """Messages of which it is not known whether and when they were read."""


def write_messages(
    experiment: Experiment, repeat: Path, made: Path, out: Path, summary: dict[str, Any]
) -> None:
    """Writes the tables of a repeat's ``trace.messages`` into ``out``.

    ``made`` is the folder with its time line. How many there are, and may be missing, goes into the
    summary as ``messages``, what is wrong to its problems. Raises OSError where a table cannot be
    written.
    """
    about: dict[str, dict[str, dict[str, int | None]]] = {}
    for messages in experiment.messages:
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in OF_MESSAGES}
        missing: Counter[str] = Counter()
        told = False
        for kernel in kernels_of(repeat):
            tables = KernelTables(made, kernel)
            if not tables.has(*_NEEDED[messages.protocol][:1]):
                continue
            told = True
            dropped = tables.dropped()
            threads = owners(experiment, repeat, tables, kernel)
            found = (_udp if messages.protocol == "udp" else _tcp)(tables, messages)
            problems = []
            if lost := dropped[messages.protocol]:
                found.unknown += len(found.read)
                found.read.clear()
                problems.append(
                    f"{lost} events of class {messages.protocol} found no room, so it is not known "
                    "which messages programs read"
                )
            elif found.unknown:
                problems.append(f"of {found.unknown} messages it is not known who read them")
            missing[_RECEIVED] += found.unknown
            for name, seen in zip(OF_MESSAGES, (found.sent, found.read), strict=True):
                mine = [(*each, threads[each[0].tid]) for each in seen if each[0].tid in threads]
                if dropped["sched"]:
                    # Who started the others may be lost.
                    missing[name] += len(seen) - len(mine)
                of_event, numberless = _rows(mine, messages)
                rows[name] += of_event
                missing[name] += numberless + lost
                if numberless:
                    problems.append(f"{numberless} of {name} are too short to have a number")
            summary["problems"] += [
                {"host": kernel, "file": f"messages {messages.name}", "what": what}
                for what in problems
            ]
        for name, of_event in rows.items():
            _write(out, messages.name, name, of_event)
        about[messages.name] = {
            name: {"events": len(of_event), "missing": missing[name] if told else None}
            for name, of_event in rows.items()
        }
    summary["messages"] = about


def _udp(tables: KernelTables, messages: ProgramMessages) -> _Found:
    ends = ("source", "target")
    packet = (*_STAMP, "netns", *ends, "length", "hash", *_NUMBER, *_FRAGMENT)
    queued = tables.table("datagram_queued", *packet, "socket")
    # What is forwarded has no socket.
    of_socket = pc.not_equal(queued["socket"], pa.scalar(0, queued["socket"].type))
    whole = pc.equal(queued["fragment_offset"], 0)
    mine = pc.and_(pc.and_(of_socket, whole), _is_of(queued, messages, *ends))
    queued = queued.filter(mine)
    found = _Found([_content(row, row["length"]) for row in queued.to_pylist()])
    came = tables.table("datagram_in", *packet)
    theirs = came.filter(_is_of(came, messages, *ends))["target"]
    ports = {_port(each) for each in pc.unique(theirs).to_pylist()}

    def at_ports(table: pa.Table, column: str, *others: int) -> pa.Table:
        wanted = pa.array([str(port) for port in (*ports, *others)], pa.string())
        numbers = pc.replace_substring_regex(table[column].cast(pa.string()), "^.*:", "")
        return table.filter(pc.is_in(numbers, value_set=wanted))

    ready = at_ports(tables.table("datagram_ready", "cpu", *_SOCKET), "local")
    read = at_ports(tables.table("datagram_read", *_STAMP, *_SOCKET, "bytes"), "local")
    dropped = tables.table(
        "packet_drop", "netns", "target", "length", "hash", "protocol", "fragment_offset"
    )
    dropped = at_ports(dropped.filter(pc.equal(dropped["protocol"], _UDP)), "target")
    end = messages.port
    for each, arrival in datagram_reads.reads_of_datagrams(
        # Fragments but the first have no ports.
        _arrivals(at_ports(came, "target", 0).to_pylist()),
        [
            datagram_reads.Ready(
                row["counter"], row["cpu"], row["netns"], _port(row["local"]), row["socket"]
            )
            for row in ready.to_pylist()
        ],
        [
            datagram_reads.Read(row["counter"], row["socket"], row["bytes"], _stamp(row))
            for row in read.to_pylist()
        ],
        [
            datagram_reads.Dropped(
                row["counter"], row["netns"], _port(row["target"]), row["length"], row["hash"]
            )
            for row in dropped.to_pylist()
        ],
    ):
        if arrival is None:
            found.unknown += 1
        elif _port(arrival.what["source" if messages.from_port else "target"]) == end:
            _, content = _content(arrival.what, arrival.length)
            found.read.append((each.what, content))
    return found


def _arrivals(packets: list[dict[str, Any]]) -> Iterator[datagram_reads.Arrival]:
    """The datagrams that some packets are; one in fragments has come with the last of them."""
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in packets:
        machines = (row[end].rpartition(":")[0] for end in ("source", "target"))
        key = (row["netns"], row["fragment_id"], *machines)
        if row["fragments_follow"] and not row["fragment_offset"]:
            first[key] = row
        if row["fragments_follow"] or (row["fragment_offset"] and key not in first):
            continue
        of = first.pop(key) if row["fragment_offset"] else row
        yield datagram_reads.Arrival(
            row["counter"],
            row["cpu"],
            row["netns"],
            _port(of["target"]),
            of["length"],
            of["hash"],
            of,
        )


def _tcp(tables: KernelTables, messages: ProgramMessages) -> _Found:
    sends = tables.table("tcp_send", *_STAMP, *_SOCKET, "seq", "bytes", *_NUMBER)
    sends = sends.filter(_is_of(sends, messages, "local", "remote"))
    reads = tables.table("tcp_read", *_STAMP, *_SOCKET, "copied_seq")
    found = _Found()
    for each in stream_reads.written(
        [
            stream_reads.Call(
                row["socket"], row["netns"], _ends(row), row["seq"], row["bytes"], row
            )
            for row in sends.to_pylist()
        ],
        [
            stream_reads.Read(
                row["socket"], row["netns"], _ends(row), row["copied_seq"], _stamp(row)
            )
            for row in reads.to_pylist()
        ],
    ):
        stamp, content = _content(each.call.what, each.call.bytes)
        if messages.number is None:
            content = Content(each.place, 8, each.call.bytes)
        found.sent.append((stamp, content))
        if each.read is not None:
            found.read.append((each.read.what, content))
        found.unknown += not each.known
    return found


def _ends(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["local"], row["remote"]


def _is_of(table: pa.Table, messages: ProgramMessages, source: str, target: str) -> pa.Array:
    """Whether each row is of such messages, by its addresses."""
    address = table[source if messages.from_port else target].cast(pa.string())
    return pc.ends_with(address, f":{messages.port}")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _stamp(row: Mapping[str, Any]) -> Stamp:
    return Stamp(*(row[name] for name in _STAMP))


def _content(row: Mapping[str, Any], length: int) -> tuple[Stamp, Content]:
    return _stamp(row), Content(*(row[name] for name in _NUMBER), length)


def _rows(
    seen: list[tuple[Stamp, Content, tuple[str, str]]], messages: ProgramMessages
) -> tuple[list[dict[str, Any]], int]:
    """The rows of the events of some components, and how many messages have no number."""
    number = messages.number or {"width": 8, "order": "little"}
    rows = [
        {
            **stamp._asdict(),
            "host": host,
            "process": component,
            "id": _number(content.word, number["width"], number["order"]),
            "bytes": content.bytes,
        }
        for stamp, content, (host, component) in seen
        if content.known >= number["width"]
    ]
    return rows, len(seen) - len(rows)


def _number(word: int, width: int, order: Literal["little", "big"]) -> int:
    """The number in the first bytes of a word; one of eight bytes is a signed one."""
    return int.from_bytes(word.to_bytes(8, "little")[:width], order, signed=width == 8)


def _write(out: Path, group: str, name: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["ts"]), SCHEMA)
        file = out / layout.EVENTS / group / name / "part-0.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file, compression="zstd")
