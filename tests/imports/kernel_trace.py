"""Traces in the layout of LTTng's kernel tracer (lttng-modules 2.13), written by hand.

A kernel that loads no module records none.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BOOT = "fd5e7a14-7c6b-4d7c-8d7c-6f2f6a1f9d10"
TRACE = uuid.UUID("0b8c5f5e-3f5a-4c0e-9b5e-2f0f0f6f7a11")
OFFSET = 1_700_000_000_000_000_000
"""From CLOCK_MONOTONIC to the epoch, ns."""


@dataclass(frozen=True)
class Event:
    cpu: int
    stamp: int
    """Of CLOCK_MONOTONIC, ns."""
    name: str
    fields: Mapping[str, Any]


class Bits:
    """Little-endian bits one after the other."""

    def __init__(self) -> None:
        self._all = 0
        self.size = 0

    def put(self, value: int, size: int, align: int = 8, big: bool = False) -> None:
        self.align(align)
        if big:
            value = int.from_bytes(value.to_bytes(size // 8, "big"), "little")
        self._all |= (value & (1 << size) - 1) << self.size
        self.size += size

    def text(self, text: str, size: int | None = None) -> None:
        """Up to a NUL, or as an array of so many characters."""
        data = text.encode() + b"\0"
        for byte in data if size is None else data.ljust(size, b"\0"):
            self.put(byte, 8)

    def align(self, bits: int) -> None:
        self.size += -self.size % bits

    def bytes(self, size: int) -> bytes:
        return self._all.to_bytes(size, "little")


def _sched_switch(to: Bits, e: Mapping[str, Any]) -> None:
    for who in ("prev", "next"):
        to.text(e[f"{who}_comm"], 16)
        to.put(e[f"{who}_tid"], 32)
        to.put(e.get(f"{who}_prio", 20), 32)
        if who == "prev":
            to.put(e.get("prev_state", 0), 64)


def _sched_waking(to: Bits, e: Mapping[str, Any]) -> None:
    to.text(e["comm"], 16)
    for name in ("tid", "prio", "target_cpu"):
        to.put(e[name], 32)


def _openat(to: Bits, e: Mapping[str, Any]) -> None:
    to.put(e["dfd"], 32)
    to.text(e["filename"])
    to.put(e["flags"], 32)
    to.put(e["mode"], 16)


def _rq_complete(to: Bits, e: Mapping[str, Any]) -> None:
    to.put(e["sector"], 64)
    to.put(len(e["cmd"]), 64)
    for byte in e["cmd"]:
        to.put(byte, 8)


def _net_dev_queue(to: Bits, e: Mapping[str, Any]) -> None:
    to.put(e["skbaddr"], 64)
    to.text(e["name"])
    to.put(e["type"], 8)
    if e["type"] == 1:
        to.put(4, 4, align=4)
        to.put(5, 4, align=4)
        to.put(e["length"], 16, big=True)
        for part in e["address"]:
            to.put(part, 8)
    elif e["type"] == 2:
        for part in e["address"]:
            to.put(part, 16, big=True)


def _nothing(to: Bits, e: Mapping[str, Any]) -> None:
    pass


# Fields as they stand in metadata, and how they are written. Classes above 30 have the long header.
_CLASSES: dict[str, tuple[int, str, Callable[[Bits, Mapping[str, Any]], None]]] = {
    "sched_switch": (
        0,
        """
        char_t _prev_comm[16]; int32_t _prev_tid; int32_t _prev_prio;
        enum : int64_t {
            "TASK_RUNNING" = 0, "TASK_INTERRUPTIBLE" = 1, "TASK_DEAD" = 128
        } _prev_state;
        char_t _next_comm[16]; int32_t _next_tid; int32_t _next_prio;
        """,
        _sched_switch,
    ),
    "sched_waking": (
        1,
        "char_t _comm[16]; int32_t _tid; int32_t _prio; int32_t _target_cpu;",
        _sched_waking,
    ),
    "syscall_entry_openat": (
        2,
        "int32_t _dfd; string _filename; hex32_t _flags; uint16_t _mode;",
        _openat,
    ),
    "block_rq_complete": (
        30,
        "uint64_t _sector; uint64_t __cmd_length; hex8_t _cmd[ __cmd_length ];",
        _rq_complete,
    ),
    "net_dev_queue": (
        31,
        """
        hex64_t _skbaddr; string _name;
        enum : uint8_t { "_unknown" = 0, "_ipv4" = 1, "_ipv6" = 2 } _network_header_type;
        variant <_network_header_type> {
            struct { } _unknown;
            struct { uint4_t _version; uint4_t _ihl; be16_t _tot_len; uint8_t _saddr[4]; } _ipv4;
            struct { behex16_t _saddr[8]; } _ipv6;
        } _network_header;
        """,
        _net_dev_queue,
    ),
    "lttng_statedump_end": (70, "", _nothing),
}

_METADATA = """/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
typealias integer {{ size = 32; align = 8; signed = true; }} := int32_t;
typealias integer {{ size = 64; align = 8; signed = true; }} := int64_t;
typealias integer {{ size = 4; align = 4; signed = false; }} := uint4_t;
typealias integer {{ size = 5; align = 1; signed = false; }} := uint5_t;
typealias integer {{ size = 8; align = 8; signed = false; encoding = UTF8; }} := char_t;
typealias integer {{ size = 8; align = 8; signed = false; base = 16; }} := hex8_t;
typealias integer {{ size = 32; align = 8; signed = false; base = 16; }} := hex32_t;
typealias integer {{ size = 64; align = 8; signed = false; base = 16; }} := hex64_t;
typealias integer {{ size = 16; align = 8; signed = false; byte_order = be; }} := be16_t;
typealias integer {{
    size = 16; align = 8; signed = false; base = 16; byte_order = be;
}} := behex16_t;
trace {{
    major = 1; minor = 8; uuid = "{trace}"; byte_order = le;
    packet.header := struct {{
        uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; uint64_t stream_instance_id;
    }};
}};
env {{
    hostname = "{host}"; domain = "kernel"; sysname = "Linux"; kernel_release = "6.1.0";
    tracer_name = "lttng-modules"; tracer_major = 2; tracer_minor = 13;
}};
clock {{
    name = "monotonic"; uuid = "{boot}"; description = "Monotonic Clock";
    freq = 1000000000; offset = {offset};
}};
typealias integer {{
    size = 27; align = 1; signed = false; map = clock.monotonic.value;
}} := stamp27_t;
typealias integer {{
    size = 64; align = 8; signed = false; map = clock.monotonic.value;
}} := stamp64_t;
stream {{
    id = 0;
    event.header := struct {{
        enum : uint5_t {{ compact = 0 ... 30, extended = 31 }} id;
        variant <id> {{
            struct {{ stamp27_t timestamp; }} compact;
            struct {{ uint32_t id; stamp64_t timestamp; }} extended;
        }} v;
    }} align(8);
    packet.context := struct {{
        stamp64_t timestamp_begin; stamp64_t timestamp_end; uint64_t content_size;
        uint64_t packet_size; uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id;
    }};
}};
"""


def write(
    place: Path,
    events: Sequence[Event],
    *,
    boot: str = BOOT,
    offset: int = OFFSET,
    host: str = "sample",
    per_packet: int = 3,
    discarded: Mapping[int, int] | None = None,
) -> None:
    """A trace with a stream for each processor; each of its packets has some events, in order.

    ``discarded`` has, by packet, how many events the tracer says that it lost before its end.
    """
    place.mkdir(parents=True)
    text = _METADATA.format(trace=TRACE, boot=boot, offset=offset, host=host)
    for name, (number, fields, _) in _CLASSES.items():
        text += f'event {{ name = "{name}"; id = {number}; stream_id = 0; '
        text += f"fields := struct {{ {fields} }}; }};\n"
    (place / "metadata").write_text(text)
    for cpu in sorted({event.cpu for event in events}):
        own = [event for event in events if event.cpu == cpu]
        packets = [own[i : i + per_packet] for i in range(0, len(own), per_packet)]
        lost, stream = 0, b""
        for sequence, packet in enumerate(packets):
            lost += (discarded or {}).get(sequence, 0)
            stream += _packet(cpu, sequence, packet, lost)
        (place / f"channel0_{cpu}").write_bytes(stream)


def _packet(cpu: int, sequence: int, events: Sequence[Event], lost: int) -> bytes:
    body = Bits()
    before = events[0].stamp
    head = 8 * (4 + 16 + 4 + 8 + 6 * 8 + 4)
    for event in events:
        number, _, fields = _CLASSES[event.name]
        body.align(8)
        if number > 30 or event.stamp - before >= 1 << 27:
            body.put(31, 5, align=1)
            body.put(number, 32)
            body.put(event.stamp, 64)
        else:
            body.put(number, 5, align=1)
            body.put(event.stamp, 27, align=1)
        fields(body, event.fields)
        before = event.stamp
    content = head + body.size
    size = -(-content // 8 // 512) * 512
    to = Bits()
    to.put(0xC1FC1FC1, 32)
    for byte in TRACE.bytes:
        to.put(byte, 8)
    to.put(0, 32)
    to.put(cpu, 64)
    for value in (events[0].stamp, events[-1].stamp, content, 8 * size, sequence, lost):
        to.put(value, 64)
    to.put(cpu, 32)
    assert to.size == head
    return to.bytes(head // 8) + body.bytes(size - head // 8)
