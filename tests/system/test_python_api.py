"""Experiments that Python runs: by `loopscope.run`, in a notebook's event loop, by pytest."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from machine import ROOT, Machine

import loopscope as ls

pytestmark = pytest.mark.full

PARAMS = {"count": 200}


@pytest.fixture
def here(root: None, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's directory as the current one, with the programs and their ledger."""
    for name in ("LOOPSCOPE_STATE_DIR", "PATH"):
        monkeypatch.setenv(name, machine.environment[name])
    monkeypatch.chdir(machine.directory)
    return machine.directory


def short() -> ls.Experiment:
    """The shipped pipeline with few messages and without a deadline that a busy machine misses."""
    pipeline = ls.Experiment.from_file(ROOT / "experiments" / "pipeline.yaml")
    params = {**pipeline.keys["params"], **PARAMS}
    trace = {"user": ["pipe:*"], "kernel": "off"}
    return pipeline.replace(params=params, trace=trace, expect=["loop.lost == 0", "loop.p99 < 30s"])


def test_an_experiment_built_in_python_is_stored_with_its_run(here: Path) -> None:
    experiment = short()
    assert ls.check(experiment) == []
    run = ls.run(experiment)
    assert isinstance(run, ls.Run) and run.directory.parent == here / "runs" / "pipeline"
    run.assert_passed()
    assert (run.directory / "experiment.yaml").read_text() == experiment.to_yaml()
    assert run.report.exists() and len(run.paths["loop"].messages.to_pandas()) == 200
    table = ls.runs()
    assert table.verdict.tolist() == ["PASS"] and table.directory[0] == Path("runs") / (
        run.directory.relative_to(here / "runs")
    )


def test_a_run_in_an_event_loop(here: Path) -> None:
    """As in a notebook, whose cells run in one."""

    async def cell() -> ls.Run | ls.Sweep:
        return ls.run(short())

    asyncio.run(cell()).assert_passed()


def test_a_run_that_fails_raises(here: Path) -> None:
    components = {"a": {"host": "h1", "run": "false", "start": "run", "ready": {"exit": 0}}}
    phases = [{"name": "run", "timeout": "5s"}]
    failing = ls.Experiment(name="bad", hosts=["h1"], components=components, phases=phases)
    with pytest.raises(ls.RunFailed, match="a on h1"):
        ls.run(failing)
    assert ls.runs().state.tolist() == ["failed"]


def test_pytest_runs_an_experiment_once(here: Path) -> None:
    short().save(here / "pipeline.yaml")
    (here / "test_loop.py").write_text(
        """
def test_meets_its_deadlines(loopscope_run):
    loopscope_run("pipeline.yaml").assert_passed()

def test_has_every_message(loopscope_run):
    messages = loopscope_run("pipeline.yaml").paths["loop"].messages
    assert messages.count().to_pandas() == 200
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "loopscope.pytest_plugin"]
    command += ["--rootdir", ".", "--loopscope-runs", "runs", "test_loop.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout and len(ls.runs()) == 1
