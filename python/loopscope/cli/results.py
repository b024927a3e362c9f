"""From a finished run directory to its results on the terminal and its report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import typer
from rich.console import Console

from loopscope.analysis import AnalysisError, Results, SweepResults, analyse, analyse_sweep
from loopscope.experiment import from_manifest
from loopscope.report import render_sweep, render_terminal, write_report, write_sweep
from loopscope.report.plots import Recorder
from loopscope.timeline import open_run, read_manifest


@dataclass
class Judged:
    """What a run came to. What of it could not be written, is no reason not to say it."""

    results: Results | SweepResults
    folder: Path
    """Where the report and the results go."""
    unwritten: list[str] = field(default_factory=list)
    """Files, and why not."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Takes down what cannot be written."""
        try:
            yield
        except OSError as error:
            place = error.filename or self.folder
            self.unwritten.append(f"cannot write {place}: {error.strerror or error}")

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / "report.html"


def judge(path: Path, point: str | None = None) -> Judged:
    """Results of a run whose tables exist; their report is written.

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
        judged = Judged(sweep, path)
        with judged.writing():
            write_sweep(path, sweep, recorder.drawn(sweep))
        return judged
    run = open_run(path, point)
    results = analyse(run)
    recorder.see(run, results)
    judged = Judged(results, run.output)
    with judged.writing():
        write_report(run, results, own=recorder.drawn(None))
    return judged


def show(judged: Judged, as_json: bool) -> None:
    """Prints table, verdicts, loss and the report's place, or the results as JSON; on stderr what
    could not be written."""
    if as_json:
        typer.echo(judged.results.to_json(), nl=False)
    else:
        _show(judged)
    for problem in judged.unwritten:
        typer.echo(f"loopscope: {problem}", err=True)


def _show(judged: Judged) -> None:
    console = Console(highlight=False)
    if isinstance(judged.results, SweepResults):
        render_sweep(judged.results, console)
    else:
        render_terminal(judged.results, console)
    if judged.report.exists() and not judged.unwritten:
        here, place = Path.cwd(), judged.report
        place = place.relative_to(here) if place.is_relative_to(here) else place
        console.print(f"report: {place}", markup=False, soft_wrap=True)
