"""Cost of ``loopscope_trace`` calls in nanoseconds; prints one JSON object.

Runs itself under ``loopscope-host record`` with the group ``on`` enabled and the group ``off`` not.
A figure is the median over batches of 1000 calls in a loop, less the empty loop's; each round gives
one. ``builtin`` is the floor: a built-in function of one argument that does next to nothing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from loopscope_trace import counter, event, histogram, interval

ROUNDS = 5
BATCH = range(1000)
BATCHES = 400
BATCHES_A_PAUSE = 30  # what fits into a ring: a dropped event is not a recorded one
PAUSE_S = 0.06  # the collector empties the ring meanwhile

CALLS = {
    "builtin": "builtin(i)",
    "dormant_id": "off(i)",
    "dormant_field": "off_field(i, i)",
    "enabled_id": "on(i)",
    "enabled_field": "on_field(i, i)",
    "enabled_string": "on_string(i, 'twelve bytes')",
    "interval_dormant": "off_step.start(); off_step.end(i)",
    "interval": "step.start(); step.end(i)",
    "interval_with": "\n  with step(i): pass",
    "counter_add": "total.add()",
    "histogram_add": "wait.add(i)",
}

ENTITIES = {
    "off": event("off", "event"),
    "off_field": event("off", "field", size="u32"),
    "off_step": interval("off", "step"),
    "on": event("on", "event"),
    "on_field": event("on", "field", size="u32"),
    "on_string": event("on", "string", note="str"),
    "step": interval("on", "step"),
    "total": counter("on", "total"),
    "wait": histogram("on", "wait"),
    # Looks at one pointer of its argument: as little as a built-in does.
    "builtin": callable,
}


def loop(call: str) -> Callable[[], float]:
    """Nanoseconds of one batch; the names are the loop's own variables."""
    names = ", ".join(ENTITIES)
    source = (
        f"def batch(now, {names}):\n began = now()\n for i in BATCH: {call}\n return now() - began"
    )
    scope: dict[str, object] = {"BATCH": BATCH}
    exec(source, scope)
    batch = scope["batch"]
    assert callable(batch)
    return lambda: batch(time.perf_counter_ns, *ENTITIES.values())


def median(call: str) -> float:
    batch = loop(call)
    taken = []
    for number in range(BATCHES):
        if number % BATCHES_A_PAUSE == 0:
            time.sleep(PAUSE_S)
        taken.append(batch())
    return statistics.median(taken) / len(BATCH)


def measure() -> dict[str, list[float]]:
    rounds: dict[str, list[float]] = {name: [] for name in CALLS}
    for _ in range(ROUNDS):
        empty = median("pass")
        for name, call in CALLS.items():
            rounds[name].append(round(median(call) - empty, 2))
    return rounds


def main() -> int:
    if sys.argv[1:] == ["--measure"]:
        print(json.dumps(measure()))
        return 0
    host = Path(sys.executable).parent / "loopscope-host"
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as name:
        out = Path(name) / "out"
        command = [host, "record", "-e", "on:*", "-o", out, "--"]
        command += [sys.executable, __file__, "--measure"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        loss = json.loads((out / "loss.json").read_text())
    rounds = json.loads(done.stdout.splitlines()[0])
    figures = {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for name, values in rounds.items()
    }
    version = sys.version.split()[0]
    counts = {key: loss[key] for key in ("emitted", "recorded", "dropped")}
    print(json.dumps({"python": version, "ns": figures, **counts}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
