"""What a reading of the clock page costs, in C and in Rust, beside the counter alone and
clock_gettime(CLOCK_REALTIME), all in the same run and in turn; prints one JSON object. The page is
published anew a hundred times a second meanwhile. The target: 25 ns or less, the counter's reading
included.

Each figure is nanoseconds per call over all rounds; ``elapsed`` is a ``now`` and an ``elapsed``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from targets import spread  # noqa: E402

PREFIX = Path(sys.executable).parents[1]
ROUNDS = 15
COUNT = 2_000_000


def rust_program() -> Path:
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "loopscope-clocksync"]
    command += ["--example", "page_cost", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    artifacts = map(json.loads, built.stdout.splitlines())
    [program] = [made["executable"] for made in artifacts if made.get("executable")]
    return Path(program)


def c_program(directory: Path) -> Path:
    """Built as users build theirs."""
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig")}
    words = ["pkg-config", "--cflags", "--libs", "loopscope"]
    flags = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    program = directory / "page"
    command = ["cc", "-O2", "-o", str(program), str(HERE / "page.c"), *flags.stdout.split()]
    subprocess.run(command, check=True)
    return program


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as name:
        command = [rust_program(), str(ROUNDS), str(COUNT), c_program(Path(name))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {
        language: {form: spread(costs) for form, costs in forms.items()}
        for language, forms in json.loads(done.stdout).items()
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
