"""Barriers and memory of the controller, with many agents that answer at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def measure(folder: Path) -> dict[str, Any]:
    """Seconds of each barrier, and the peak memory of the controller's process."""
    done = subprocess.run(
        [sys.executable, "-m", "control.controller", folder],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    results: dict[str, Any] = json.loads(done.stdout)
    return results
