"""Packets that wait until what emulates their link looks at them. Needs root and tracefs."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from machine import Machine

from loopscope.timeline import open_run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

# Stops the program that emulates this run's links for 20 ms at a time.
STOPS = """
import os, signal, sys, time
from pathlib import Path

links = Path.cwd().parents[3] / "_router/components/_links/files"

def emulates(process):
    try:
        its = (process / "cmdline").read_bytes().split(b"\\0")[1], (process / "cwd").readlink()
    except (OSError, IndexError):
        return False
    return its == (b"emulate", links)

(pid,) = [int(each.name) for each in Path("/proc").glob("[0-9]*") if emulates(each)]
# It must go on when this ends.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
print("here", flush=True)
for _ in range(15):
    time.sleep(0.08)
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.02)
    finally:
        os.kill(pid, signal.SIGCONT)
signal.pause()
"""
EXPERIMENT = """
name: ring
hosts: [h1, h2]
components:
  other: {host: h2, run: python ./other.py, start: run}
  source: {host: h1, run: loopscope-host pipe source, with: {to: sink, count: 600, period: 4ms}}
  sink: {host: h2, run: loopscope-host pipe sink}
phases:
  - {name: listen, timeout: 5s}
  - {name: connect, timeout: 5s}
  - {name: run, measured: true, timeout: 60s}
network: {h1 -> h2: {delay: 5ms}}
trace: {user: ["pipe:*"], kernel: ["sched:*", "irq:*", "softirq:*"]}
measure: {paths: {loop: {key: id, events: [source/pipe:sent, sink/pipe:received]}}}
"""


class Packet(NamedTuple):
    """A packet as its link told of it, ns."""

    came: int
    taken: int
    due: int
    given: int
    returned: int


def packets(machine: Machine) -> dict[int, Packet]:
    """Those of the link, by the message's number, where one alone has it."""
    run = open_run(machine.directory / "runs/ring/latest")
    of_link = '"from" = 0 AND "to" = 1'
    came = run.relation("link.enqueued").filter(of_link)
    came = came.project("number, id, ts AS came, ts + ago_ns AS taken")
    left = run.relation("link.departed").filter(of_link)
    left = left.project("number, ts - late_ns AS due, ts AS given, ts + ago_ns AS returned")
    rows = came.join(left, "number").project("id, came, taken, due, given, returned").fetchall()
    ids = [id for id, *_ in rows]
    return {id: Packet(*stamps) for id, *stamps in rows if ids.count(id) == 1}


def test_a_packet_that_was_due_before_it_was_taken_waited_in_the_ring(machine: Machine) -> None:
    """The stops keep what is on the link from leaving (`late`), and what comes in the ring."""
    machine.write("other.py", STOPS)
    machine.write("ring.yaml", EXPERIMENT)
    run = machine.command("run", "ring.yaml")
    assert run.returncode == 0, run.stdout + run.stderr
    of_link = packets(machine)
    told = machine.ask("why", "runs/ring/latest", "--worst", "600").stdout
    stopped = waited = covered = sent = known = 0
    for message in map(json.loads, told.splitlines()):
        (hop,) = message["hops"]
        assert sum(part["ns"] for part in hop["parts"]) == hop["ns"], hop
        packet = of_link.get(message["id"])
        (link, *_), ring, late, send = (
            [part for part in hop["parts"] if part["name"] == name] or [None]
            for name in ("link", "ring", "late", "send")
        )
        if packet is None or link is None:
            continue
        known += 1
        taken_late = max(packet.taken - packet.due, 0)
        lengths = [sum(part["ns"] for part in each if part) for each in (ring, late, send)]
        # Where clocks have the message come before it was sent, or the like, parts are cut.
        for found, wanted in (
            (lengths[0], taken_late),
            (lengths[1], packet.given - max(packet.taken, packet.due)),
            (link["ring_ns"], packet.taken - packet.came),
        ):
            assert abs(found - wanted) <= hop["err_ns"], (message["id"], found, wanted, hop)
        assert lengths[2] <= packet.returned - packet.given
        sent += lengths[2] > 0
        covered += taken_late == 0 and link["ring_ns"] > 0
        if taken_late > 5_000_000:
            waited += taken_late
            stopped += sum(
                part["ns"]
                for part in ring
                if part["cause"].startswith("_links of _router, which emulates h1 → h2, left it in")
                and part["cause"].endswith("it slept, woken by other of h2")
            )
    assert known > 300 and covered > 100, (known, covered)
    # Where the receiver waited for a processor anyway, the sending kept nothing.
    assert sent > 50, sent
    # Other programs keep it from running too, before it is stopped and afterwards.
    assert waited > 100_000_000 and stopped > waited // 2, (waited, stopped)
    ranked = json.loads(machine.ask("why", "runs/ring/latest", "--rank", "--over", "8ms").stdout)
    assert any(each["name"] == "ring" and each["in_time"] for each in ranked["causes"]), ranked
