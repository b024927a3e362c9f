"""Components whose TCP connections the user-mode stack transfers (`accelerate`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machine import Machine
from ordinary_user import OrdinaryUser
from ssh_machines import SshMachines

pytestmark = pytest.mark.full

ROUNDS, SIZE = 50, 1000

EXPERIMENT = """
name: talk
testbed: local
hosts: [h1, h2]
params: {stack: true}
components:
  echo:
    host: h2
    run: python3 ./echo.py
    ready: {line: listens}
    accelerate: $stack
  asks:
    host: h1
    run: python3 ./asks.py
    start: run
    ready: {exit: 0}
    environment: [PATH]
    accelerate: {only: "7000-7010", receive: block, rto_min: 1.5ms}
phases:
  - {name: run, measured: true, timeout: 20s}
trace: {user: [], kernel: off}
"""

# Ends by SIGTERM, with its connection open.
ECHO = """
import socket
server = socket.create_server(("10.77.0.2", 7001))
print("listens", flush=True)
other, _ = server.accept()
while part := other.recv(65536):
    other.sendall(part)
while True:
    server.accept()
"""

ASKS = f"""
import os, socket
assert os.environ["LOOPSCOPE_STACK_RECEIVE"] == "block"
assert os.environ["LOOPSCOPE_STACK_RTO_MIN"] == "1500us"
with socket.create_connection(("10.77.0.2", 7001)) as stream:
    for number in range({ROUNDS}):
        sent = bytes([number]) * {SIZE}
        stream.sendall(sent)
        assert stream.recv({SIZE}, socket.MSG_WAITALL) == sent
"""


def write(machine: Machine | OrdinaryUser) -> None:
    for name, text in (("echo.py", ECHO), ("asks.py", ASKS), ("talk.yaml", EXPERIMENT)):
        machine.write(name, text)


def write_over_ssh(machines: SshMachines, machine: str) -> None:
    address = machines.address("h2")
    for name, text in (("echo.py", ECHO), ("asks.py", ASKS)):
        machines.write(name, text.replace("10.77.0.2", address))
    given = f"machines: {{h1: {{{machine}}}, h2: {{{machine}}}}}\n"
    machines.write("talk.yaml", EXPERIMENT.replace("testbed: local", "testbed: ssh") + given)


def run_of(machine: Machine | SshMachines) -> tuple[Path, dict[str, Any]]:
    (run,) = (machine.directory / "runs/talk").glob("2*")
    return run, json.loads((run / "manifest.json").read_text())


def lines(run: Path, component: str) -> list[dict[str, Any]]:
    """The lines that the library has written of connections."""
    file = run / f"base/1/hosts/{component}/files/accelerated-sockets.jsonl"
    every = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in every if line["peer"] is not None]


@pytest.mark.usefixtures("root")
def test_both_ends_are_accelerated(machine: Machine) -> None:
    write(machine)
    done = machine.command("run", "talk.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accelerated" not in done.stderr
    run, manifest = run_of(machine)
    (found,) = manifest["accelerated"]
    assert found["asks"] == {"sockets": 1, "accelerated": 1, "open": 0, "unreadable_lines": 0}
    assert found["echo"]["accelerated"] == 1 and found["echo"]["unreadable_lines"] == 0
    *_, line = lines(run, "h1/components/asks")
    # The first call that transfers data is the kernel's.
    assert line["written_to_stack"] >= (ROUNDS - 1) * SIZE, line
    # What came before it was taken over is read from the stack as well.
    assert line["read_from_stack"] >= line["received_by_stack"] >= (ROUNDS - 1) * SIZE, line
    # It was ended while it had its socket; what it had accepted was told before.
    assert lines(run, "h2/components/echo")[-1]["accelerated"] is True
    resolved = {each["name"]: each["accelerate"] for each in manifest["experiment"]["components"]}
    assert resolved == {
        "echo": {"only": None, "receive": "adaptive", "rto_min_ns": None},
        "asks": {"only": "7000-7010", "receive": "block", "rto_min_ns": 1_500_000},
    }
    assert (
        (run / "base/1/hosts/h1/components/_stack-h1/stdout.log")
        .read_text()
        .startswith("serving programs at @")
    )


@pytest.mark.usefixtures("root")
def test_what_is_not_accelerated_is_told(machine: Machine) -> None:
    write(machine)
    machine.write("talk.yaml", EXPERIMENT.replace("7000-7010", "80,8000-8010"))
    done = machine.command("run", "talk.yaml", "-p", "stack=false")
    assert done.returncode == 0, done.stdout + done.stderr
    run, manifest = run_of(machine)
    (found,) = manifest["accelerated"]
    assert found == {"asks": {"sockets": 1, "accelerated": 0, "open": 0, "unreadable_lines": 0}}
    why = "neither of its ports is in LOOPSCOPE_STACK_ONLY (sockets: 1)"
    assert f"asks on h1 was not accelerated: {why}" in done.stderr
    assert not (run / "base/1/hosts/h2/components/_stack-h2").exists()


@pytest.mark.usefixtures("root")
def test_a_service_that_is_killed_fails_the_run(machine: Machine) -> None:
    write(machine)
    kill = """
import pathlib, signal, os
(service,) = [
    path.parent for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
    if path.read_bytes().split(b"\\0")[1:3] == [b"stack", b"serve"]
    and os.readlink(path.parent / "ns/net") == os.readlink("/proc/self/ns/net")
]
os.kill(int(service.name), signal.SIGKILL)
"""
    # The connection goes back to the kernel, and the program ends as ever.
    machine.write("asks.py", ASKS + "    " + kill.strip().replace("\n", "\n    ") + "\n")
    done = machine.command("run", "talk.yaml")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "_stack-h1 on h1 failed in phase" in done.stderr, done.stderr


def test_an_ordinary_user_is_told_that_the_service_needs_root(user: OrdinaryUser) -> None:
    write(user)
    done = user.command("run", "talk.yaml")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "root of a user namespace: start it as root of the machine" in done.stderr


@pytest.mark.usefixtures("root")
def test_hosts_over_ssh_are_accelerated_where_the_login_is_roots(machines: SshMachines) -> None:
    write_over_ssh(machines, "user: root")
    done = machines.command("run", "talk.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    _, manifest = run_of(machines)
    (found,) = manifest["accelerated"]
    assert found["asks"]["accelerated"] == found["echo"]["accelerated"] == 1


@pytest.mark.usefixtures("root")
def test_hosts_over_ssh_say_that_the_service_needs_root(machines: SshMachines) -> None:
    write_over_ssh(machines, "")
    done = machines.command("run", "talk.yaml")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "as an ordinary user: start it as root" in done.stderr
