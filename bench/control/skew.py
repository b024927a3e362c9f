"""Skew of common starts: how far apart four components begin a phase, from their trace events.

Its floor is the same of four processes that only sleep to the same instants.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
ROUNDS = 5
STARTS = 1000
COMPONENTS = 4
# Time between two instants of the sleepers; phases follow each other about as fast.
INTERVAL_NS = 8_000_000


def measure(folder: Path) -> dict[str, Any]:
    """Microseconds from the first to the last beginning: percentiles of each of ROUNDS rounds.

    Rounds take the components and the floor in turn.
    """
    paths = {**os.environ, "PKG_CONFIG_PATH": str(BIN.parent / "lib/pkgconfig")}
    for name, flags in (("starter", "$(pkg-config --cflags --libs loopscope)"), ("sleepers", "")):
        line = f"cc -std=gnu11 -O2 -o {name} {HERE / name}.c {flags}"
        subprocess.run(line, shell=True, check=True, cwd=folder, env=paths)
    rounds: list[dict[str, Any]] = []
    for _ in range(ROUNDS):
        found = _components(folder)
        if "skipped" in found:
            return found
        rounds.append({**found, "floor_us": _floor(folder)})
    return {"starts": STARTS, "components": COMPONENTS, "rounds": rounds}


def _floor(folder: Path) -> dict[str, float]:
    words = [folder / "sleepers", str(COMPONENTS), str(STARTS), str(INTERVAL_NS)]
    done = subprocess.run(words, check=True, capture_output=True)
    woken = np.frombuffer(done.stdout, np.int64).reshape(COMPONENTS, STARTS)
    return _percentiles((woken.max(axis=0) - woken.min(axis=0)).tolist())


def _components(folder: Path) -> dict[str, Any]:
    hosts = [f"h{number}" for number in range(1, COMPONENTS + 1)]
    lines = ["name: skew", f"hosts: [{', '.join(hosts)}]", "components:"]
    lines += [f"  c{h}: {{host: {h}, run: ./starter, ready: phases}}" for h in hosts]
    lines.append("phases:")
    lines += [f"  - {{name: p{n}, timeout: 20s, common_start: 5ms}}" for n in range(STARTS)]
    file = folder / "skew.yaml"
    file.write_text("\n".join(lines) + "\n")
    words = [BIN / "loopscope", "run", file, "--runs", folder / "runs"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"skipped": done.stderr.strip()[-500:]}
    run = folder / "runs/skew/latest"
    begun = defaultdict(list)
    for table in (run / "base/1/timeline/start/begun").glob("*.parquet"):
        rows = pq.read_table(table, columns=["id", "ts"]).to_pydict()
        for number, ts in zip(rows["id"], rows["ts"], strict=True):
            begun[number].append(ts)
    whole = [times for times in begun.values() if len(times) == COMPONENTS]
    if len(whole) != STARTS:
        return {"skipped": f"{len(whole)} of {STARTS} starts were recorded by all components"}
    (starts,) = json.loads((run / "manifest.json").read_text())["starts"]
    reported = [start["skew_ns"] for start in starts.values()]
    return {
        "skew_us": _percentiles([max(times) - min(times) for times in whole]),
        "reported_us": _percentiles([skew for skew in reported if skew is not None]),
        "not_reported": reported.count(None),
    }


def _percentiles(values: list[int]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1e3
        for name, share in at.items()
    }
