"""docs/guide/instrument-a-debian-program.md, command by command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/instrument-a-debian-program.md").read_text()
BYTES = 64 << 20


def shell(machine: Machine, script: str) -> subprocess.CompletedProcess[str]:
    """As a person's shell would run it, but for the end at the first mistake."""
    return subprocess.run(
        ["bash", "-c", f"set -eu\n{script}"],
        cwd=machine.directory,
        env={**machine.environment, "VIRTUAL_ENV": "", "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    for tool in ("apt-get", "dpkg-source", "patch"):
        if shutil.which(tool) is None:
            pytest.skip(f"SKIPPED LOUDLY: the guide is for Debian, and here is no {tool}")
    (home / ".venv").symlink_to(Path(sys.executable).parents[1])
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    activate, source, *rest = blocks
    fetched = shell(machine, activate + source)
    unpacked = list((home / "debian-pv").glob("pv-*/"))
    if fetched.returncode != 0 and not any("pv-1.6" in path.name for path in unpacked):
        reason = (fetched.stderr.strip() or fetched.stdout.strip()).rpartition("\n")[2]
        pytest.skip(f"SKIPPED LOUDLY: pv 1.6's source package cannot be fetched here: {reason}")
    assert fetched.returncode == 0, fetched.stderr
    # The second half begins where the first one ended.
    done = shell(machine, f"{activate}cd debian-pv/pv-1.6*/\n{''.join(rest)}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr.partition("loopscope")[0], done.stderr

    # What pv moved, by its own account of each turn, is what went in.
    turns = re.search(rf"^(\d+) turns moved {BYTES} bytes$", done.stdout, re.MULTILINE)
    assert turns, done.stdout
    tables = done.stdout[turns.end() :], done.stdout.partition("a turn took")[2][: turns.start()]
    moved = sum(int(n) for n in re.findall(r"^ +[\d,]+ +(\d+)(?: #*)?$", tables[0], re.MULTILINE))
    nothing = re.search(r"(\d+) moved nothing", tables[0])
    assert nothing and moved + int(nothing[1]) == int(turns[1])
    said = done.stderr.replace(" ", "")
    assert f"{turns[1]}recorded+0dropped" in said
    for shown in ("pv:transfer", "interval-start", "histogram-add", "src/pv/loop.c:"):
        assert shown in done.stdout
