"""`why` of messages that the user-mode stack carries. Needs root and the kernel's events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from machine import Machine

pytestmark = pytest.mark.full

COUNT = 1_000
NEAR_NS = 100
"""How far a part may end from the event that ends it: each is rounded."""
EXPERIMENT = f"""
name: pipeline
testbed: local
hosts: [h1, h2, h3]
components:
  source: {{host: h1, accelerate: true, run: loopscope-host pipe source,
    with: {{to: node, count: {COUNT}, period: 2ms, size: 6B}}}}
  node: {{host: h2, accelerate: true, run: loopscope-host pipe node, with: {{to: sink}}}}
  sink: {{host: h3, accelerate: true, run: loopscope-host pipe sink}}
phases:
  - {{name: listen, timeout: 5s}}
  - {{name: connect, timeout: 5s}}
  - {{name: run, measured: true, timeout: 60s}}
trace: {{user: ["pipe:*", "stack:*"], kernel: auto}}
measure:
  paths:
    loop:
      key: id
      events: [source/pipe:sent, node/pipe:received, node/pipe:sent, sink/pipe:received]
expect: [loop.lost == 0]
"""
HOPS = (("source", "node"), ("node", "sink"))


def rows(run: Path, table: str, process: str) -> list[dict[str, Any]]:
    """The events of a component, by the counter, which is that of the machine."""
    file = run / "base/1/timeline" / table.replace(":", "/") / "part-0.parquet"
    read = pq.read_table(file)
    of = read.filter(pc.equal(read["process"].cast("string"), process))
    return sorted(of.to_pylist(), key=lambda row: row["counter"])


def segment(run: Path, ends: tuple[str, str], number: int) -> tuple[int, int, int]:
    """Counters of a message's event, of its segment when it was sent, and when it was taken."""
    sender, receiver = ends
    (begin,) = (row["counter"] for row in rows(run, "pipe:sent", sender) if row["id"] == number)
    write = next(row for row in rows(run, "stack:write", sender) if row["counter"] > begin)
    last = write["seq"] + write["bytes"] - 1

    def has_it(row: dict[str, Any]) -> bool:
        return 0 <= (last - row["seq"]) % 2**32 < row["bytes"]

    sent = next(row for row in rows(run, "stack:segment_sent", sender) if has_it(row))
    came = next(row for row in rows(run, "stack:segment_received", receiver) if has_it(row))
    return begin, sent["counter"], came["counter"]


@pytest.mark.usefixtures("root")
def test_a_hop_through_the_stack_is_split_by_its_segments(machine: Machine) -> None:
    machine.write("pipeline.yaml", EXPERIMENT)
    done = machine.command("run", "pipeline.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (machine.directory / "runs/pipeline").glob("2*")
    environment = json.loads((run / "base/1/hosts/h1/env.json").read_text())
    frequency = environment["counter"]["frequency_hz"]
    why = machine.command("why", str(run), "--worst", str(COUNT), "--json")
    assert why.returncode == 0, why.stderr
    messages = [json.loads(line) for line in why.stdout.splitlines()]
    assert len(messages) == COUNT
    messages.sort(key=lambda each: each["ns"])
    checked = 0
    for message in messages[COUNT // 2 - 10 : COUNT // 2 + 10]:
        hops = [message["hops"][0], message["hops"][2]]
        parts = [part for hop in hops for part in hop["parts"]]
        unknown = sum(part["ns"] for part in parts if part["name"] == "unknown")
        assert unknown <= 0.1 * sum(part["ns"] for part in parts), message
        for hop, ends in zip(hops, HOPS, strict=True):
            begin, sent, came = (
                each * 1e9 / frequency for each in segment(run, ends, message["id"])
            )
            at = 0
            for part in hop["parts"]:
                if part["name"] == "network":
                    assert at >= sent - begin - NEAR_NS, (hop, sent - begin)
                    assert at + part["ns"] <= came - begin + NEAR_NS, (hop, came - begin)
                    checked += 1
                at += part["ns"]
    assert checked > 0
    # The last one went through the stack for sure.
    last = machine.command("why", str(run), "--message", str(COUNT), "--packets", "--json").stdout
    (hop, *_) = json.loads(last)["hops"]
    assert [packet["host"] for packet in hop["packets"]][:2] == ["h1", "h2"], hop
    assert {call["host"] for call in hop["calls"]} == {"h1", "h2"}
