"""What clock probes cost at the default rate, and how noisy their stamps are: probes.rs."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from examples import example

SECONDS = 10


def measure() -> dict[str, Any]:
    """Idle and busy, or why it was skipped."""
    if os.geteuid() != 0:
        return {"skipped": "network namespaces need root"}
    done = subprocess.run(
        [example("probes"), str(SECONDS)], check=True, stdout=subprocess.PIPE, text=True
    )
    results: dict[str, Any] = json.loads(done.stdout)
    return results
