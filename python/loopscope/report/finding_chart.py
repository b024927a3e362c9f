"""A finding over the messages that show it: the times, and the fitted pattern on them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings.result import line
from loopscope.report import figures
from loopscope.report.chart import Chart, Hover, Trace
from loopscope.report.decimation import thin
from loopscope.report.figure_source import chosen
from loopscope.report.palette import ORANGE
from loopscope.report.path_samples import part_of, sampled_of
from loopscope.report.sample_charts import Detail
from loopscope.report.sampled_charts import sampled_chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loopscope.analysis import Results
    from loopscope.analysis.findings.result import Finding
    from loopscope.analysis.messages import Messages
    from loopscope.report.chart import Row
    from loopscope.report.marks import Mark

_POINTS = 4000
_PATTERN = "the pattern"


def chart(
    results: Results,
    messages: Messages,
    finding: Finding,
    marks: Sequence[Mark] = (),
    log: str | None = None,
) -> Chart:
    """The messages of the finding's repeat over time, with the pattern. Raises `FigureError`."""
    path = messages.path
    sampled = sampled_of(part_of(results, path.name, path.loop))
    sampled = chosen(sampled, finding.repeat, None, None)
    detail = Detail(figures.size_of("two"), points=_POINTS)
    made = sampled_chart("scatter", sampled, detail, marks, log)
    start = messages.ts[path.loop[0]][finding.rows]
    since = start - messages.begins[finding.repeat]
    [panel] = made.panels
    layer = _pattern(finding, since)
    panel = replace(panel, layers=(*panel.layers, layer))
    text = line(finding)
    return replace(
        made,
        panels=(panel,),
        title=f"{path.name}: {text}",
        caption=f"{text[0].upper()}{text[1:]}.",
        legend="above",
        rows=_rows(made.rows, layer),
    )


def _pattern(finding: Finding, since: np.ndarray) -> Trace:  # type: ignore[type-arg]
    """The pattern on the points: a mark at each late message, else a line."""
    fit = np.asarray(finding.fit, dtype=np.float64)
    names = {each.name for each in finding.evidence}
    hover = Hover("the pattern: %{y}")
    if finding.kind == "periodic" and "late by" in names:
        late = fit > np.median(fit)
        since, fit = since[late], fit[late]
        label = "late in step"
        return Trace(since, fit, ORANGE, label, symbol="circle", size=5.0, hover=hover,
                     hollow=np.ones(len(since), np.bool_))  # fmt: skip
    kept = thin(fit, _POINTS)
    if finding.kind in ("quantised", "modes"):
        return Trace(since[kept], fit[kept], ORANGE, _PATTERN, symbol="dash", size=3.0,
                     hover=hover)  # fmt: skip
    return Trace(since[kept], fit[kept], ORANGE, _PATTERN, line=1.2, hover=hover)


def _rows(rows: object, layer: Trace) -> chain[Row]:
    """The lines of the CSV; those of the pattern follow, with its name as their series."""
    lines = iter(rows)  # type: ignore[call-overload]
    heading = next(lines)
    if heading[0] != "series":
        heading, lines = ["series", *heading], (["", *each] for each in lines)
    blanks = [""] * (len(heading) - 3)
    pattern = (
        [layer.label, int(x), round(float(y)), *blanks]
        for x, y in zip(layer.x, layer.y, strict=True)
    )
    return chain([heading], lines, pattern)
