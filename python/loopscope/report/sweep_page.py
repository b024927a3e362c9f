"""A sweep's results as one HTML file: the table of points, the figures, then each point's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from loopscope.analysis import SweepResults
from loopscope.analysis.quantity_text import number
from loopscope.report import analyses
from loopscope.report.html import PageFigures, environment, render_page
from loopscope.report.page import own_figures
from loopscope.report.plots import Drawn
from loopscope.report.sweep_rows import columns, parameters, point_rows
from loopscope.timeline import open_run, points_of


def sweep_page(path: Path, sweep: SweepResults, own: Sequence[Drawn]) -> str:
    figures = PageFigures()
    there = points_of(path)
    extent = f"{number(len(sweep.points))} points"
    for status, count in Counter(point.status for point in sweep.without).items():
        extent += f", {number(count)} {status}"
    return render_page(
        "sweep.html",
        sweep.to_dict(),
        figures,
        experiment=sweep.experiment.name,
        run=sweep.run,
        extent=extent,
        verdict=sweep.verdict,
        own=own_figures(own, figures),
        parameters=parameters(sweep),
        columns=columns(sweep),
        points=point_rows(sweep),
        analyses=analyses.section(path),
        environment=environment(open_run(path, there[0]).environment if there else {}),
    )
