"""Messages of 300 kB over TCP, and over UDP in series of datagrams: each hop is accounted for.

Needs root, tracefs and a build with clang.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machine import Machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from effort import SOAK  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]
Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

TABLE = """\
name,  transport,   size,  datagram, period, producers, consumers
tcp,   tcp-nodelay, 300kB, ,         20ms,   camera,    tracker
udp,   udp,         300kB, 1472B,    20ms,   camera,    tracker
"""
EXPERIMENT = """\
name: frames
hosts: [h1, h2, h3, h4]
components:
  camera:
    host: h1
    run: loopscope-host pattern produce
    with: {table: {file: frames.csv}, duration: 3s}
  tracker: {host: h2, run: loopscope-host pattern consume, with: {table: {file: frames.csv}}}
  LOAD
phases:
  - {name: listen, timeout: 20s}
  - {name: connect, timeout: 20s}
  - {name: run, measured: true, timeout: 60s}
trace: {user: ["pattern:*"], kernel: ["sched:*", "irq:*", "softirq:*", "tcp:*", "udp:*"]}
measure:
  paths: {frame: {key: id, events: [camera/pattern:sent, tracker/pattern:received]}}
"""
LOADS = {
    "none": "",
    "cpu": "burn: {host: h1, run: loopscope-host burn --kind compile, with: {threads: 2}}",
    "network": "bulk: {host: h3, run: loopscope-host ettcp send, with: {to: drain, rate: 1Gbit}}\n"
    "  drain: {host: h4, run: loopscope-host ettcp receive}",
}
SIZE, DATAGRAM, HEAD, NUMBER = 300_000, 1472, 12, 8
DATAGRAMS = -(-(SIZE - NUMBER) // (DATAGRAM - HEAD))


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(
            load,
            marks=pytest.mark.skipif(
                load != "none" and not SOAK, reason="SKIPPED: under load; part of make soak"
            ),
        )
        for load in LOADS
    ],
)
def test_each_hop_is_accounted_for(machine: Machine, results: Read, load: str) -> None:
    """Less than 5 % or 2 us of each hop is unknown, for nearly all messages."""
    machine.write("frames.csv", TABLE)
    machine.write("frames.yaml", EXPERIMENT.replace("LOAD", LOADS[load]))
    done = machine.command("run", "frames.yaml", "--json")
    read = results(done)
    if missing := re.search("no kernel events of class (?:tcp|udp)[^:]*: (.*)", done.stderr):
        pytest.skip(f"SKIPPED LOUDLY: {missing[1]}")
    found = read["paths"]["frame"]
    assert found["lost"] < 0.02 * (found["count"] + found["lost"]), found
    told = machine.command("why", "runs/frames/latest", "--worst", "1000", "--packets", "--json")
    messages = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(messages) == found["count"] > 250, told.stderr
    # Some virtual machines' kernels do not tell when a processor ends its idling.
    untold = re.compile("is not told" if read["kernel"]["unobservable"] else "(?!)")
    good = whole = 0
    for message in messages:
        (hop,) = message["hops"]
        assert sum(part["ns"] for part in hop["parts"]) == max(hop["ns"], 0)
        unknown = sum(
            part["ns"]
            for part in hop["parts"]
            if part["name"] == "unknown" and not untold.search(part["cause"])
        )
        good += unknown <= max(0.05 * hop["ns"], 2_000)
        came = [each for each in hop["packets"] if each["came"] and not each["again"]]
        if message["id"] >> 48:
            lengths = [DATAGRAM] * (DATAGRAMS - 1)
            last = SIZE - NUMBER - (DATAGRAM - HEAD) * (DATAGRAMS - 1) + HEAD
            whole += sorted(each["bytes"] for each in came) == sorted([*lengths, last])
        else:
            whole += sum(each["bytes"] for each in came) == SIZE
    assert good >= 0.99 * len(messages), (good, len(messages))
    # While such a thread is on a processor, packets are not told either.
    least = 0.95 if read["kernel"]["unobservable"] else 0.99
    assert whole >= least * len(messages), (whole, len(messages))
