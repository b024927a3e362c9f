"""Charts of an experiment's own figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from loopscope.analysis.quantity_text import maximum_error, number
from loopscope.report.axis import Axis
from loopscope.report.chart import SYMBOLS, Chart, Hover, Layer, Panel, Row, Trace, Whiskers
from loopscope.report.palette import SERIES, series_colour
from loopscope.report.plots import Curve, Drawn, Panels, Plot, fit_text

_UNKNOWN = "bar unknown"
_FEW = 200
"""Points up to which a line goes through them; of many it says nothing."""
_PANEL_PIXELS = 190


def draw_own(drawn: Iterable[Drawn], folder: Path) -> None:
    """Writes `<name>.svg`, `.pdf`, `.png` and `.csv` of each into `folder`."""
    from loopscope.report.canvas import WIDTHS, save, write_csv
    from loopscope.report.chart_file import file_figure

    folder.mkdir(exist_ok=True)
    for each in drawn:
        chart = own_chart(each)
        save(file_figure(chart, WIDTHS["two"]), folder / each.figure.name)
        write_csv(folder / each.figure.name, chart.rows)


def own_chart(drawn: Drawn) -> Chart:
    files = f"As files: figures/{drawn.figure.name}.svg, .pdf, .png; its numbers: .csv."
    chart = _plot(drawn) if isinstance(drawn, Plot) else _panels(drawn)
    return replace(chart, title=drawn.title, caption=f"{chart.caption}{files}", rows=_rows(drawn))


def _plot(plot: Plot) -> Chart:
    layers: list[Layer] = []
    for curve in plot.curves:
        layers += _curve(plot, curve)
    every = np.concatenate([curve.x for curve in plot.curves])
    if plot.figure.compare == "identity":
        ends = np.array([every.min(), every.max()])
        layers.insert(0, Trace(ends, ends, "#999999", "as asked", line=0.8, dash=1))
    y = plot.y
    if min(float(curve.y.min()) for curve in plot.curves) >= 0:
        # Also where a bar, being symmetrical, reaches below.
        below = any(c.bar is not None and (c.y < c.bar).any() for c in plot.curves)
        y = replace(y, from_zero="beyond" if below else "zero")
    return Chart((Panel(plot.x, y, tuple(layers), grid=True),), caption=_notes(plot),
                 inches=(0, 3.4), pixels=420)  # fmt: skip


def _curve(plot: Plot, curve: Curve) -> list[Layer]:
    colour = SERIES[curve.colour % len(SERIES)]
    label, line = curve.label, 1.1
    made: list[Layer] = []
    if curve.fit is not None:
        intercept, slope = curve.fit
        text = fit_text(plot, curve)
        label, line = (f"{label}: {text}" if label else text), 0.0
        ends = np.array([curve.x.min(), curve.x.max()])
        made.append(Trace(ends, intercept + slope * ends, colour, line=0.8, dash=1))
    if curve.bar is not None:
        made.append(Whiskers(curve.x, curve.y, curve.bar, colour))
    hover = Hover(f"%{{customdata}}: %{{y}} {plot.y.shown}", lambda: list(curve.points))
    hollow = curve.without_bar if curve.bar is not None else None
    made.append(
        Trace(curve.x, curve.y, colour, label, line, curve.dash,
              symbol=SYMBOLS[curve.colour % len(SYMBOLS)], size=4.5, hollow=hollow,
              hollow_label=_UNKNOWN, hover=hover)
    )  # fmt: skip
    return made


def _notes(plot: Plot) -> str:
    error = plot.figure.error
    text = f"Bars: {error.text} to both sides. " if error else ""
    if any(curve.without_bar.any() for curve in plot.curves):
        text = f"{text[:-2]}; open marks: unknown. "
    doubt = np.concatenate([curve.doubt for curve in plot.curves])
    if np.isfinite(doubt).any() and np.nanmax(doubt) > 0 and plot.y.unit == "ns":
        unknown = int(np.isnan(doubt).sum())
        more = f", of {number(unknown)} unknown" if unknown else ""
        text += f"Clock error {maximum_error(int(np.nanmax(doubt)))} at most{more}. "
    return text


def _panels(drawn: Panels) -> Chart:
    n, labels = len(drawn.panels), list[str]()
    few = max(len(each.y) for panel in drawn.panels for each in panel.stretches) <= _FEW
    every = np.concatenate([each.y for panel in drawn.panels for each in panel.stretches])
    y = replace(drawn.y, from_zero="zero") if every.min() > every.max() / 20 else drawn.y
    panels = []
    hover = Hover(f"%{{x:.6f}} {drawn.x.shown}: %{{y}} {drawn.y.shown}")
    for panel in drawn.panels:
        traces = []
        for each in panel.stretches:
            if each.label and each.label not in labels:
                labels.append(each.label)
            colour = SERIES[labels.index(each.label)] if each.label else series_colour(each.repeat)
            traces.append(
                Trace(each.seconds * 1e9, each.y, colour, each.label, line=0.8 if few else 0,
                      symbol="circle", size=2.4 if few else 1.4, picture=not few, hover=hover)
            )  # fmt: skip
        panels.append(
            Panel(drawn.x, y, tuple(traces), panel.title, strokes=panel.strokes, numbered=n == 1,
                  shares="xy" if n > 1 else "")
        )  # fmt: skip
    told = f"{number(drawn.total)} messages or events. "
    if drawn.shown < drawn.total:
        told = f"{number(drawn.shown)} of {told[:-2]} shown, extremes kept. "
    return Chart(tuple(panels), caption=told, columns=(2, 3, 1), legend="above",
                 inches=(0.5, 2.6 if n == 1 else 1.7),
                 pixels=max(260, 70 + _PANEL_PIXELS * -(-n // 2)))  # fmt: skip


def _rows(drawn: Drawn) -> Iterator[Row]:
    y = _heading(drawn.y)
    if isinstance(drawn, Panels):
        yield ["point", "repeat", "series", "time (s)", y]
        for panel in drawn.panels:
            for each in panel.stretches:
                for seconds, value in zip(each.seconds.tolist(), each.y.tolist(), strict=True):
                    yield [panel.point, each.repeat, each.label, seconds, value]
            for stroke in panel.strokes.every:
                yield [panel.point, "", "; ".join(stroke.texts), stroke.seconds, ""]
        return
    error = drawn.figure.error
    unit = f" ({drawn.y.unit})" if drawn.y.unit else ""
    bars = [error.text + unit] if error else []
    yield ["point", "series", _heading(drawn.x), y, *bars, f"clock error{unit}"]
    for curve in drawn.curves:
        for i, point in enumerate(curve.points):
            x: str | float = float(curve.x[i])
            if drawn.x.categories:
                x = drawn.x.categories[int(curve.x[i])]
            bar = [_number(curve.bar[i])] if curve.bar is not None else []
            yield [point, curve.label, x, float(curve.y[i]), *bar, _number(curve.doubt[i])]


def _heading(axis: Axis) -> str:
    return f"{axis.name} ({axis.unit})" if axis.unit else axis.name


def _number(value: float) -> str | float:
    return "" if math.isnan(value) else float(value)
