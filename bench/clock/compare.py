"""Probe logs through loopscope's estimator and through others' published rules.

``compare.py`` alone takes virtual logs: all scenarios of crates/clocksync/tests/virtual_time.txt or
those named. ``compare.py HOSTS REFERENCE SEED`` takes those of a run: its ``hosts/`` directory, the
reference's name and the seed of its synthetic clocks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPARE = ["cargo", "run", "--release", "--locked", "--quiet"]
COMPARE += ["-p", "loopscope-clocksync", "--example", "compare", "--"]


def main() -> int:
    words = [str(Path(word).resolve()) if Path(word).is_dir() else word for word in sys.argv[1:]]
    return subprocess.run([*COMPARE, *words], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
