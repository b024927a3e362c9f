"""The packets of messages on emulated links, as the hosts' kernels have them before and after.

Needs root, tracefs and a build with clang.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from machine import Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]
Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

# Many segments, many datagrams, and one datagram in fragments.
TABLE = """\
name, transport,   size,  datagram, period, producers, consumers
tcp,  tcp-nodelay, 100kB, ,         40ms,   camera,    tracker
udp,  udp,         60kB,  1472B,    40ms,   camera,    tracker
ip,   udp,         8kB,   8kB,      40ms,   camera,    tracker
"""
EXPERIMENT = """\
name: links
hosts: [h1, h2]
components:
  camera:
    host: h1
    run: loopscope-host pattern produce
    with: {table: {file: frames.csv}, duration: 3s}
  tracker: {host: h2, run: loopscope-host pattern consume, with: {table: {file: frames.csv}}}
network: {h1 -> h2: {delay: 5ms, loss: {every: 211}}}
phases:
  - {name: listen, timeout: 10s}
  - {name: connect, timeout: 10s}
  - {name: run, measured: true, timeout: 60s}
trace:
  user: ["pattern:*"]
  kernel: ["sched:*", "irq:*", "softirq:*", "tcp:*", "udp:*"]
measure:
  paths: {frame: {key: id, events: [camera/pattern:sent, tracker/pattern:received]}}
"""


def test_each_packet_is_followed_through_the_link(machine: Machine, results: Read) -> None:
    """What left the sender came to the link, and what left that came to the receiver."""
    machine.write("frames.csv", TABLE)
    machine.write("links.yaml", EXPERIMENT)
    done = machine.command("run", "links.yaml", "--json")
    read = results(done)
    if missing := re.search("no kernel events of class (?:tcp|udp)[^:]*: (.*)", done.stderr):
        pytest.skip(f"SKIPPED LOUDLY: {missing[1]}")
    told = machine.ask("why", "runs/links/latest", "--worst", "1000", "--packets")
    hops = [json.loads(line)["hops"][0] for line in told.stdout.splitlines()]
    assert len(hops) == read["paths"]["frame"]["received"] > 150, told.stderr
    untold = re.compile("is not told" if read["kernel"]["unobservable"] else "(?!)")
    good = whole = lossy = named = 0
    for hop in hops:
        assert sum(part["ns"] for part in hop["parts"]) == hop["ns"]
        unknown = sum(
            part["ns"]
            for part in hop["parts"]
            if part["name"] == "unknown" and not untold.search(part["cause"])
        )
        on_link = sum(part["ns"] for part in hop["parts"] if part["name"] == "link")
        good += unknown <= max(0.05 * hop["ns"], 2_000) and on_link > 4_500_000
        seen: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        for packet in hop.get("packets", ()):
            where = "link" if packet.get("link") else "host"
            did = "lost" if packet.get("lost") else "came" if packet["came"] else "left"
            seen[f"{where} {did}"][packet["first"], packet["bytes"]] += 1
        whole += bool(seen) and (
            seen["host left"] == seen["link came"] and seen["link left"] == seen["host came"]
        )
        if lost := seen["link lost"]:
            assert seen["link came"] == seen["link left"] + lost
            # The message came nevertheless.
            lossy += 1
            again = [part["cause"] for part in hop["parts"] if "sent again" in part["cause"]]
            named += any("the emulated link h1 → h2 lost it" in cause for cause in again)
    assert good >= 0.99 * len(hops), (good, len(hops))
    # While some threads of such a machine are on a processor, packets are not told.
    least = 0.95 if read["kernel"]["unobservable"] else 0.99
    assert whole >= least * len(hops), (whole, len(hops))
    assert lossy > 10 and named >= 0.8 * lossy, (named, lossy)
