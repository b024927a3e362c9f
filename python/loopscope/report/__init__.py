"""Results for people: on the terminal, as one self-contained page, as figure files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loopscope.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from loopscope.analysis import Results, SweepResults
    from loopscope.report.plots import Drawn
    from loopscope.timeline import Run


def render_terminal(results: Results, console: Console | None = None) -> None:
    """Prints the results; in colour only where the console is a terminal."""
    from loopscope.report.terminal import render

    render(results, console)


def render_sweep(results: SweepResults, console: Console | None = None) -> None:
    """Prints a sweep's table and verdict."""
    from loopscope.report.sweep_terminal import render

    render(results, console)


def write_report(run: Run, results: Results, own: Sequence[Drawn] = ()) -> Path:
    """Writes `report.html`, and the experiment's `own` figures besides as files.

    Returns the page's path. `loopscope.report.catalogue` draws the page's figures as files.

    Raises `OSError` where the run directory cannot be written.
    """
    from loopscope.report.page import page

    target = run.output / "report.html"
    write_whole(target, page(run, results, own))
    _draw_own(own, run.output)
    return target


def write_sweep(path: Path, results: SweepResults, own: Sequence[Drawn]) -> Path:
    """Writes `report.html` and `figures/` of a sweep, returns the page's path.

    Raises `OSError` where the run directory cannot be written.
    """
    from loopscope.report.sweep_page import sweep_page

    target = path / "report.html"
    write_whole(target, sweep_page(path, results, own))
    _draw_own(own, path)
    return target


def show_analyses(run: Path) -> None:
    """Puts the analyses that a run holds into its `report.html`, if it has one.

    Raises `OSError` where that cannot be written.
    """
    from loopscope.report.analyses import fill

    fill(run)


def _draw_own(own: Sequence[Drawn], output: Path) -> None:
    if own:
        from loopscope.report.experiment_charts import draw_own

        draw_own(own, output / "figures")
