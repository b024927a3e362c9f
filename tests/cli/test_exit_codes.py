"""What the verdict says goes before analyses that cannot be made."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import expectation, pipeline, write_sweep
from typer.testing import CliRunner

from loopscope import pipeline as order
from loopscope.cli import app
from loopscope.graph.stored_analyses import Made

ROOT = Path(__file__).resolve().parents[2]


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


def test_failed_points_are_told_before_an_analysis_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [({"n": n}, pipeline(tmp_path / "sweep", messages=20)) for n in (1, 2)]
    sweep = write_sweep(points, {"n=2": "source on h1 ended with exit status 3"})
    monkeypatch.setattr("loopscope.pipeline.make_timelines", lambda path, point, progress: None)

    def run(*asked: Any) -> order.Judged:
        judged = order.report(sweep, None, progress=asked[3])
        judged = dataclasses.replace(judged, analyses=Made([], ["mine: there is no such column"]))
        assert not judged.whole
        return judged

    monkeypatch.setattr("loopscope.pipeline.run", run)
    file = tmp_path / "x.yaml"
    file.write_text((ROOT / "experiments/pipeline.yaml").read_text())
    done = CliRunner().invoke(app, ["run", str(file)])
    assert done.exit_code == 4, done.output
    assert "1 of 2 points failed: n=2" in done.output and "no such column" in done.output
