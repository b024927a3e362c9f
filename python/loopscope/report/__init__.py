"""Results for people: on the terminal, as one self-contained page, as figure files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from loopscope.analysis import Results
    from loopscope.timeline import Run

FIGURES = ("response-time", "response-histogram", "hops", "clock")
"""What can be drawn to files, each as `figures/<name>.svg` and `.pdf`. A run with several paths has
`<name>-<path>` for all but `clock`."""


def render_terminal(results: Results, console: Console | None = None) -> None:
    """Prints the results; in colour only where the console is a terminal."""
    from loopscope.report.terminal import render

    render(results, console)


def write_report(run: Run, results: Results, figures: Iterable[str] = FIGURES) -> Path:
    """Writes `report.html` and the named `figures/`, returns the page's path.

    Raises `ValueError` for a figure that is not in `FIGURES`, `OSError` where the run directory
    cannot be written.
    """
    if unknown := set(figures) - set(FIGURES):
        raise ValueError(f"no figure {', '.join(sorted(unknown))}; there is: {', '.join(FIGURES)}")
    from loopscope.report.page import page
    from loopscope.report.series import read_drawings

    drawings = read_drawings(run, results)
    target = run.output / "report.html"
    target.write_text(page(run, results, drawings), encoding="utf-8")
    if wanted := [name for name in FIGURES if name in set(figures)]:
        from loopscope.report.files import draw_files

        draw_files(drawings, run.output / "figures", wanted)
    return target
