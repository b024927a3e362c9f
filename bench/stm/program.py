"""The program of the measurements: `src/main.rs` says what each kind is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from figures import in_turns

HERE = Path(__file__).parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target")).absolute() / "bench-stm"


ROUNDS = 7
Values = dict[str, dict[str, list[float]]]


def measured(
    figure: str,
    kinds: Mapping[str, tuple[int, str]],
    summary: Callable[[str, Values], dict[str, Any]],
) -> dict[str, Any]:
    """What `in_turns` returns of kinds, each with its number of items, and their summaries.

    `skipped` is a text instead where there is no program.
    """
    command = ["cargo", "build", "--release", "--locked", "--target-dir", TARGET]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"skipped": f"its program cannot be built: {done.stderr[-300:]}"}
    program = TARGET / "release" / "stm-bench"
    every = {kind: partial(_once, program, kind, count) for kind, (count, _) in kinds.items()}
    found = in_turns(figure, ROUNDS, every)
    if "values" in found:
        values: Values = found.pop("values")
        found["kinds"] = {kind: summary(kind, values) for kind in values}
    return found


def _once(program: Path, kind: str, count: int) -> dict[str, float]:
    done = subprocess.run(
        [program, kind, str(count)], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found
