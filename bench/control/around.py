"""Seconds of `loopscope run` that are not those of the measured phase."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from targets import spread

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments/pipeline.yaml"
ROUNDS = 5
COUNT = 1000


def measure(folder: Path) -> dict[str, Any]:
    """The shipped pipeline, from the command's start to its end, less its phase ``run``."""
    rounds = []
    for _ in range(ROUNDS):
        words = [LOOPSCOPE, "run", EXPERIMENT, "-p", f"count={COUNT}", "--runs", folder / "runs"]
        began = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        try:
            manifest = json.loads((folder / "runs/pipeline/latest/manifest.json").read_text())
            measured = manifest["phases"][0]["run"]
        except (OSError, KeyError, IndexError):
            return {"skipped": done.stderr.strip()[-500:]}
        rounds.append(seconds - measured)
    return {"seconds": spread(rounds)}
