"""Flight recorders that keep the kernel's events: what is there, and what is said to be missing.

Needs root, and a kernel that lets programs in.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from kernel_run import without_loss
from machine import BIN, Machine

from loopscope.timeline import Run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

KEPT_NS, POST_NS = 300_000_000, 100_000_000
# What is kept before a trigger is more, so that it may be told of late; and it is taken in pieces.
MORE_NS = 800_000_000
SOURCE = """
import socket, struct, time
from loopscope_trace import flow_out

sent = flow_out("own", "sent")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(500):
    sent(number)
    conn.sendto(struct.pack("<Q", number), ("h2", 7001))
    time.sleep(0.005)
"""
NODE = """
import socket, struct, time
from loopscope_trace import flow_in

received = flow_in("own", "received")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
conn.bind(("", 7001))
while True:
    (number,) = struct.unpack("<Q", conn.recv(100))
    if number == 350:
        time.sleep(0.25)
    received(number)
"""
FLIGHT = """
name: flight
hosts: [h1, h2]
components:
  node: {host: h2, run: PYTHON ./node.py, ready: {port: 7001}}
  source: {host: h1, run: PYTHON ./source.py, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace:
  user: ["own:*"]
  kernel: ["sched:*", "irq:*", "softirq:*", "udp:*"]
  streams:
    last: {kind: flight-recorder, kernel: 300ms, WHEN}
measure:
  paths:
    loop: {events: [source/own:sent, node/own:received]}
""".replace("PYTHON", f"{BIN}/python")
LATE = "triggers: [{path: loop, over: 200ms}], post: 100ms, on_death: false"


def flown(machine: Machine, when: str) -> tuple[Run, dict[str, Any], str]:
    machine.write("source.py", SOURCE)
    machine.write("node.py", NODE)
    run, read, said = without_loss(machine, FLIGHT.replace("WHEN", when), "udp")
    for counts in read["kernel"]["classes"].values():
        parts = ("recorded", "overwritten", "dropped")
        assert counts["emitted"] == sum(counts[part] for part in parts)
    return run, read, said


def times(run: Run, table: str, rows: str = "true") -> list[int]:
    found = run.relation(table).filter(rows).order("ts").project("ts").fetchall()
    return [ts for (ts,) in found]


def explained(machine: Machine, number: int) -> list[dict[str, Any]]:
    """The parts of the only hop of a message."""
    told = machine.ask("why", "runs/flight/latest", "--message", str(number))
    (message,) = map(json.loads, told.stdout.splitlines())
    (hop,) = message["hops"]
    assert sum(part["ns"] for part in hop["parts"]) == hop["ns"]
    return list(hop["parts"])


def test_a_late_message_writes_what_the_kernel_did_about_it(machine: Machine) -> None:
    run, read, said = flown(machine, LATE)
    assert said.count("flight recorder last triggered on h2: own:received") == 1, said
    (late,) = times(run, "own.received", "id = 350")
    (sent,) = times(run, "own.sent", "id = 350")
    classes = read["kernel"]["classes"]
    for name in ("sched", "udp"):
        assert classes[name]["overwritten"] > classes[name]["recorded"] / 10, classes
    assert "a flight recorder wrote a part" in read["kernel"]["cost_unknown"]
    kernel = times(run, "kernel.sched_switch")
    assert kernel[0] > late - KEPT_NS - MORE_NS
    assert kernel[-1] < late + POST_NS + MORE_NS
    # Each datagram that was read in the time that is kept: one between two that the program noted.
    reads = times(run, "kernel.datagram_read")
    received = times(run, "own.received")
    within = [ts for ts in received if late - KEPT_NS < ts < late + POST_NS]
    assert len(within) > 50
    for before, after in pairwise(within):
        assert len([ts for ts in reads if before < ts < after]) == 1, (before, after)
    parts = explained(machine, 350)
    slept = sum(part["ns"] for part in parts if part["name"] == "blocked")
    assert slept > 0.9 * (late - sent), parts
    # Before that nothing is known.
    (unknown,) = explained(machine, 10)
    assert unknown["name"] == "unknown" and "events of the kernel are missing" in unknown["cause"]


def test_the_end_of_a_run_writes_what_the_kernel_did_last(machine: Machine) -> None:
    run, read, said = flown(machine, "triggers: [{path: loop, over: 1h}]")
    assert "flight recorder" not in said
    kernel = times(run, "kernel.sched_switch")
    assert kernel[-1] > times(run, "own.received")[-1]
    assert KEPT_NS < kernel[-1] - kernel[0] < KEPT_NS + MORE_NS
    assert read["kernel"]["classes"]["sched"]["overwritten"] > 0
