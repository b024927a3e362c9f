"""Mean and standard deviation against a swept parameter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from loopscope.report import figures
from loopscope.report.figure_source import FigureSource, chosen
from loopscope.report.sample_charts import Detail
from loopscope.report.samples import FigureError, missing

if TYPE_CHECKING:
    from loopscope.report.catalogue import Choice
    from loopscope.report.chart import Chart


def mean_deviation(source: FigureSource, of: str, choice: Choice) -> Chart:
    """A sample of each message at each point: x is one parameter, the others make the series."""
    if not source.swept:
        raise FigureError("mean-deviation is against a swept parameter: this run sweeps none")
    against = choice.against or source.swept[0]
    if against not in source.swept:
        raise FigureError(f"--against: {missing('swept parameter', against, source.swept)}")
    assert source.whole is not None
    params = {point.name: point.params for point in source.whole.points}
    parts, at, others = [], [], []
    for point in source.points:
        assert point.point is not None
        stretch = choice.repeat, choice.from_ns, choice.until_ns
        parts.append(chosen(point.samples(of), *stretch))
        mine = params[point.point]
        at.append(mine.get(against))
        others.append(", ".join(f"{k} = {v}" for k, v in mine.items() if k != against))
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in at)
    sampled = parts[0]
    of_point = np.repeat(np.arange(len(parts)), [len(part.table) for part in parts])
    table = pa.table(
        {
            "x": pa.array(at if numbers else [str(each) for each in at]).take(of_point),
            "value": np.concatenate([part.table["value"].to_numpy() for part in parts]),
            "others": pa.array(others).take(of_point),
        }
    )
    columns = {"x": "x", "x_label": against.replace("_", " "), "y": "value"}
    columns |= {"y_label": sampled.name, "y_unit": sampled.unit}
    if len(set(others)) > 1:
        # Each label says which parameters it is of.
        columns |= {"series": "others", "series_label": ""}
    if sampled.bounded:
        err = np.concatenate([part.table["clock_error"].to_numpy() for part in parts])
        table = table.append_column("clock_error", pa.array(err))
        columns["err"] = "clock_error"
    if choice.log is not None:
        columns["log"] = choice.log
    chart = figures.chart("mean-deviation", table, columns, Detail(figures.size_of(choice.width)))
    return replace(chart, title=f"{sampled.title}, against {against}")
