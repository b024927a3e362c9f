"""``loopscope clock``: a reference, a follower and what programs are told, with no experiment."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from loopscope_trace.clock import HOLDOVER
from machine import BIN, ROOT, Machine

pytestmark = pytest.mark.full

SOAK = "LOOPSCOPE_SOAK" in os.environ
KEPT = ROOT / "tests/soak-results"

CHRONY = """\
local stratum 8
port 0
cmdport 323
bindcmdaddress 127.0.0.1
bindcmdaddress /
pidfile {directory}/chronyd.pid
driftfile {directory}/drift
"""


def until(holds: Callable[[], bool], what: str) -> None:
    """Asks again and again, some seconds at most."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Clocks:
    """Clock services of this test, ended with it."""

    def __init__(self, machine: Machine, inside: list[str]) -> None:
        self.machine = machine
        self.inside = inside
        self.key = machine.directory / "clock.key"
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*self.inside, *words],
            env=self.machine.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def clock(self, verb: str, page: str, *words: str) -> subprocess.Popen[str]:
        """Starts a service; returns when it serves or follows."""
        own = ["--key", self.key, "--page", self.page(page)]
        process = self.start(BIN / "loopscope", "clock", verb, *own, *words)
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert str(self.page(page)) in line, line + process.stderr.read()
        return process

    def page(self, name: str) -> Path:
        return self.machine.directory / name

    def status(self, name: str) -> tuple[int, dict[str, Any]]:
        """Exit code and what it says."""
        done = self.machine.command("clock", "status", "--page", self.page(name), "--json")
        assert done.returncode in (0, 3), done.stderr
        return done.returncode, json.loads(done.stdout)

    def told(self, name: str) -> int:
        """The status that a program reads."""
        read = "from loopscope_trace import clock; print(clock.now().status)"
        environment = {**self.machine.environment, "LOOPSCOPE_CLOCK": str(self.page(name))}
        return int(subprocess.check_output([sys.executable, "-c", read], env=environment))

    def says(self, name: str, code: int, status: str) -> bool:
        returned, said = self.status(name)
        return (returned, said["status"]) == (code, status)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


@pytest.fixture
def clocks(machine: Machine) -> Iterator[Clocks]:
    made = Clocks(machine, [])
    yield made
    made.end()


def free_port() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def pair(clocks: Clocks) -> tuple[subprocess.Popen[str], subprocess.Popen[str], str]:
    """A reference and a follower of it, synchronised."""
    port = free_port()
    reference = clocks.clock("serve", "reference", "--address", "127.0.0.1", "--port", port)
    follower = clocks.clock("join", "follower", f"127.0.0.1:{port}")
    until(lambda: clocks.says("follower", 0, "SYNCHRONISED"), "never synchronised")
    return reference, follower, port


def test_one_serves_and_one_follows(clocks: Clocks) -> None:
    reference, follower, _ = pair(clocks)
    assert clocks.key.stat().st_mode & 0o777 == 0o600
    code, said = clocks.status("follower")
    assert (code, said["role"], said["writer"]["alive"]) == (0, "follower", True)
    assert 0 < said["half_width_ns"] < 1_000_000
    assert abs(said["rate_ppm"]) < 100
    assert clocks.status("reference")[1]["role"] == "reference"
    text = clocks.machine.command("clock", "status", "--page", clocks.page("follower")).stdout
    assert "SYNCHRONISED" in text and "hard" in text and "unsynchronised: " in text

    # Both are on one machine, so their times are one, wherever they are read.
    def read(page: str) -> tuple[int, int]:
        said = clocks.status(page)[1]
        return said["global_ns"], said["half_width_ns"]

    before, middle, after = read("reference"), read("follower"), read("reference")
    assert before[0] - middle[1] <= middle[0] <= after[0] + middle[1]

    follower.send_signal(signal.SIGTERM)
    out, err = follower.communicate(timeout=30)
    assert follower.returncode == 0, err
    sent, answered = (int(out.split(f" {word}")[0].split()[-1]) for word in ("probes", "answered"))
    assert sent >= answered >= 200, out
    gone = clocks.machine.command("clock", "status", "--page", clocks.page("follower"))
    assert gone.returncode == 2
    assert "loopscope clock join" in gone.stderr
    reference.send_signal(signal.SIGINT)
    out, err = reference.communicate(timeout=30)
    assert reference.returncode == 0, err
    assert "made the key" in err
    # Nothing fills the disk.
    assert [path.name for path in clocks.machine.directory.iterdir()] == ["clock.key"]


def test_the_guide_s_commands(machine: Machine) -> None:
    """docs/guide/clock.md: each host has a network's end and a /dev/shm of its own."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: makes namespaces, needs root")
    guide = (ROOT / "docs/guide/clock.md").read_text()

    def blocks(kind: str) -> list[str]:
        return re.findall(rf"^```sh {kind}\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)

    serve, join = blocks("service")
    (status,) = blocks("status")
    own = f"mount -t tmpfs none /dev/shm && cd {machine.directory} && exec "
    with ExitStack() as stack:
        clocks = Clocks(machine, inside_a_network(stack))
        stack.callback(clocks.end)
        for command in (serve, join.replace("REFERENCE", "127.0.0.1")):
            service = clocks.start("unshare", "--mount", "sh", "-c", own + command)
            assert service.stdout is not None and service.stderr is not None
            line = service.stdout.readline()
            assert "the page is /dev/shm/loopscope-clock" in line, service.stderr.read()
        host = ["nsenter", "--target", str(service.pid), "--mount", "sh", "-c", status]

        def said() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                host, env=machine.environment, capture_output=True, text=True, check=False
            )

        until(lambda: said().returncode == 0, "never synchronised")
        labels = [line.split()[0] for line in said().stdout.splitlines()]
        shown = guide.split("```\nstatus")[1].split("```")[0]
        assert labels == [line.split()[0] for line in f"status{shown}".splitlines()]


def test_a_log_is_kept_where_it_is_asked_for(clocks: Clocks) -> None:
    port = free_port()
    clocks.clock("serve", "reference", "--address", "127.0.0.1", "--port", port)
    log = clocks.machine.directory / "log"
    follower = clocks.clock("join", "follower", f"127.0.0.1:{port}", "--log", str(log))
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=30)
    assert (log / "metadata").exists() and (log / "probes").stat().st_size > 4096


def test_followers_check_each_other(clocks: Clocks) -> None:
    port, answers, silent = free_port(), free_port(), free_port()
    to = f"127.0.0.1:{port}"
    clocks.clock("serve", "reference", "--address", "127.0.0.1", "--port", port)
    answering = clocks.clock("join", "answering", to, "--answer", answers)
    # Not at its end: a line that was read together with the one before would be lost there.
    assert answering.stdout is not None
    assert f"answering other followers on 127.0.0.1:{answers}" in answering.stdout.readline()
    peers = ["--peer", f"127.0.0.1:{answers}", "--peer", f"127.0.0.1:{silent}"]
    log = clocks.machine.directory / "log"
    checking = clocks.clock("join", "checking", to, *peers, "--log", str(log))
    assert checking.stdout is not None
    agreed = re.fullmatch(
        rf"127\.0\.0\.1:{answers}: its time and this host's are (-?\d+) ns apart, \+-(\d+) ns\n",
        checking.stdout.readline(),
    )
    assert agreed is not None
    assert abs(int(agreed[1])) <= int(agreed[2]) < 1_000_000
    checking.send_signal(signal.SIGTERM)
    out, err = checking.communicate(timeout=30)
    assert (checking.returncode, err) == (0, "")
    compared = re.search(rf":{answers}: (\d+) times compared, 0 contradictions", out)
    assert compared is not None and int(compared[1]) > 10
    # A peer that does not answer hinders no other.
    assert f":{silent}: 0 times compared" in out
    assert (log / f"mesh/127.0.0.1:{answers}/probes").stat().st_size > 1024
    answering.send_signal(signal.SIGTERM)
    out, _ = answering.communicate(timeout=30)
    replies = re.search(r"(\d+) replies to followers sent", out)
    assert replies is not None and int(replies[1]) >= int(compared[1])


def test_a_reference_that_stops_is_missed(clocks: Clocks) -> None:
    reference, _, _ = pair(clocks)
    reference.send_signal(signal.SIGSTOP)
    until(lambda: clocks.says("follower", 3, "HOLDOVER"), "nobody noticed")
    first = clocks.status("follower")[1]["half_width_ns"]
    until(lambda: clocks.status("follower")[1]["half_width_ns"] > first, "the width does not grow")
    reference.send_signal(signal.SIGCONT)
    until(lambda: clocks.says("follower", 0, "SYNCHRONISED"), "it did not come back")


def test_a_killed_follower_goes_on_in_another_epoch(clocks: Clocks) -> None:
    _, follower, port = pair(clocks)
    before = clocks.status("follower")[1]
    follower.kill()
    follower.wait()
    code, said = clocks.status("follower")
    assert (code, said["status"], said["writer"]["alive"]) == (3, "HOLDOVER", False)
    assert said["epoch"] == before["epoch"]
    # Programs do not ask who has written it.
    until(lambda: clocks.told("follower") == HOLDOVER, "programs are told that it goes on")
    clocks.clock("join", "follower", f"127.0.0.1:{port}")
    until(lambda: clocks.says("follower", 0, "SYNCHRONISED"), "never synchronised again")
    again = clocks.status("follower")[1]["epoch"]
    assert again > before["epoch"]
    # It does not begin anew either where the page was taken away.
    clocks.processes[-1].terminate()
    clocks.processes[-1].wait()
    clocks.clock("join", "follower", f"127.0.0.1:{port}")
    assert clocks.status("follower")[1]["epoch"] > again


def test_what_cannot_start_says_why(clocks: Clocks) -> None:
    _, _, served = pair(clocks)
    command = clocks.machine.command
    own = ["--key", clocks.key, "--page", clocks.page("follower")]
    taken = command("clock", "join", f"127.0.0.1:{served}", *own)
    assert taken.returncode == 2 and "another service" in taken.stderr
    nowhere = command("clock", "join", "127.0.0.1:no-port", *own)
    assert nowhere.returncode == 2 and "HOST:PORT" in nowhere.stderr
    own = ["--key", clocks.key, "--page", clocks.page("other")]
    reference = f"127.0.0.1:{served}"
    no_peer = command("clock", "join", reference, *own, "--peer", "h3")
    assert no_peer.returncode == 2 and "HOST:PORT" in no_peer.stderr
    occupied = command("clock", "join", reference, *own, "--answer", served)
    assert occupied.returncode == 2 and served in occupied.stderr
    rate = command("clock", "join", "127.0.0.1:9", *own, "--rate", "100")
    assert rate.returncode == 2 and "100Hz" in rate.stderr
    clocks.key.chmod(0o644)
    open_key = command("clock", "serve", *own)
    assert open_key.returncode == 2 and f"chmod 600 {clocks.key}" in open_key.stderr


def inside_a_network(stack: ExitStack) -> list[str]:
    """Makes a network of the test's own, where all ports are free; how to run a command in it."""
    script = "ip link set lo up && echo up && exec sleep 600"
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE, text=True
    )
    stack.callback(holder.communicate)
    stack.callback(holder.kill)
    assert holder.stdout is not None and holder.stdout.readline() == "up\n"
    return ["nsenter", "--target", str(holder.pid), "--net"]


@pytest.mark.usefixtures("root")
def test_utc_is_as_chrony_gives_it(machine: Machine) -> None:
    if shutil.which("chronyd") is None:
        pytest.skip("SKIPPED LOUDLY: needs Debian's chronyd: scripts/setup --test")
    with ExitStack() as stack:
        clocks = Clocks(machine, inside_a_network(stack))
        stack.callback(clocks.end)
        conf = machine.write("chrony.conf", CHRONY.format(directory=machine.directory))
        chronyd = clocks.start("chronyd", "-x", "-d", "-u", "root", "-f", conf)

        def tracking() -> list[str]:
            done = subprocess.run(
                [*clocks.inside, "chronyc", "-n", "-c", "tracking"],
                capture_output=True,
                text=True,
                check=False,
            )
            return done.stdout.strip().split(",") if done.returncode == 0 else []

        until(lambda: len(tracking()) >= 14 and tracking()[13] == "Normal", "chronyd is silent")
        pair(clocks)
        fields = tracking()
        offset, delay, dispersion = (float(fields[at]) for at in (4, 10, 11))
        uncertainty = (abs(offset) + dispersion + delay / 2) * 1e9
        for page in ("reference", "follower"):
            before = time.time_ns()
            _, said = clocks.status(page)
            after = time.time_ns()
            utc = said["utc"]
            assert (utc["synchronised"], utc["stratum"]) == (True, int(fields[2]) or 8)
            assert uncertainty <= utc["error_ns"] <= uncertainty + 1_000_000
            far = utc["error_ns"] + said["half_width_ns"]
            assert before - far <= said["global_ns"] + utc["offset_ns"] <= after + far
        chronyd.kill()
        chronyd.wait()

        def reasons() -> set[str | None]:
            return {clocks.status(page)[1]["utc"]["reason"] for page in ("reference", "follower")}

        unsynchronised = "no chronyd answers on the reference"
        until(lambda: reasons() == {unsynchronised}, "UTC is still believed")
        # The hosts agree as before.
        assert clocks.says("follower", 0, "SYNCHRONISED")


@pytest.mark.usefixtures("root")
def test_verify_draws_what_it_scored(machine: Machine) -> None:
    """Two scenarios, briefly: targets may be missed, but no bound may be wrong.

    `make soak`: all of them, long, and kept.
    """
    figures = KEPT / "clock-verify" if SOAK else machine.directory / "figures"
    words = ["--long"] if SOAK else ["idle", "small-step", "--duration", "3s"]
    before = {
        "taken": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{platform.release()} {platform.machine()}, {os.cpu_count()} CPUs",
        "load_before": round(os.getloadavg()[0], 2),
    }
    verify = ["clock", "verify", "--json", "--output", figures, *words]
    done = machine.command(*verify, timeout_s=3600 if SOAK else 300)
    told = json.loads(done.stdout)
    if SOAK:
        (KEPT / "clock-verify.json").write_text(json.dumps({**before, **told}, indent=2) + "\n")
    scenarios = told["scenarios"]
    assert done.returncode == (0 if all(each["met"] for each in scenarios) else 1), done.stderr
    assert sum(each["violations"] for each in scenarios) == 0, done.stderr
    scored = {side: sum(each[side]["known"] for each in scenarios) for side in told["scored"]}
    assert told["scored"] == scored and min(scored.values()) > (8_000_000 if SOAK else 900_000)
    names = {path.name for path in figures.iterdir()}
    kinds = ("csv", "svg", "pdf", "png")
    assert names >= {f"{each['name']}.{kind}" for each in scenarios for kind in kinds}
    if SOAK:
        missed = [
            (each["name"], target)
            for each in scenarios
            for target in each["targets"] + each["checks"]
            if not target["met"]
        ]
        assert len(scenarios) == 11
        assert missed == []


def test_a_follower_waits_for_its_reference(clocks: Clocks) -> None:
    """It says so, goes on as soon as somebody answers, and Ctrl-C ends it before that."""
    port = free_port()
    own = ["--key", clocks.key, "--page"]
    clocks.key.write_text("0123456789abcdef")
    clocks.key.chmod(0o600)
    join = [BIN / "loopscope", "clock", "join", f"localhost:{port}", *own]
    follower, given_up = (clocks.start(*join, clocks.page(name)) for name in ("one", "two"))
    for process in (follower, given_up):
        assert process.stderr is not None
        line = process.stderr.readline()
        assert f"waiting for localhost:{port}" in line and "the same key" in line, line
        assert process.poll() is None
    given_up.send_signal(signal.SIGINT)
    assert given_up.wait(timeout=20) == 0
    clocks.clock("serve", "reference", "--address", "127.0.0.1", "--port", port)
    assert follower.stdout is not None
    assert "following" in follower.stdout.readline()
    until(lambda: clocks.says("one", 0, "SYNCHRONISED"), "the follower is synchronised")
