"""The outcome of a run on the terminal."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from loopscope.analysis import SweepResults
from loopscope.pipeline import Judged
from loopscope.report import render_sweep, render_terminal


def show(judged: Judged, as_json: bool) -> None:
    """Prints table, verdicts, loss and the report's place, or the results as JSON; on stderr what
    could not be made or written."""
    if as_json:
        typer.echo(judged.results.to_json(), nl=False)
    else:
        _show(judged)
    lines = [f"loopscope: {problem}" for problem in judged.unwritten]
    lines += [f"loopscope: {note}" for note in judged.notes]
    if judged.analyses is not None:
        lines += [f"loopscope: {note}" for note in judged.analyses.notes]
        lines += judged.analyses.mistakes
    for line in lines:
        typer.echo(line, err=True)


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
