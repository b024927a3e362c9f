"""docs/guide/clock.md: its commands, and its lines of the programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from loopscope_trace import clock
from page import Page, Words
from readers import ROOT

GUIDE = ROOT / "docs/guide"
TEXT = (GUIDE / "clock.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_guides_lines_are_the_programs() -> None:
    [c] = blocks("c")
    assert c in (GUIDE / "clock/tick.c").read_text()
    [python] = blocks("python")
    assert python in (GUIDE / "clock/tick.py").read_text()
    # The crate's own example, which cargo runs.
    [rust] = blocks("rust")
    example = "".join(f"//! {line}\n" for line in rust.splitlines())
    assert example in (ROOT / "crates/clock/src/lib.rs").read_text()


def test_the_guides_commands(tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    now = clock.now().counter
    page.publish(Words(anchor=now, expires=now + (1 << 44)))
    shutil.copytree(GUIDE, tmp_path / "docs/guide")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", "set -eu\n" + "".join(blocks("sh"))],
            cwd=tmp_path,
            env={**os.environ, "VIRTUAL_ENV": "", "LOOPSCOPE_CLOCK": str(page.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"it is (\d+) to (\d+) ns\na reading takes (\d+) ns", done.stdout)
    assert len(found) == 2, done.stdout
    assert all(0 < int(earliest) < int(latest) for earliest, latest, _ in found)

    page.retire()
    done = run()
    assert done.returncode == 1
    assert done.stdout == "the time is not known\n"
