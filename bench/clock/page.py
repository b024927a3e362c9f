"""Cost of a reading of the clock page, in C and in Rust.

It is measured against the counter alone and clock_gettime(CLOCK_REALTIME), in the same run and in
turn. Meanwhile the page is published anew a hundred times a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from examples import example
from targets import spread

PREFIX = Path(sys.executable).parents[1]
ROUNDS = 15
COUNT = 2_000_000


def _c_program(directory: Path) -> Path:
    """Built as users build theirs."""
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig")}
    words = ["pkg-config", "--cflags", "--libs", "loopscope"]
    flags = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    program = directory / "page"
    source = Path(__file__).with_suffix(".c")
    command = ["cc", "-O2", "-o", str(program), str(source), *flags.stdout.split()]
    subprocess.run(command, check=True)
    return program


def measure() -> dict[str, Any]:
    """By language and form, ns per call over all rounds, and in readings of the counter.

    ``elapsed`` is a ``now`` and an ``elapsed``.
    """
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as name:
        command = [example("page_cost"), str(ROUNDS), str(COUNT), _c_program(Path(name))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {language: _costs(forms) for language, forms in json.loads(done.stdout).items()}


def _costs(forms: dict[str, list[float]]) -> dict[str, Any]:
    counter = forms["counter_ns"]
    times = {
        form: [a / b for a, b in zip(costs, counter, strict=True)] for form, costs in forms.items()
    }
    return {
        **{form: spread(costs) for form, costs in forms.items()},
        "to_counter": {form: spread(each) for form, each in times.items()},
    }
