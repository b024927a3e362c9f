"""`report --experiment`: a run is judged by an edited file, and by its own again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

sys.path.append(str(Path(__file__).resolve().parents[1] / "graph"))
from recorded_run import write_run  # noqa: E402

from loopscope.cli import app  # noqa: E402
from loopscope.timeline import open_run  # noqa: E402


def report(run: Path, *words: str | Path) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["report", str(run), *map(str, words), "--json"])
    return done.exit_code, json.loads(done.stdout) if done.stdout else {"said": done.stderr}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def edited(run: Path, *replacements: tuple[str, str]) -> Path:
    text = (run / "experiment.yaml").read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    file = run.parent / "edited.yaml"
    file.write_text(text)
    return file


def test_a_run_is_judged_again_without_measuring_again(run: Path) -> None:
    _, before = report(run)
    manifest = (run / "manifest.json").read_bytes()
    file = edited(
        run,
        ("loop.p99 < 5ms", "first.count < 10, first.count >= 1"),
        ("    loop:", "    first:"),
        ("node/pipe:received, node/pipe:sent, sink/pipe:received]", "node/pipe:received]"),
    )
    code, found = report(run, "--experiment", file)
    assert code == 1, found
    assert [(each["text"], each["verdict"]) for each in found["expectations"]] == [
        ("first.count < 10", "FAIL"),
        ("first.count >= 1", "PASS"),
    ]
    assert set(found["paths"]) == {"first"}
    assert any(f"judged by {file}" in each for each in found["problems"])
    # All that looks at the run from now on does so by the same file.
    assert set(open_run(run).path_tables) == {"first"}
    assert json.loads((run / "results.json").read_text()) == found
    assert (run / "manifest.json").read_bytes() == manifest
    assert report(run)[1] == before
    assert set(open_run(run).path_tables) == {"loop"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("loop.p99 < 5ms", "loop.p99 < 5", "5"),
        ("source", "camera", "is of camera, which is no component of the run"),
        ("hosts: [h1", "params: {x: {default: 1}}\nsweep: {x: [1, 2]}\nhosts: [h1", "sweep"),
    ],
)
def test_a_file_that_is_wrong_or_another_changes_nothing(
    run: Path, old: str, new: str, said: str
) -> None:
    _, before = report(run)
    code, found = report(run, "--experiment", edited(run, (old, new)))
    assert code == 2 and said in found["said"]
    assert report(run)[1] == before
