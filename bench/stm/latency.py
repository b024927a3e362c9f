"""Latencies of items from thread to thread: `src/main.rs` says what each kind is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from figures import in_turns
from targets import spread

ROUNDS = 7
HERE = Path(__file__).parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target")).absolute() / "bench-stm"
# By kind: how many items, and the kind that it is compared with.
KINDS = {
    "polled-bare": (20_000, ""),
    "polled-look": (20_000, "polled-bare"),
    "polled-unseen": (20_000, "polled-bare"),
    "polled-iceoryx2": (20_000, "polled-bare"),
    "polled-4k-bare": (20_000, ""),
    "polled-4k-look": (20_000, "polled-4k-bare"),
    "polled-4k-iceoryx2": (20_000, "polled-4k-bare"),
    "blocked-futex": (4000, ""),
    "blocked-get": (4000, "blocked-futex"),
    "blocked-iceoryx2": (4000, "blocked-futex"),
    "blocked-eventfd": (4000, "blocked-futex"),
    "blocked-pipe": (4000, "blocked-futex"),
}
PARTS = ("p50_ns", "p99_ns", "p999_ns")


def measure(folder: Path) -> dict[str, Any]:
    """By kind: percentiles of ns, and what they are more than the floor's of the same round."""
    command = ["cargo", "build", "--release", "--locked", "--target-dir", TARGET]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"skipped": f"its program cannot be built: {done.stderr[-300:]}"}
    program = TARGET / "release" / "stm-bench"
    every = {kind: partial(_once, program, kind, count) for kind, (count, _) in KINDS.items()}
    found = in_turns("stm-latency", ROUNDS, every)
    values = found.pop("values")
    found["kinds"] = {kind: summary(kind, values) for kind in values}
    return found


def summary(kind: str, values: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """The rounds' medians and ranges; ratios are to the floor of the same round."""
    each = values[kind]
    summed: dict[str, Any] = {part: spread(each[part]) for part in PARTS}
    floor = values.get(KINDS[kind][1])
    if floor is not None:
        summed["more_ns"] = spread(
            [mine - its for mine, its in zip(each["p50_ns"], floor["p50_ns"], strict=False)]
        )
        for part in PARTS:
            pairs = zip(each[part], floor[part], strict=False)
            summed[f"{part}_ratio"] = spread([mine / its for mine, its in pairs])
    return summed


def _once(program: Path, kind: str, count: int) -> dict[str, float]:
    done = subprocess.run(
        [program, kind, str(count)], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found
