"""Programs of the bench's that are examples of crates."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def example(name: str, crate: str = "loopscope-clocksync") -> Path:
    """One of a crate's, built."""
    command = ["-p", crate, "--example", name, "--message-format=json"]
    artifacts = map(json.loads, build(*command).splitlines())
    [program] = [made["executable"] for made in artifacts if made.get("executable")]
    return Path(program)


def build(*words: str) -> str:
    """What `cargo build` says, in an optimised build."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", *words]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return built.stdout
