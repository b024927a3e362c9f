"""Properties of the core that only a look inside shows (tests/c/inside.c)."""

from __future__ import annotations

from pathlib import Path

from core import build, run

STREAMS = "frequency 3000000000\nstream 0 main normal\nenable *\n"


def test_patterns_and_counters_that_go_back(tmp_path: Path) -> None:
    done = run(build(tmp_path, "inside", includes="interval.c"), streams=STREAMS)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
