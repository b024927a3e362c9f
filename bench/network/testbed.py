"""The test bed of 48 message types on the local testbed: how many targets are met."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from network.bench import HERE, Bench

EXPERIMENT = HERE.parents[1] / "experiments/testbed-48.yaml"
LOOPSCOPE = Path(sys.executable).parent / "loopscope"
DURATION_S = 10
BULK = "100Mbit"

SHOWN = ("type", "receiver", "count", "lost", "max_ns", "err_ns", "target_ns", "verdict")

# Load besides the messages: as a build of some program would, and a bulk transfer.
LOAD = {
    "build": {"host": "c1", "run": "loopscope-host burn", "with": {"kind": "compile"}},
    "bulk": {
        "host": "kind0",
        "run": "loopscope-host ettcp send",
        "with": {"to": "taker", "rate": BULK, "duration": f"{DURATION_S}s"},
    },
    "taker": {"host": "c2", "run": "loopscope-host ettcp receive"},
}


def targets(bench: Bench) -> dict[str, Any]:
    """Targets met, idle and with CPU and network load; rows by type and receiver."""
    folder = bench.directory / "testbed"
    folder.mkdir()
    for table in EXPERIMENT.parent.glob("*.csv"):
        shutil.copy(table, folder)
    idle = yaml.safe_load(EXPERIMENT.read_text())
    loaded = {**idle, "components": {**idle["components"], **LOAD}}
    return {"idle": _run(folder, "idle", idle), "loaded": _run(folder, "loaded", loaded)}


def _run(folder: Path, name: str, experiment: dict[str, Any]) -> dict[str, Any]:
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(experiment, sort_keys=False))
    words: list[str | Path] = [LOOPSCOPE, "run", file, "--json", "--runs", folder / "runs"]
    words += ["--param", f"duration={DURATION_S}s"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        results = json.loads(done.stdout)
        rows = [row for pattern in results["patterns"].values() for row in pattern["rows"]]
    except (ValueError, KeyError):
        return {"skipped": (done.stderr or done.stdout).strip()[-500:]}
    judged = [row for row in rows if row["verdict"] is not None]
    return {
        "targets": len(judged),
        "met": sum(row["verdict"] == "PASS" for row in judged),
        "rows": [{key: row[key] for key in SHOWN} for row in judged],
        "lost": sum(row["lost"] for row in rows),
        "messages": sum(row["count"] for row in rows),
    }
