"""Time from the death of a component to the message that says so."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from targets import spread

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
ROUNDS = 10
FILE = """
name: death
hosts: [h1, h2]
components:
  bystander: {host: h1, run: sleep 60, ready: started}
  victim: {host: h2, run: [sh, -c, "sleep 0.5; kill -9 $$$$"], ready: {exit: 0}, start: run}
phases: [{name: run, timeout: 20s}]
"""


def measure(folder: Path) -> dict[str, Any]:
    """From when the agent reaped the program to when the line can be read."""
    file = folder / "death.yaml"
    file.write_text(FILE)
    rounds = []
    for _ in range(ROUNDS):
        run = subprocess.Popen(
            [LOOPSCOPE, "run", file, "--runs", folder / "runs"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert run.stderr is not None
        shown_ns, said = None, []
        for line in run.stderr:
            said.append(line)
            if shown_ns is None and line.startswith("loopscope: victim on h2 failed"):
                # CLOCK_MONOTONIC, which the hosts of the local testbed share with this process.
                shown_ns = time.monotonic_ns()
        run.wait()
        if shown_ns is None:
            return {"skipped": "".join(said)[-500:]}
        victim = folder / "runs/death/latest/base/1/hosts/h2/components/victim"
        ended_ns = json.loads((victim / "exit.json").read_text())["ended_ns"]
        rounds.append((shown_ns - ended_ns) / 1e6)
    return {"milliseconds": spread(rounds)}
