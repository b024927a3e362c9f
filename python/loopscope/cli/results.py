"""The outcome of a run on the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import typer
from rich.console import Console

from loopscope.analysis import SweepResults
from loopscope.pipeline import Judged
from loopscope.report import render_sweep, render_terminal
from loopscope.report.interval_csv import write_csv


def show(judged: Judged, form: Literal["text", "json", "csv"] = "text") -> None:
    """Prints table, verdicts, loss and the report's place.

    Or the results as JSON, or the table of paths and hops as CSV. Prints on stderr what could not
    be made or written.
    """
    if form == "json":
        typer.echo(judged.results.to_json(), nl=False)
    elif form == "csv":
        write_csv(judged.results, sys.stdout)
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
