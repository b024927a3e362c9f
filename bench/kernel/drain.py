"""Events a second that are taken out of the kernel's buffers without a loss."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from kernel import runs

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
    """By rate: events that were made and dropped, bytes of one, seconds of `loopscope run`."""
    program = runs.compiled("calls.c", folder)
    found = []
    for rate in RATES:
        print(f"  kernel-drain, {rate} events/s for {SECONDS} s", file=sys.stderr, flush=True)
        of_rate = folder / str(rate)
        of_rate.mkdir()
        experiment = of_rate / "drain.yaml"
        experiment.write_text(EXPERIMENT.format(program=program, rate=rate // 2, seconds=SECONDS))
        began = time.monotonic()
        counts = runs.recorded(runs.results_of(experiment))["classes"]["syscall"]
        took = time.monotonic() - began
        pages = (of_rate / "runs/drain/latest").glob("base/*/hosts/*/kernel/syscall/*")
        found.append(
            {
                "asked": rate,
                "made": counts["emitted"] / SECONDS,
                "dropped": counts["dropped"],
                "event_bytes": round(
                    sum(each.stat().st_size for each in pages) / counts["recorded"], 1
                ),
                "seconds": round(took, 2),
            }
        )
        shutil.rmtree(of_rate)
    return {"seconds": SECONDS, "rates": found}
