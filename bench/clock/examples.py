"""Programs of the bench's that are examples of crates."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def example(name: str) -> Path:
    """One of `loopscope-clocksync`'s, built."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "loopscope-clocksync"]
    command += ["--example", name, "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    artifacts = map(json.loads, built.stdout.splitlines())
    [program] = [made["executable"] for made in artifacts if made.get("executable")]
    return Path(program)
