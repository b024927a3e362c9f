"""How soon datagrams can be in a program's memory: a floor of the stack's round trips."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import in_turns
from network.namespaces import RECEIVER, SENDER, WIRE, Namespace, wire
from targets import spread

from stack.exchange import spreads

ROUNDS = 9
ROUND_TRIPS = 20_000
WARM_UP = 100
KINDS = ("socket", "ring")
SOURCES = Path(__file__).parent
INGRESS = ("dev", WIRE, "ingress")


PINS = Path("/sys/fs/bpf/tc/globals")
"""Where tc makes files of maps."""


@dataclass(frozen=True)
class End:
    """A namespace with sockets, and the ring for what comes to it."""

    sockets: Namespace
    own: str
    peer: str
    folder: Path

    def make_ready(self) -> None:
        """Compiles the program; nothing goes to the ring yet."""
        words = ["clang", "-O2", "-g", "-target", "bpf", f"-DRING={self._ring}", "-DPORT=7000"]
        source = SOURCES / "floor.bpf.c"
        subprocess.run([*words, "-c", source, "-o", self._program], check=True)
        self.sockets.run("tc", "qdisc", "add", "dev", WIRE, "clsact")

    def divert(self, is_diverted: bool) -> None:
        """Whether datagrams go to the ring, a new one."""
        self.sockets.run("tc", "filter", "delete", *INGRESS)
        (PINS / self._ring).unlink(missing_ok=True)
        if is_diverted:
            words = ("bpf", "direct-action", "obj", str(self._program), "sec", "to_ring")
            self.sockets.run("tc", "filter", "add", *INGRESS, *words)

    @property
    def _program(self) -> Path:
        return self.folder / f"{self.own}.o"

    @property
    def _ring(self) -> str:
        # At most 15 characters.
        return f"ls{os.getpid()}_{self.own.rpartition('.')[2]}"

    def words(self, program: Path, role: str, kind: str) -> list[str]:
        """Those that run the program of an end."""
        where = kind if kind == "socket" else str(PINS / self._ring)
        count = str(ROUND_TRIPS + WARM_UP)
        namespace = f"/proc/{self.sockets.pid}/ns/net"
        return [str(program), namespace, role, self.own, self.peer, where, count]


def floor() -> dict[str, Any]:
    """By kind: percentiles of µs; the ratio of the ring's to the spinning socket's."""
    if os.geteuid() != 0:
        return {"skipped": "network namespaces and programs on devices need root"}
    if shutil.which("clang") is None:
        return {"skipped": "no clang; scripts/setup installs it"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loopscope-bench-")))
        program = folder / "floor"
        subprocess.run(["cc", "-O2", SOURCES / "floor.c", "-o", program], check=True)
        one, other = stack.enter_context(wire())
        client = End(one, SENDER, RECEIVER, folder)
        server = End(other, RECEIVER, SENDER, folder)
        for end in (client, server):
            end.make_ready()
        once = {kind: partial(_once, program, client, server, kind) for kind in KINDS}
        for end in (client, server):
            stack.callback(end.divert, False)
        found = in_turns("stack-floor", ROUNDS, once)
    values = found.pop("values")
    found["kinds"] = spreads(values)
    if len(values) == len(KINDS):
        socket, ring = (values[kind]["p50_us"] for kind in KINDS)
        found["ratio"] = spread([mine / its for mine, its in zip(ring, socket, strict=True)])
    return found


def _once(program: Path, client: End, server: End, kind: str) -> dict[str, float]:
    for end in (client, server):
        end.divert(kind == "ring")
    words = server.words(program, "server", kind)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout
            serving.stdout.readline()  # It is ready.
            words = client.words(program, "client", kind)
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        finally:
            serving.kill()
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    times = np.array(done.stdout.split(), float)[WARM_UP:]
    p50, p99, p999 = np.percentile(times, [50, 99, 99.9])
    return {"p50_us": p50, "p99_us": p99, "p999_us": p999}
