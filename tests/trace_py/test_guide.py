"""The guide's page on Python programs: its commands, and its lines of the program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guide"
PAGE = (GUIDE / "python-programs.md").read_text()


def blocks(language: str) -> list[str]:
    """The page's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_pages_lines_are_the_programs() -> None:
    program = (GUIDE / "python-programs/loop.py").read_text()
    shown = blocks("python")
    assert len(shown) == 5
    for block in shown:
        assert block in program


def test_the_pages_commands(tmp_path: Path) -> None:
    if shutil.which("babeltrace2") is None:
        pytest.skip("SKIPPED LOUDLY: needs babeltrace2")
    shutil.copytree(GUIDE, tmp_path / "docs/guide")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    (tmp_path / "build").symlink_to(ROOT / "build")
    script = "set -eu\n" + "".join(blocks("sh"))
    environment = {**os.environ, "LOOPSCOPE_STATE_DIR": str(tmp_path / "state")}
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("output ") == 2
    assert "200 steps, the longest" in done.stdout
