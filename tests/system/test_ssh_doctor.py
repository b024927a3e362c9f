"""`loopscope doctor` on machines over SSH: what it finds is what a run there then has."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_machines import EVERYTHING, SshMachines

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]
Findings = dict[str, dict[str, Any]]

TRACED = """
name: traced
testbed: ssh
hosts: [h1, h2]
machines: {h1: {}, h2: {user: root}}
components:
  source: {host: h1, run: loopscope-host pipe source, with: {to: sink, count: 20, period: 5ms}}
  sink: {host: h2, run: loopscope-host pipe sink}
phases:
  - {name: listen, timeout: 5s}
  - {name: connect, timeout: 5s}
  - {name: run, measured: true, timeout: 60s}
trace: {user: ["pipe:*"], kernel: ["sched:*", "tcp:*"]}
"""
BY_TRACEFS = (
    "kernel events of classes sched, irq, softirq, timer, idle, syscall, fault, block and net"
)
BY_PROGRAMS = "kernel events of classes sleep, tcp, udp, drop and call"
COUNTS = "counts of threads (schedstat), where kernel events cannot be recorded"
LINKS = "emulated links (mover tap)"
BECOME = "rights by become: sudo"
ALONE = (
    "name: alone\ntestbed: ssh\nhosts: [h1]\nmachines: {h1: {become: sudo}}\n"
    "components: {sleeper: {host: h1, run: sleep 1000}}\n"
    "phases: [{name: run, measured: true, timeout: 60s}]\n"
)
NOBODY = ALONE.replace("become: sudo", "user: nobody")


@pytest.fixture(params=[("h1",)])
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SshMachines]:
    """Machines on which afterwards nothing may be left."""
    made = SshMachines(tmp_path, request.param)
    try:
        made.make()
        yield made
        left = made.leftovers()
        assert not left, f"left behind: {left}"
    finally:
        made.remove()


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, Findings]:
    """Findings by machine and by what was looked for."""
    found = json.loads(done.stdout)["machines"]
    assert all(set(each) == {"findings"} for each in found.values()), found
    every = {host: {one["what"]: one for one in each["findings"]} for host, each in found.items()}
    for host, each in found.items():
        assert len(each["findings"]) == len(every[host]), "one thing is told twice"
        for one in each["findings"]:
            assert one["ok"] or one["cost"], one
    return every


def doctor(machines: SshMachines, *words: str | Path) -> Findings:
    """Findings of one machine."""
    done = machines.command("doctor", *words, "--json")
    assert done.returncode == 0, done.stderr
    (found,) = findings(done).values()
    return found


@pytest.mark.parametrize("machines", [("h1", "h2", "h3")], indirect=True)
def test_each_machine_shows_what_a_run_there_records(machines: SshMachines, results: Read) -> None:
    machines.cut("h3")
    traced = machines.write("traced.yaml", TRACED)
    done = machines.command("doctor", traced, "h3", "--json")
    # The others are examined all the same, and a person learns what took long.
    assert done.returncode == 4 and "loopscope: could not be examined: h3" in done.stderr
    assert re.search("^examining .*h3$", done.stderr, re.MULTILINE), done.stderr
    found = findings(done)
    assert list(found) == ["h1", "h2", "h3"]
    (lost,) = found["h3"].values()
    assert lost["what"] == "connection" and not lost["ok"], lost
    assert "ssh: connect to host 192.0.2.13 port 22" in lost["found"], lost
    assert "by hand: ssh h3" in lost["cost"], lost

    ordinary, root = found["h1"], found["h2"]
    assert "user rider" in ordinary["root"]["found"] and not ordinary["root"]["ok"]
    assert root["root"]["ok"] and root["connection"]["found"] == "ssh -l root h2"
    assert not ordinary[BY_TRACEFS]["ok"] and "`user: root`" in ordinary[BY_TRACEFS]["found"]
    for each in (ordinary, root):
        assert each["one counter for all processors"]["ok"], each
        assert each["kernel packet stamps"]["ok"], each
    read = results(machines.command("run", traced, "--json"))
    kernel = read["kernel"]
    # One host has events; the other has the reason why not, and what takes their place.
    unrecorded = kernel["unrecorded"]
    assert {host: each[BY_TRACEFS]["ok"] for host, each in found.items() if host != "h3"} == {
        host: host not in unrecorded for host in ("h1", "h2")
    }, (found, kernel)
    assert "takes root" in unrecorded["h1"] and "takes root" in ordinary[BY_TRACEFS]["found"]
    assert ordinary[COUNTS]["ok"] == ("schedstat" in kernel["classes"]), kernel
    assert root[BY_PROGRAMS]["ok"] == ("tcp" in kernel["classes"]), (root, kernel)
    if not root[BY_PROGRAMS]["ok"]:
        why = root[BY_PROGRAMS]["found"].partition(":")[0]
        assert any(why in each for each in read["problems"]), read
    assert not ordinary[BY_PROGRAMS]["ok"]
    # What a run says at its start that agents lack, each with the hosts of which that is so.
    manifest = machines.directory / "runs/traced/latest/manifest.json"
    lacking = json.loads(manifest.read_text())["lacking"]
    for what in ("rights over their network", "real-time priorities"):
        assert not ordinary[what]["ok"] and "`become: sudo`" in ordinary[what]["found"]
        for host in ("h1", "h2"):
            whys = [e["why"] for e in lacking if e["what"] == what and host in e["hosts"]]
            found_here = found[host][what]
            assert whys == ([] if found_here["ok"] else [found_here["found"]]), (host, lacking)
    assert not ordinary[LINKS]["ok"] and root[LINKS]["ok"]


def test_rights_by_sudo_are_tried_as_a_run_gets_them(machines: SshMachines) -> None:
    """Nothing is installed for that."""
    alone = machines.write("alone.yaml", ALONE)
    machines.allow("h1", "rider ALL=(ALL) ALL")
    found = doctor(machines, alone)
    assert not found[BECOME]["ok"] and "a password is required" in found[BECOME]["found"]
    assert "loopscope host setup h1" in found[BECOME]["found"] and LINKS not in found
    refused = machines.command("run", alone)
    assert refused.returncode == 4 and found[BECOME]["found"] in refused.stderr
    # A login that is refused comes with ssh's words and what to do.
    done = machines.command("doctor", machines.write("no.yaml", NOBODY), "--json")
    assert done.returncode == 4, done.stderr
    (lost,) = findings(done)["h1"].values()
    assert "give a key" in lost["found"] and "By hand: ssh -l nobody h1" in lost["found"]
    assert "ssh says: nobody@192.0.2.11: Permission denied" in lost["found"]
    # A name alone says nothing of sudo.
    assert BECOME not in doctor(machines, "h1")
    machines.on("h1", "rm /etc/sudoers.d/test")
    machines.allow("h1", EVERYTHING)
    found = doctor(machines, alone)
    assert found[BECOME]["ok"] and "the run installs" in found[BECOME]["found"]
    assert not found["the program that become: sudo starts"]["ok"]
    assert machines.on("h1", "ls /usr/local/lib") == ""
    assert machines.command("host", "setup", "h1").returncode == 0
    try:
        found = doctor(machines, alone)
        assert found[BECOME]["ok"] and found[LINKS]["ok"], found
        assert found["the program that become: sudo starts"]["ok"]
        assert machines.on("h1", "find /dev/shm /tmp ! -type d") == ""
        # The kernel is not for such an agent.
        assert "become: sudo is not enough" in found[BY_TRACEFS]["found"]
        machines.on("h1", "chmod 600 /dev/net/tun")
        found = doctor(machines, alone)
        assert not found[LINKS]["ok"] and "may not open /dev/net/tun" in found[LINKS]["found"]
    finally:
        assert machines.command("host", "setup", "--remove", "h1").returncode == 0


def interrupt(machines: SshMachines) -> None:
    """Interrupts the command after two seconds; nothing may go on here or on the machine."""
    process = machines.start("doctor", "h1")
    assert process.stderr is not None
    assert process.stderr.readline() == "examining h1\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in errors, errors
    assert list(machines.scratch.iterdir()) == []
    end = time.monotonic() + 20
    while machines.processes_of("h1"):
        assert time.monotonic() < end, machines.processes_of("h1")
        time.sleep(0.1)


def test_people_read_the_same_and_an_interrupt_leaves_nothing(machines: SshMachines) -> None:
    # What unpacks the programs is slow, and is interrupted.
    tar = "/home/rider/slow/tar"
    slow = shlex.quote('#!/bin/sh\nsleep 4\nexec /usr/bin/tar "$@"\n')
    machines.on("h1", f"mkdir {Path(tar).parent} && printf {slow} >{tar} && chmod 755 {tar}")
    machines.on("h1", f"echo 'PATH={Path(tar).parent}:$PATH' >>/home/rider/.bashrc")
    interrupt(machines)
    assert machines.on("h1", "ls -A /home/rider/.cache/loopscope") == ""
    machines.on("h1", f"rm {tar}")
    done = machines.command("doctor", "h1")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith("host h1: has connection: ssh h1 has kernel: ")
    assert f"lacks {BY_TRACEFS}: takes root" in text
    # Each session of the login is slow, so that one goes on when the interrupt comes.
    machines.on("h1", "echo 'sleep 3' >>/home/rider/.bashrc")
    interrupt(machines)
