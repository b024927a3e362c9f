"""From a finished run directory to its results on the terminal and its report."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from loopscope.analysis import AnalysisError, Results, SweepResults, analyse, analyse_sweep
from loopscope.experiment import from_manifest
from loopscope.report import render_sweep, render_terminal, write_report, write_sweep
from loopscope.report.plots import Recorder
from loopscope.timeline import open_run, read_manifest


def judge(path: Path, point: str | None = None) -> tuple[Results | SweepResults, Path]:
    """Results of a run whose tables exist, and the report that was written of them.

    ``point`` asks for that point of a sweep alone, and its own report.
    """
    manifest = read_manifest(path)
    try:
        experiment = from_manifest(manifest["experiment"])
    except (KeyError, ValueError) as error:
        raise AnalysisError(f"{path / 'manifest.json'}: experiment: {error}") from error
    recorder = Recorder(experiment)
    if experiment.points and point is None:
        sweep = analyse_sweep(path, recorder.see)
        return sweep, write_sweep(path, sweep, recorder.drawn(sweep))
    run = open_run(path, point)
    results = analyse(run)
    recorder.see(run, results)
    return results, write_report(run, results, own=recorder.drawn(None))


def show(results: Results | SweepResults, report: Path) -> None:
    """Prints table, verdicts, loss and the report's place."""
    console = Console(highlight=False)
    if isinstance(results, SweepResults):
        render_sweep(results, console)
    else:
        render_terminal(results, console)
    here = Path.cwd()
    place = report.relative_to(here) if report.is_relative_to(here) else report
    console.print(f"report: {place}", markup=False, soft_wrap=True)
