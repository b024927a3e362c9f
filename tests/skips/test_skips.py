"""In CI a skip fails, unless the list allows it; and the list says why of each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def run(file: str, ci: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / file],
        cwd=ROOT,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("ci", ["", "false"])
def test_elsewhere_skips_are_only_told(ci: str) -> None:
    done = run("skipping.py", ci)
    assert done.returncode == 0 and "1 passed, 3 skipped" in done.stdout, done.stdout


def test_in_ci_an_unlisted_skip_fails() -> None:
    done = run("skipping.py", "true")
    assert done.returncode == 1 and "1 failed, 1 passed, 1 skipped, 1 error" in done.stdout, (
        done.stdout
    )
    assert (
        "tests/skips/skipping.py::test_that_may_not skips (an example of a skip that is not "
        "allowed), and tests/allowed-skips.txt does not allow it"
    ) in done.stdout
    assert "test_of_nothing" in done.stdout
    done = run("skipping_whole.py", "true")
    assert done.returncode != 0 and "an example of a file" in done.stdout, done.stdout


def test_the_list_has_a_test_a_reason_and_a_why_in_each_line() -> None:
    for line in (ROOT / "tests" / "allowed-skips.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            fields = [field.strip() for field in line.split("|")]
            assert len(fields) == 3 and all(fields), line
            file = ROOT / fields[0].split("::")[0]
            if fields[0].startswith("tests/") and "*" not in str(file):
                assert file.exists(), f"{line}: no such file"


def test_rust_tests_skip_where_the_list_is_asked() -> None:
    """Not by a line of their own and an early return, which counts as passed."""
    own = [
        file.relative_to(ROOT)
        for file in (ROOT / "crates").rglob("*.rs")
        if 'eprintln!("SKIPPED' in file.read_text(encoding="utf-8")
    ]
    assert own == []
