"""What all figures of the network share: programs, CPUs, a directory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
HOST = Path(sys.executable).parents[1] / "bin/loopscope-host"

# What is measured has a CPU to itself; all else shares the first.
OTHER_CPU = 0
MEASURED_CPU = max(os.sched_getaffinity(0))


@dataclass
class Bench:
    directory: Path
    """Its own; removed at the end."""

    def log(self, name: str) -> TextIO:
        """A file for what a program says while it runs."""
        return (self.directory / f"{name}.log").open("w")

    def build(self, name: str) -> Path:
        binary = self.directory / name
        if not binary.exists():
            subprocess.run(["cc", "-O2", "-o", binary, HERE / f"{name}.c"], check=True)
        return binary
