"""From a finished run directory to its results on the terminal and its report."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from loopscope.analysis import Results, analyse
from loopscope.report import render_terminal, write_report
from loopscope.timeline import open_run


def judge(path: Path) -> tuple[Results, Path]:
    """Results of a run whose tables exist, and the report that was written of them."""
    run = open_run(path)
    results = analyse(run)
    return results, write_report(run, results)


def show(results: Results, report: Path) -> None:
    """Prints table, verdicts, loss and the report's place."""
    console = Console(highlight=False)
    render_terminal(results, console)
    here = Path.cwd()
    place = report.relative_to(here) if report.is_relative_to(here) else report
    console.print(f"report: {place}", markup=False, soft_wrap=True)
