"""A maximum error that is not known is drawn as unknown, never as none.

This holds on paper and on the page.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from judged_tables import judge_table
from matplotlib.collections import LineCollection
from matplotlib.container import ErrorbarContainer

from loopscope.experiment import Allowed
from loopscope.report import waterfall
from loopscope.report.axis import Axis
from loopscope.report.chart import Band, Chart, Panel
from loopscope.report.chart_file import file_figure
from loopscope.report.chart_page import page_figure
from loopscope.report.clock_charts import _banded
from loopscope.report.experiment_charts import own_chart
from loopscope.report.plots import Curve, Plot
from loopscope.report.waterfall import Fall, Step

STEPS = (
    Step("a/x:out", "b/x:in", True, 0, 4000, None),
    Step("b/x:in", "b/x:done", False, 4000, 3000, 0),
    Step("b/x:done", "c/x:in", True, 7000, 2000, 500),
)
FALL = Fall("max", 1, 7, STEPS, 9000, None)


def whiskers(axes: Any) -> list[float]:
    """How long each maximum error is that is drawn."""
    bars = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    lines = [line for bar in bars for line in bar[2] if isinstance(line, LineCollection)]
    return [float(np.ptp(segment[:, 0])) / 2 for line in lines for segment in line.get_segments()]


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_waterfall_on_paper() -> None:
    figure = file_figure(waterfall.chart([FALL]), 7.16)
    [axes] = figure.axes
    assert sorted(whiskers(axes)) == [0, 0.5]
    assert {text for text in texts(axes) if "→" not in text} == {
        "4.000 µs ±?", "3.000 µs", "2.000 µs"
    }  # fmt: skip
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told == ["between hosts", "on one host", "±?: maximum error unknown"]
    known = file_figure(waterfall.chart([Fall("max", 1, 7, STEPS[1:], 5000, 500)]), 7.16)
    assert len(known.legends[0].get_texts()) == 2


def test_a_waterfall_on_paper_shows_all_of_every_hop() -> None:
    for kinds in ((True, False), (False, True)):
        steps = tuple(
            Step(f"{number}", f"{number + 1}", between, 4000 * number, 4000, 0)
            for number, between in enumerate(kinds)
        )
        [axes] = file_figure(waterfall.chart([Fall("max", 1, 7, steps, 8000, 0)]), 7.16).axes
        left, right = axes.get_xlim()
        assert left <= 0 and right >= 8


def test_a_waterfall_on_the_page() -> None:
    made = page_figure(waterfall.chart([FALL]))["data"]
    drawn = {
        (at, length): (whisker, hover, trace.get("text", ""))
        for trace in made
        for at, length, whisker, hover in zip(
            trace["base"],
            trace["x"],
            trace.get("error_x", {"array": [None] * len(trace["x"])})["array"],
            trace["customdata"],
            strict=True,
        )
    }
    assert drawn == {
        (0, 4): (None, "± unknown", "±?"),
        (4, 3): (0, "± 0 ns", ""),
        (7, 2): (0.5, "± 500 ns", ""),
    }
    assert "±?" in waterfall.CAPTION
    assert "±?" in waterfall.GRAPH_CAPTION


def test_the_band_of_a_clock_has_a_gap() -> None:
    half_width = np.array([1.0, 2.0, np.nan, np.nan, 3.0, 4.0])
    axis = Axis("t", "", 1, "")
    layers = _banded(np.arange(6.0), np.zeros(6), half_width, axis, "offset")
    assert isinstance(layers[0], Band)
    chart = Chart((Panel(axis, axis, tuple(layers)),))
    band, points = page_figure(chart)["data"]
    assert band["fill"] == "toself"
    assert band["x"] == [0, 1, 1, 0, None, 4, 5, 5, 4, None]
    assert band["y"] == [1, 2, -2, -1, None, 3, 4, -4, -3, None]
    assert points["customdata"][1:4] == ["± 2 ns", "± unknown", "± unknown"]
    [axes] = file_figure(chart, 7.16).axes
    [area] = axes.collections
    assert [path.vertices[:, 0].max() for path in area.get_paths()] == [1, 5]


def plot() -> Plot:
    from types import SimpleNamespace

    curve = Curve(
        label="", colour=0, dash=0, points=("a", "b", "c"),
        x=np.array([1.0, 2.0, 3.0]), y=np.array([5.0, 6.0, 7.0]),
        bar=np.array([1.0, np.nan, 0.0]), doubt=np.array([0.0, np.nan, 2.0]), fit=None,
    )  # fmt: skip
    axis = Axis("t", "ns", 1, "ns")
    named: Any = SimpleNamespace(name="f", error=SimpleNamespace(text="loop.deviation"), compare="")
    return Plot(named, "f", axis, axis, (curve,))


def test_error_bars_of_a_sweep() -> None:
    chart = own_chart(plot())
    bars, trace = page_figure(chart)["data"]
    assert trace["y"] == [5, 6, 7] and "error_y" not in trace
    assert (bars["y"], bars["error_y"]["array"]) == ([5, 7], [1, 0])
    assert trace["marker"]["symbol"] == ["circle", "circle-open", "circle"]
    assert "open marks: unknown" in chart.subtitle
    assert "Clock error ± 2 ns at most, of 1 unknown. " in chart.subtitle
    [axes] = file_figure(chart, 7.16).axes
    [hollow] = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert hollow.get_xydata().tolist() == [[2, 6]]
    assert hollow.get_label() == "bar unknown"


def test_a_deadline_does_not_take_an_unknown_half_width_for_none() -> None:
    """It would be judged PASS for certain."""
    table = pa.table({"start": [0, 10], "latency": [5, 5], "err": pa.array([1, None], pa.int64())})
    judged = judge_table(table, "<", 100, Allowed())
    assert str(judged.verdict) == "UNKNOWN"
