"""A machine that lies: it speaks the agent protocol, and what it sends is drawn at random.

It is reached by a program `ssh` that runs commands here, so that everything on the desk's side is
as it is with real machines.
"""

from __future__ import annotations

import io
import json
import queue
import random
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from loopscope import __version__
from loopscope.provider._proto import agent_pb2 as pb

GOLDEN = Path(__file__).resolve().parents[2] / "schema/golden/host"

SSH = """#!/bin/sh
control= persistent= last=
while [ $# -gt 0 ]; do
  case "$1" in
  -S) control=$2; shift 2;;
  -o|-l|-p|-J|-i) shift 2;;
  -N) persistent=1; shift;;
  -M) shift;;
  *) last=$1; shift;;
  esac
done
if [ -n "$persistent" ]; then : >"$control"; exec sleep 1000; fi
unset XDG_CACHE_HOME XDG_STATE_HOME
export HOME={home} PATH={home}/bin:$PATH SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22"
exec sh -c "$last"
"""
TAR = """#!/bin/sh
case "$*" in
*-cf*) for name; do :; done; exec cat {home}/$name.tar;;
esac
exec /bin/tar "$@"
"""
HOST = """#!/bin/sh
case "$1" in
--version) echo "loopscope-host {version}";;
rights) echo '{"network": false, "tun": false, "realtime": false, "no_cgroup": 7}';;
agent) exec {python} -S -E {home}/bridge.py {home}/$4.sock;;
esac
"""
BRIDGE = """
import os, socket, sys, threading
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
def there():
    while data := os.read(0, 1 << 16):
        link.sendall(data)
    os._exit(0)
threading.Thread(target=there, daemon=True).start()
try:
    with open(sys.argv[1] + ".before", "rb") as file:
        os.write(1, file.read())
except OSError:
    pass
while data := link.recv(1 << 16):
    os.write(1, data)
"""
NASTY = [
    "",
    "\x1b[2J\x1b]0;owned\x07",
    "<script>alert(1)</script>",
    "../../../../canary",
    "/canary",
    "\u202etxt.exe",
    "a\0b",
    "x" * 70_000,
    "h1",
    "_links",
    "${name}",
    "[" * 5000,
    '{"a":' * 5000,
]
NUMBERS = [0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1, 65, 200]
REPLIES: dict[str, Any] = {
    "Hello": pb.HelloReply(version=__version__, environment_json="{}"),
    "StartClock": pb.StartClockReply(port=9, answered=100),
    "ReadClock": pb.ReadClockReply(half_width_ns=1000, why="fine"),
    "AnswerPeers": pb.AnswerPeersReply(port=9),
    "ProbePeers": pb.ProbePeersReply(),
    "StopPeers": pb.StopPeersReply(peers=[pb.PeerEnd(name="h2", sent=5, answered=3)]),
    "StopClock": pb.StopClockReply(sent=10, answered=9, lost={"late": 1}, packets=20, bytes=900),
    "Start": pb.StartReply(pid=4711),
    "Stop": pb.StopReply(),
    "Trigger": pb.TriggerReply(),
    "Departed": pb.DepartedReply(),
    "FinishTrace": pb.FinishTraceReply(emitted=5, recorded=4, dropped=1, problems=["a disk"]),
    "Shutdown": pb.ShutdownReply(problems=["a rest"]),
}


class HostileHost(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The agent of a host; ``odds`` is how often something is not as it should be."""

    def __init__(self, name: str, home: Path, drawn: random.Random, odds: float) -> None:
        self.name, self.home, self.drawn, self.odds = name, home, drawn, odds
        self.events: queue.Queue[pb.Event | None] = queue.Queue()
        self.server = grpc.server(ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers([self])
        self.server.add_insecure_port(f"unix:{home}/{name}.sock")
        before = home / f"{name}.sock.before"
        before.unlink(missing_ok=True)
        if self._now(0.1):
            before.write_bytes(drawn.choice([b"x" * 200_000, drawn.randbytes(500), b"\n" * 99]))
        (home / f"{name}.tar").write_bytes(self._archive())
        self.server.start()

    def stop(self) -> None:
        self.events.put(None)
        self.server.stop(0).wait()

    def _now(self, share: float = 1.0) -> bool:
        return self.drawn.random() < self.odds * share

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = call.method.rpartition("/")[2]
        if method == "Watch":
            return grpc.stream_stream_rpc_method_handler(self._watch)
        return grpc.unary_unary_rpc_method_handler(lambda sent, _: self._reply(method, sent))

    def _reply(self, method: str, sent: bytes) -> bytes:
        if method == "Start":
            component = pb.StartRequest.FromString(sent).component
            self._tell(component, phase_hello=pb.PhaseHello(phases=["run"]))
            self._tell(component, ready=pb.Ready())
        reply = type(REPLIES[method])()
        reply.CopyFrom(REPLIES[method])
        if method == "FinishTrace" and self._now():
            reply.unwritten[self.drawn.choice(NASTY)] = self.drawn.randbytes(20)
        return self._sent(reply)

    def _tell(self, component: str, **what: Any) -> None:
        for _ in range(self.drawn.choice([0, 1, 1, 1, 30])):
            if self._now(0.2):
                self.events.put(self._event(component))
        self.events.put(pb.Event(component=component, at_monotonic_ns=5, **what))

    def _event(self, component: str) -> pb.Event:
        """An event that no honest agent reports."""
        drawn = self.drawn
        kinds: list[dict[str, Any]] = [
            {"output": pb.Output(line=drawn.choice(NASTY))},
            {"phase_hello": pb.PhaseHello(phases=drawn.choices(NASTY, k=3))},
            {"phase_done": pb.PhaseDone(phase="run", values_json=drawn.choice(NASTY))},
            {"phase_failed": pb.PhaseFailed(phase="run", error=drawn.choice(NASTY))},
            {"phase_refused": pb.PhaseRefused(phase="run", error=drawn.choice(NASTY))},
            {"exited": pb.Exited(signal=drawn.choice([9, -5, 65, 2**31 - 1]))},
            {"exited": pb.Exited(code=drawn.choice([0, 1, -(2**31)]), core=drawn.choice(NASTY))},
            {"triggered": pb.Triggered(stream=drawn.choice(NASTY), cause=drawn.choice(NASTY))},
            {"departures": pb.Departures(path=drawn.choice(NASTY))},
            {},
        ]
        at = pb.GlobalInstant(global_ns=drawn.choice([5, -(2**63)]), within_ns=2**64 - 1)
        named = component if drawn.random() < 0.7 else drawn.choice(NASTY)
        return pb.Event(component=named, at=at, at_monotonic_ns=-(2**63), **drawn.choice(kinds))

    def _enter(self, requests: Iterator[bytes]) -> None:
        with suppress(grpc.RpcError):  # the desk has hung up
            for sent in requests:
                asked = pb.EnterPhaseRequest.FromString(sent)
                self._tell(asked.component, output=pb.Output(line=self.drawn.choice(NASTY)))
                done = pb.PhaseDone(phase=asked.phase, values_json='{"port": 5}')
                self._tell(asked.component, phase_done=done)

    def _watch(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        threading.Thread(target=self._enter, args=(requests,), daemon=True).start()
        while (event := self.events.get()) is not None:
            yield self._sent(event)

    def _sent(self, message: Message) -> bytes:
        if self._now(0.1):
            self._spoil(message)
        content = message.SerializeToString()
        return self._damaged(content) if self._now(0.03) else content

    def _spoil(self, message: Message) -> None:
        for field, value in message.ListFields():
            if field.is_repeated:
                continue
            if isinstance(value, Message):
                self._spoil(value)
            elif isinstance(value, str):
                setattr(message, field.name, self.drawn.choice(NASTY))
            elif not isinstance(value, bool):
                number = self.drawn.choice(NUMBERS)
                try:
                    setattr(message, field.name, number)
                except ValueError:  # beyond the field's type
                    continue

    def _damaged(self, content: bytes) -> bytes:
        data, drawn = bytearray(content or b"\0"), self.drawn
        for _ in range(drawn.randint(1, 8)):
            at = drawn.randrange(len(data) + 1)
            how = drawn.randrange(4)
            if how == 0:
                data[at : at + 1] = drawn.randbytes(1)
            elif how == 1:
                data[at:at] = drawn.randbytes(drawn.randint(1, 600))
            elif how == 2:
                del data[at : at + drawn.randint(1, 600)]
            else:
                data[at : at + 8] = drawn.choice([b"\xff" * 8, b"\0" * 8])
        return bytes(data)

    def _archive(self) -> bytes:
        """Files of a host: honest ones, damaged ones, and what must not be unpacked."""
        name, drawn, buffer = self.name, self.drawn, io.BytesIO()
        files = {str(p.relative_to(GOLDEN)): p.read_bytes() for p in GOLDEN.rglob("*.*")}
        files |= {f"trace/{p.name}": p.read_bytes() for p in (GOLDEN / "trace").iterdir()}
        files["env.json"] = json.dumps({"kernel": {"boot_id": "b"}, "hostname": NASTY[2]}).encode()
        files["components/a/exit.json"] = b'{"version": 1, "code": 0}'
        if self._now(0.2):
            files["clock/probes/metadata"] = files["trace/metadata"]
            files["clock/probes/probes"] = drawn.randbytes(4096)
        for key in files:
            if self._now(0.3):
                files[key] = self._damaged(files[key])
            elif self._now(0.1) and key.endswith(".json"):
                files[key] = drawn.choice(NASTY).encode()
        form = drawn.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
        with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
            for key, content in files.items():
                self._add(tar, f"{name}/{key}", content)
                if self._now(0.05):
                    self._add_odd(tar)
        content = buffer.getvalue()
        if self._now(0.1):
            # A header that announces much more than there is.
            huge = tarfile.TarInfo("././@LongLink")
            huge.type = drawn.choice([tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
            huge.size = 1 << 33
            content = huge.tobuf(tarfile.GNU_FORMAT) + content * 3
        return self._damaged(content) if self._now(0.2) else content

    def _add(self, tar: tarfile.TarFile, key: str, content: bytes) -> None:
        entry = tarfile.TarInfo(key)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))

    def _add_odd(self, tar: tarfile.TarFile) -> None:
        drawn, name = self.drawn, self.name
        kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
        entry = tarfile.TarInfo(f"{name}/odd")
        how = drawn.randrange(4)
        if how == 0:
            entry.type = drawn.choice(kinds)
            entry.linkname = drawn.choice(["/", "../../../..", f"{name}/env.json"])
            tar.addfile(entry)
            self._add(tar, f"{name}/odd/canary", b"written through a link")
        elif how == 1:
            places = ["../canary", "/tmp/canary", f"{name}/../../canary", "other/file", ".", name]
            self._add(tar, drawn.choice(places), b"elsewhere")
        elif how == 2:
            self._add(tar, f"{name}/" + "d/" * 200 + "deep", b"")
        else:
            self._add(tar, f"{name}/\x1b[2J\udcff", b"")


def machine(home: Path, programs: str) -> None:
    """Makes what is on the machine, and the `ssh` that reaches it, in ``home/desk``."""
    kit = home / f".cache/loopscope/kit-{programs}/bin"
    given = {"home": home, "python": sys.executable, "version": __version__}
    for folder in (kit, home / "bin", home / "desk"):
        folder.mkdir(parents=True)
    for path, text in (
        (home / "desk/ssh", SSH),
        (home / "bin/tar", TAR),
        (kit / "loopscope-host", HOST),
    ):
        for word, value in given.items():
            text = text.replace(f"{{{word}}}", str(value))
        path.write_text(text)
        path.chmod(0o755)
    (home / "bridge.py").write_text(BRIDGE)
