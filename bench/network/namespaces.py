"""Network namespaces and the wires between them. Each lives as long as a process that holds it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

SENDER, RECEIVER = "10.77.0.1", "10.77.0.2"
WIRE = "wire0"
"""A host's device."""
PORTS = ("port1", "port2")
"""The router's, the sender's and the receiver's."""


def missing() -> str | None:
    """Why nothing can be measured here; ``None`` if it can."""
    for tool in ("iperf3", "tcpdump", "ethtool", "ping", "nsenter"):
        if shutil.which(tool) is None:
            return f"no {tool}; scripts/setup --bench installs it"
    if len(os.sched_getaffinity(0)) == 1:
        return "it takes two CPUs"
    words = ["unshare", "--net", "ip", "link", "add", WIRE, "type", "veth"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return done.stderr.strip() or None


class Namespace:
    """A network namespace."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """``settings`` are sysctls below ``net``, ``ipv4/tcp_rmem`` for example."""
        hold = ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
        self._holder = subprocess.Popen(hold, stdout=subprocess.PIPE)
        assert self._holder.stdout
        self._holder.stdout.readline()  # It is there.
        self.run("ip", "link", "set", "lo", "up")
        for name, value in {"ipv6/conf/all/disable_ipv6": "1", **settings}.items():
            self.run("sh", "-c", f'echo "$1" >/proc/sys/net/{name}', "sh", value)

    def __enter__(self) -> Namespace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._holder.kill()
        self._holder.wait()

    @property
    def pid(self) -> int:
        """The id of the process that holds it."""
        return self._holder.pid

    def words(self, *command: str | Path, cpu: int | None = None) -> list[str]:
        """Words that run a command here, on one CPU if that is wanted."""
        pinned = [] if cpu is None else ["taskset", "--cpu-list", str(cpu)]
        return ["nsenter", f"--target={self.pid}", "--net", *pinned, *map(str, command)]

    def run(self, *command: str | Path, cpu: int | None = None) -> str:
        """What a command prints."""
        words = self.words(*command, cpu=cpu)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}: {said}")
        return done.stdout

    @contextmanager
    def process(
        self, *command: str | Path, cpu: int | None = None, **options: Any
    ) -> Iterator[subprocess.Popen[str]]:
        """A command that runs meanwhile; killed if it has not ended by then."""
        process = subprocess.Popen(self.words(*command, cpu=cpu), text=True, **options)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def received(self, device: str = WIRE) -> tuple[int, int]:
        """Packets and bytes of frames that a device has received."""
        for line in Path(f"/proc/{self.pid}/net/dev").read_text().splitlines():
            name, _, counts = line.partition(":")
            if name.strip() == device:
                size, packets = counts.split()[:2]
                return int(packets), int(size)
        raise RuntimeError(f"no device {device}")

    def _address(self, device: str) -> str:
        [link] = json.loads(self.run("ip", "-json", "link", "show", "dev", device))
        return str(link["address"])

    def _configure(self, own: str) -> str:
        """Returns the device's MAC address."""
        self.run("ip", "address", "add", f"{own}/24", "dev", WIRE)
        self.run("ip", "link", "set", WIRE, "up")
        return self._address(WIRE)

    def _knows(self, other: str, mac: str) -> None:
        # No ARP among the packets that are measured.
        self.run("ip", "neighbour", "add", other, "lladdr", mac, "dev", WIRE)

    def without_offloads(self) -> None:
        """What leaves is what a wire would carry: whole frames with their checksums."""
        self.run("ethtool", "-K", WIRE, "tx", "off", "tso", "off", "gso", "off", "gro", "off")


def _introduce(sender: Namespace, receiver: Namespace) -> None:
    senders, receivers = sender._configure(SENDER), receiver._configure(RECEIVER)
    sender._knows(RECEIVER, receivers)
    receiver._knows(SENDER, senders)


def _join(one: Namespace, device: str, other: Namespace, its: str) -> None:
    one.run(
        *("ip", "link", "add", device, "type", "veth", "peer", "name", its, "netns"), str(other.pid)
    )


@contextmanager
def wire() -> Iterator[tuple[Namespace, Namespace]]:
    """A sender and a receiver with a veth between them."""
    with Namespace({}) as sender, Namespace({}) as receiver:
        _join(sender, WIRE, receiver, WIRE)
        _introduce(sender, receiver)
        # What is handed over at once (UDP_SEGMENT) crosses as so many packets, and is counted so.
        sender.run("ethtool", "-K", WIRE, "tx-udp-segmentation", "off")
        yield sender, receiver


@contextmanager
def routed(settings: Mapping[str, str]) -> Iterator[tuple[Namespace, Namespace, Namespace]]:
    """A sender, a router that does not forward by itself, and a receiver."""
    with ExitStack() as stack:
        sender, router, receiver = (
            stack.enter_context(Namespace(each)) for each in (settings, {}, settings)
        )
        for host, port in ((sender, PORTS[0]), (receiver, PORTS[1])):
            _join(host, WIRE, router, port)
            router.run("ip", "link", "set", port, "up")
        _introduce(sender, receiver)
        for host in (sender, receiver):
            host.without_offloads()
        yield sender, router, receiver
