"""How soon datagrams can be in a program's memory: a floor of the stack's round trips."""

from __future__ import annotations

import json
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

ROUNDS = 9
ROUND_TRIPS = 20_000
WARM_UP = 100
KINDS = ("socket", "ring")
SOURCES = Path(__file__).parent
INGRESS = ("dev", WIRE, "ingress")


@dataclass(frozen=True)
class End:
    """A namespace with sockets, and one with the far end of a pair, where the ring is."""

    sockets: Namespace
    rings: Namespace
    own: str
    peer: str
    folder: Path

    def make_ready(self) -> None:
        """The near end of the pair is there, and nothing goes to it yet."""
        run, other = self.sockets.run, self.rings.run
        peer = ("peer", "name", "far", "netns", str(self.rings.pid))
        run("ip", "link", "add", "near", "type", "veth", *peer)
        run("ip", "link", "set", "near", "up")
        other("ip", "link", "set", "far", "up")
        [near] = json.loads(run("ip", "-json", "link", "show", "dev", "near"))
        words = ["clang", "-O2", "-g", "-target", "bpf", f"-DNEAR={near['ifindex']}", "-DPORT=7000"]
        source = SOURCES / "floor.bpf.c"
        subprocess.run([*words, "-c", source, "-o", self._program], check=True)
        other("tc", "qdisc", "add", "dev", "far", "clsact")
        other("tc", "filter", "add", "dev", "far", "ingress", *self._words("ends"))
        run("tc", "qdisc", "add", "dev", WIRE, "clsact")

    def divert(self, is_diverted: bool) -> None:
        """Whether datagrams go to the ring."""
        self.sockets.run("tc", "filter", "delete", *INGRESS)
        if is_diverted:
            self.sockets.run("tc", "filter", "add", *INGRESS, *self._words("to_peer"))

    @property
    def _program(self) -> Path:
        return self.folder / f"{self.own}.o"

    def _words(self, section: str) -> list[str]:
        return ["bpf", "direct-action", "obj", str(self._program), "sec", section]

    def words(self, program: Path, role: str, kind: str) -> list[str]:
        """Those that run the program of an end."""
        paths = [f"/proc/{each.pid}/ns/net" for each in (self.sockets, self.rings)]
        count = str(ROUND_TRIPS + WARM_UP)
        return [str(program), *paths, role, self.own, self.peer, kind, count]


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
        rings = [stack.enter_context(Namespace({})) for _ in range(2)]
        client = End(one, rings[0], SENDER, RECEIVER, folder)
        server = End(other, rings[1], RECEIVER, SENDER, folder)
        for end in (client, server):
            end.make_ready()
        once = {kind: partial(_once, program, client, server, kind) for kind in KINDS}
        found = in_turns("stack-floor", ROUNDS, once)
    values = found.pop("values")
    found["kinds"] = {
        kind: {part: spread(each) for part, each in measured.items()}
        for kind, measured in values.items()
    }
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
