"""What `loopscope report` takes on the run of `make demo`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from targets import spread

from loopscope.cli.exits import FAIL, PASS, UNKNOWN
from timeline.recorded import BENCH, Recorded, run

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
EXPERIMENT = BENCH.parent / "experiments/pipeline.yaml"
ROUNDS = 5


def measure(recorded: Recorded) -> dict[str, Any]:
    """Seconds from the command's start to its end, or why there is no run."""
    runs = recorded.directory / "runs"
    words = [LOOPSCOPE, "run", EXPERIMENT, "--runs", runs]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    latest = runs / "pipeline" / "latest"
    if not latest.exists():
        return {"skipped": (ran.stderr or ran.stdout).strip()[-500:]}
    # Whatever the verdict is.
    rounds = [run([LOOPSCOPE, "report", latest], good=(PASS, FAIL, UNKNOWN)) for _ in range(ROUNDS)]
    return {
        "seconds": spread([each.seconds for each in rounds]),
        "cpu_s": spread([each.cpu_s for each in rounds]),
        "peak_bytes": max(each.peak_bytes for each in rounds),
    }
