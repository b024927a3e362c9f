"""What `loopscope.run` hands to the pipeline, and what it makes of the outcome."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import loopscope as ls
from loopscope import pipeline
from loopscope.analysis import analyse, analyse_sweep
from loopscope.control import Interruption, RunInterrupted, Silent


@pytest.fixture
def measured(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every run ends in the stored one, of a sweep in the stored sweep; what was asked for."""
    asked: dict[str, Any] = {}

    def run(plan: Any, source: bytes, runs: Path, progress: Any, stop: bool) -> pipeline.Judged:
        asked.update(plan=plan, source=source, runs=runs, stop=stop)
        path = home / "runs" / ("sweep" if plan.points else "pipeline") / "latest"
        results = analyse_sweep(path) if plan.points else analyse(ls.open_run(path))
        return pipeline.Judged(results, path, unwritten=["cannot write report.html: disk full"])

    monkeypatch.setattr(pipeline, "run", run)
    return asked


def test_parameters_are_those_of_the_command(measured: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="cannot write report.html: disk full"):
        run = ls.run("experiments/pipeline.yaml", params={"count": 100}, folder="elsewhere")
    assert isinstance(run, ls.Run) and run.verdict == "PASS"
    assert measured["plan"].params["count"] == 100 and measured["runs"] == Path("elsewhere")
    assert measured["source"] == Path("experiments/pipeline.yaml").read_bytes()


def test_a_sweep_is_a_mapping_of_its_points(measured: dict[str, Any]) -> None:
    with pytest.warns(UserWarning):
        sweep = ls.run(
            "experiments/pipeline-delay-sweep.yaml", params={"delay": ["0ms", "10ms"]}, stop=True
        )
    assert isinstance(sweep, ls.Sweep) and len(sweep) == 2
    assert [point.params["delay"] for point in measured["plan"].points] == ["0ms", "10ms"]
    assert measured["stop"]


def test_mistakes_run_nothing(measured: dict[str, Any]) -> None:
    with pytest.raises(ls.ExperimentErrors, match="did you mean count"):
        ls.run("experiments/pipeline.yaml", params={"cont": 100})
    assert not measured


def test_work_has_a_thread_of_its_own_in_an_event_loop() -> None:
    """Its loop is another one, and an interrupt of the waiting thread cancels it."""

    async def work() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def cell() -> str:
        return Interruption(Silent()).run(work)

    assert asyncio.run(cell()) != threading.main_thread().name
    assert Interruption(Silent()).run(work) == threading.main_thread().name


def test_an_interrupt_in_an_event_loop_collects_what_was_measured() -> None:
    collected = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            collected.append("measured")

    interruption = Interruption(Silent())

    async def cell() -> None:
        # As a notebook's kernel has it; asyncio.run would cancel the cell instead.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interruption.run(work)

    with pytest.raises(RunInterrupted):
        asyncio.run(cell())
    assert collected == ["measured"] and interruption.asked


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_before_the_event_loop_exists_is_not_lost(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while Python makes the loop; the work does not begin, and nothing is left over."""
    make = asyncio.events.new_event_loop

    def interrupted() -> asyncio.AbstractEventLoop:
        os.kill(os.getpid(), number)
        return make()

    monkeypatch.setattr(asyncio.events, "new_event_loop", interrupted)
    began = []

    async def work() -> None:
        began.append(True)

    before = signal.getsignal(number)
    interruption = Interruption(Silent())
    with pytest.raises(RunInterrupted):
        interruption.run(work)
    assert interruption.asked and not began and signal.getsignal(number) is before
