"""How long `loopscope why` takes on many messages and kernel events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from targets import spread

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
MESSAGES = 10_000
ROUNDS = 5
EXPERIMENT = """\
name: many
hosts: [h1, h2]
components:
  source:
    host: h1
    run: loopscope-host pipe source
    with: {{to: node, count: {messages}, period: 2ms}}
  node: {{host: h2, run: loopscope-host pipe node, with: {{to: sink}}}}
  sink: {{host: h1, run: loopscope-host pipe sink}}
  turns: {{host: h2, run: {program} {processor}, ready: started}}
phases:
  - {{name: listen, timeout: 5s}}
  - {{name: connect, timeout: 5s}}
  - {{name: run, measured: true, timeout: 120s}}
trace: {{user: ["pipe:*"], kernel: ["sched:*", "irq:*", "softirq:*"]}}
measure:
  paths:
    loop:
      key: id
      events: [source/pipe:sent, node/pipe:received, node/pipe:sent, sink/pipe:received]
"""
# What `why` needs at least, read and put in order by a program that does nothing with it.
FLOOR = """\
import duckdb, sys
for table in ("sched_switch", "sched_waking"):
    duckdb.sql(f"select * from '{sys.argv[1]}/base/1/timeline/kernel/{table}/**/*.parquet' "
               "order by counter").to_arrow_table()
"""


def measure(folder: Path) -> dict[str, Any]:
    """Seconds of each command, and how many messages and kernel events the run has."""
    program = folder / "turns"
    source = Path(__file__).parent / "turns.c"
    subprocess.run(["cc", "-O2", source, "-o", program], check=True)
    last = max(os.sched_getaffinity(0))
    text = EXPERIMENT.format(program=program, processor=last, messages=MESSAGES)
    (folder / "many.yaml").write_text(text)
    words = [LOOPSCOPE, "run", folder / "many.yaml", "--runs", folder / "runs", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"skipped": done.stderr[-500:]}
    kernel = json.loads(done.stdout)["kernel"]
    if kernel["unrecorded"]:
        return {"skipped": str(kernel["unrecorded"])}
    run = folder / "runs/many/latest"
    commands = {
        "floor": [sys.executable, "-c", FLOOR, run],
        "worst 10": [LOOPSCOPE, "why", run, "--worst", "10"],
        "rank": [LOOPSCOPE, "why", run, "--rank", "--over", "0ns"],
        "all": [LOOPSCOPE, "why", run, "--over", "0ns", "--json"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            began = time.monotonic()
            subprocess.run(command, capture_output=True, check=True)
            seconds[name].append(time.monotonic() - began)
    return {
        "messages": MESSAGES,
        "events": sum(each["recorded"] for each in kernel["classes"].values()),
        "dropped": sum(each["dropped"] for each in kernel["classes"].values()),
        "rounds": ROUNDS,
        "seconds": {name: spread(each) for name, each in seconds.items()},
    }
