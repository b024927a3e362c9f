"""Events a second that are taken out of the kernel's buffers without a loss."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
SECONDS = 5
# Events a second of one processor: two for each call.
RATES = (200_000, 500_000, 1_000_000, 1_500_000, 2_000_000)
EXPERIMENT = """\
name: drain
hosts: [h1]
components:
  calls: {{host: h1, run: taskset -c 0 {program} {rate} {seconds}, start: run, ready: {{exit: 0}}}}
phases:
  - {{name: run, measured: true, timeout: 60s}}
trace: {{kernel: ["syscall:*"]}}
"""


def measure(folder: Path) -> dict[str, Any]:
    """By rate: events that were made and dropped, and the time that `loopscope run` took."""
    program = folder / "calls"
    source = Path(__file__).parent / "calls.c"
    subprocess.run(["cc", "-O2", source, "-o", program], check=True)
    found = []
    for rate in RATES:
        text = EXPERIMENT.format(program=program, rate=rate // 2, seconds=SECONDS)
        (folder / "drain.yaml").write_text(text)
        words = [
            LOOPSCOPE,
            "run",
            folder / "drain.yaml",
            "--runs",
            folder / f"runs-{rate}",
            "--json",
        ]
        began = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        took = time.monotonic() - began
        if not done.stdout:
            return {"skipped": done.stderr[-500:]}
        kernel = json.loads(done.stdout)["kernel"]
        if kernel["unrecorded"]:
            return {"skipped": str(kernel["unrecorded"])}
        counts = kernel["classes"]["syscall"]
        found.append(
            {
                "asked": rate,
                "made": counts["emitted"] / SECONDS,
                "dropped": counts["dropped"],
                "seconds": round(took, 2),
            }
        )
    return {"seconds": SECONDS, "rates": found}
