"""Synthetic runs, in a folder like the one that a user works in."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "analysis"))


def described(run: Path, **entries: object) -> Path:
    """Adds entries to a run's manifest, and a link to it as the latest run."""
    file = run / "manifest.json"
    manifest = json.loads(file.read_text()) | {"run": run.name, "status": "complete", **entries}
    file.write_text(json.dumps(manifest))
    (run.parent / "latest").symlink_to(run.name)
    return run


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `experiments/`, a run in `runs/pipeline` and a sweep in `runs/sweep`."""
    from synthetic_run import pipeline, with_tables, write_sweep

    from loopscope.timeline import open_run, points_of

    home = tmp_path_factory.mktemp("home")
    shutil.copytree(ROOT / "experiments", home / "experiments")
    run = pipeline(home / "runs/pipeline/20260102T030405Z-aaaaaa").write()
    described(run, created="2026-01-02T03:04:05+00:00", verdict="PASS")
    swept = home / "runs/sweep/20260102T030406Z-bbbbbb"
    points = [({"delay": each}, pipeline(swept, messages=50)) for each in ("0ms", "10ms")]
    described(write_sweep(points, {}), created="2026-01-02T03:04:06+00:00", verdict="PASS")
    for each in (run, swept):
        for point in points_of(each):
            with_tables(open_run(each, point))
    return home


@pytest.fixture
def home(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the synthetic runs, as the current one. Tests only add files."""
    monkeypatch.chdir(stored)
    return stored
