"""What the verdict says goes before analyses that cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import expectation, pipeline
from typer.testing import CliRunner

from loopscope.cli import app


@pytest.mark.parametrize(("lose_every", "code"), [(0, 2), (10, 1)])
def test_a_verdict_goes_before_an_analysis_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose_every: int, code: int
) -> None:
    expect = [expectation("loop.lost == 0", "lost", "==", 0)]
    run = pipeline(tmp_path / "run", messages=50, lose_every=lose_every, expect=expect).write()
    # The run has tables and no streams.
    monkeypatch.setattr("loopscope.pipeline.make_timelines", lambda path, point, progress: None)
    whole = CliRunner().invoke(app, ["report", str(run)])
    assert whole.exit_code == (1 if lose_every else 0), whole.output
    (run / "analysis" / "mine").mkdir(parents=True)
    (run / "analysis" / "mine" / "graph.json").write_text("{}")
    done = CliRunner().invoke(app, ["report", str(run)])
    assert done.exit_code == code, done.output
    assert "not a graph's definition" in done.output
