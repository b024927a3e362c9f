"""A sweep's results as one HTML file: the table of points, the figures, then each point's own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from loopscope.analysis import PointResult, SweepResults
from loopscope.analysis.quantity import number
from loopscope.analysis.sweep import FAILED
from loopscope.report import analyses
from loopscope.report.page import (
    badge,
    environment_table,
    expectation_table,
    interval_table,
    network_tables,
    own_figures,
    problem_list,
    shell,
    value_table,
)
from loopscope.report.plots import Drawn
from loopscope.report.rows import loss_line
from loopscope.report.sweep_rows import PointRow, columns, parameters, point_rows
from loopscope.timeline import open_run, points_of


def sweep_page(path: Path, sweep: SweepResults, own: Sequence[Drawn]) -> str:
    figures: dict[str, Any] = {}
    there = points_of(path)
    environment = open_run(path, there[0]).environment if there else {}
    main = (
        f"<section><h2>Points</h2>{_table(sweep)}</section>"
        "<noscript><p>The figures need JavaScript; everything else on this page does without.</p>"
        f"</noscript>{own_figures(own, figures) if own else ''}"
        f"<section><h2>Each point</h2>{''.join(map(_point, sweep.points))}</section>"
        f"{analyses.section(path)}<section><h2>Environment</h2>{environment_table(environment)}</section>"
    )
    extent = f"{number(len(sweep.points))} points"
    for status, count in Counter(point.status for point in sweep.without).items():
        extent += f", {number(count)} {status}"
    name = sweep.experiment.name
    return shell(name, sweep.run, extent, sweep.verdict, main, sweep.to_dict(), figures)


def _table(sweep: SweepResults) -> str:
    names = [*parameters(sweep), *columns(sweep)]
    head = "".join(f'<th class="number">{escape(name)}</th>' for name in names)
    rows = "".join(map(_row, point_rows(sweep)))
    return (
        f'<div class="wide"><table id="points"><thead><tr>{head}<th></th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(row: PointRow) -> str:
    params = "".join(f'<td class="number">{escape(text)}</td>' for text in row.params)
    cells = "".join(
        f'<td class="number" data-value="{"" if cell.value is None else cell.value}">'
        f"{escape(cell.text)}</td>"
        for cell in row.cells
    )
    return f"<tr>{params}{cells}<td>{_ending(row.point)}</td></tr>"


def _ending(point: PointResult) -> str:
    if point.error is not None:
        style = "fail" if point.status == FAILED else "unknown"
        return f'<span class="badge {style}">{escape(point.status)}</span>'
    return "" if point.verdict is None else badge(point.verdict)


def _point(point: PointResult) -> str:
    """Folded, but where something is not as it should be."""
    found = point.results
    text = f"<pre>{escape(point.error)}</pre>" if point.error is not None else ""
    well = point.error is None
    if found is not None:
        well = well and not found.problems and str(found.verdict or "PASS") == "PASS"
        text += expectation_table(found) if found.expectations else ""
        text += problem_list(found.problems) + value_table(found)
        text += interval_table(found) if found.paths else ""
        # These stand once for each point, so they have no name of their own.
        text = re.sub(r'<table id="[^"]*"', "<table", text + network_tables(found))
        text += f"<p>{escape(loss_line(found.loss))}</p>"
    opened = "" if well else " open"
    return (
        f"<details{opened}><summary><code>{escape(point.name)}</code> {_ending(point)}</summary>"
        f"{text}</details>"
    )
