"""SIGKILL of the controller or of an agent at any point, then `reset`: all is as before.

Points are the ledger's writes, the calls by which agents change the machine, and the calls of the
controller to agents, from the construction of the testbed to its removal.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from effort import SOAK, cases
from machine import BIN, ROOT, preloaded

POINTS = cases(20, 500)


@pytest.mark.usefixtures("root")
def test_killed_at_any_point(tmp_path: Path, cgroup: Path | None) -> None:
    preloaded("killed_anywhere", tmp_path)
    seed = secrets.token_hex(4) if SOAK else "1"
    alone = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]
    program = [sys.executable, str(ROOT / "tests" / "system" / "killed_anywhere.py")]
    if cgroup is not None:
        alone = ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(cgroup), *alone]
    done = subprocess.run(
        [*alone, *program, tmp_path, seed, str(POINTS)],
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
