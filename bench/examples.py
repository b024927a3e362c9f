"""Programs of the bench's that are examples of crates."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def example(name: str, crate: str = "loopscope-clocksync") -> Path:
    """One of a crate's, built."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", crate]
    command += ["--example", name, "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    artifacts = map(json.loads, built.stdout.splitlines())
    [program] = [made["executable"] for made in artifacts if made.get("executable")]
    return Path(program)
