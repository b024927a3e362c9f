"""Packets as the kernel stamps them at a device, seen by a process that has no part in them."""

from __future__ import annotations

import re
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from network.namespaces import WIRE, Namespace

Nanoseconds = npt.NDArray[np.int64]

FLUSH_S = 1.2  # The kernel hands over what it captured once a second.
MAGIC = 0xA1B23C4D  # pcap with nanoseconds
PAYLOAD = 14 + 20 + 8  # Ethernet, IPv4, UDP
SNAP = PAYLOAD + 8


@dataclass
class Capture:
    """UDP datagrams at one device, in the order in which they passed."""

    stamps: Nanoseconds = field(default_factory=lambda: np.empty(0, np.int64))
    """CLOCK_REALTIME."""
    numbers: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The first eight bytes of the payload, little-endian."""
    sizes: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Of the payload."""

    def of_size(self, size: int) -> Capture:
        """Those with that payload: iperf3 greets with a shorter one."""
        wanted = self.sizes == size
        return Capture(self.stamps[wanted], self.numbers[wanted], self.sizes[wanted])


@contextmanager
def capture(
    directory: Path, cpu: int, *points: tuple[Namespace, str]
) -> Iterator[tuple[Capture, ...]]:
    """Captures meanwhile what comes ``in`` or goes ``out`` of hosts; filled when it ends.

    Raises ``RuntimeError`` where the capture itself lost packets.
    """
    found = tuple(Capture() for _ in points)
    with ExitStack() as stack:
        processes = []
        for point, (namespace, direction) in enumerate(points):
            file = directory / f"capture{point}"
            words = ["tcpdump", "-i", WIRE, "-Q", direction, "-s", SNAP, "-B", 64 << 10]
            words += ["-Z", "root", "-n", "--time-stamp-precision=nano", "-w", file, "udp"]
            process = stack.enter_context(
                namespace.process(*map(str, words), cpu=cpu, stderr=subprocess.PIPE)
            )
            assert process.stderr
            first = process.stderr.readline()
            if "listening" not in first:
                raise RuntimeError(f"tcpdump: {first.strip()}{process.stderr.read().strip()}")
            processes.append((process, file))
        yield found
        time.sleep(FLUSH_S)
        for process, _ in processes:
            process.send_signal(signal.SIGINT)
        for each, (process, file) in zip(found, processes, strict=True):
            _, said = process.communicate()
            dropped = re.search(r"(\d+) packets? dropped by kernel", said)
            if dropped is None or int(dropped[1]):
                raise RuntimeError(f"tcpdump did not see all: {' '.join(said.split())}")
            each.stamps, each.numbers, each.sizes = _read(file.read_bytes())


def _read(data: bytes) -> tuple[Nanoseconds, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    [magic] = struct.unpack_from("<I", data)
    if magic != MAGIC:
        raise RuntimeError(f"not a nanosecond pcap file: magic {magic:#x}")
    record, number = struct.Struct("<IIII"), struct.Struct("<Q")
    stamps, numbers, sizes = [], [], []
    at = 24
    while at + record.size <= len(data):
        seconds, ns, kept, size = record.unpack_from(data, at)
        at += record.size
        stamps.append(seconds * 1_000_000_000 + ns)
        sizes.append(size - PAYLOAD)
        [first] = number.unpack_from(data, at + PAYLOAD) if kept >= SNAP else (0,)
        numbers.append(first & (1 << 63) - 1)
        at += kept
    return np.array(stamps, np.int64), np.array(numbers, np.int64), np.array(sizes, np.int64)
