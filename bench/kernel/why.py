"""How long `loopscope why` takes on many messages and kernel events."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from figures import in_turns
from targets import spread

from kernel import runs

MESSAGES = 10_000
ROUNDS = 5
LIMIT_S = 120
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
    messages = int(os.environ.get("LOOPSCOPE_BENCH_MESSAGES", MESSAGES))
    program = runs.compiled("turns.c", folder)
    last = max(os.sched_getaffinity(0))
    experiment = folder / "many.yaml"
    experiment.write_text(EXPERIMENT.format(program=program, processor=last, messages=messages))
    print(f"  kernel-why: a run of {messages} messages", file=sys.stderr, flush=True)
    classes = runs.recorded(runs.results_of(experiment))["classes"].values()
    run = folder / "runs/many/latest"
    commands: dict[str, list[str | Path]] = {
        "floor": [sys.executable, "-c", FLOOR, run],
        "worst 10": [runs.LOOPSCOPE, "why", run, "--worst", "10"],
        "rank": [runs.LOOPSCOPE, "why", run, "--rank", "--over", "0ns"],
        "all": [runs.LOOPSCOPE, "why", run, "--over", "0ns", "--json"],
    }

    def seconds(command: list[str | Path]) -> dict[str, float]:
        began = time.monotonic()
        words = [*runs.bounded(LIMIT_S), *command]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        return {"seconds": time.monotonic() - began}

    every = {name: partial(seconds, command) for name, command in commands.items()}
    found = in_turns("kernel-why", ROUNDS, every)
    return {
        "messages": messages,
        "events": sum(each["recorded"] for each in classes),
        "dropped": sum(each["dropped"] for each in classes),
        "rounds": found["rounds"],
        "skipped": found["skipped"],
        "seconds": {name: spread(each["seconds"]) for name, each in found["values"].items()},
    }
