"""Series of an experiment's own figures: points of a sweep, or a run over time; no drawing here.

Numbers are kept as measured; an axis says by what they are divided for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loopscope.experiment import Experiment, Figure, statistic_names
from loopscope.report.axis import Axis, Scalar, axis_of, places
from loopscope.report.decimation import thin
from loopscope.report.marks import Mark, Strokes, read_marks, strokes_over
from loopscope.report.path_samples import ages_of, part_of, paths_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis import PointResult, Results, SweepResults
    from loopscope.experiment import Statistic, Value
    from loopscope.report.path_samples import Part
    from loopscope.timeline import Run

    Floats = npt.NDArray[np.float64]

TIME = "time"
_PANEL_POINTS = 2500
_MOST_MARKS = 10


@dataclass(frozen=True)
class Curve:
    """Points of a sweep that differ in the parameter x alone, in the order of x."""

    label: str
    colour: int
    dash: int
    points: tuple[str, ...]
    x: Floats
    y: Floats
    bar: Floats | None
    """Half the height of the error bars; NaN where it is unknown."""
    doubt: Floats
    """Maximum error of y because of the clocks; NaN where nothing bounds it."""
    fit: tuple[float, float] | None = None
    """Intercept and slope of the line that fits best."""

    @property
    def without_bar(self) -> npt.NDArray[np.bool_]:
        """The points whose error bar is unknown."""
        known = self.x if self.bar is None else self.bar
        return np.isnan(known)


@dataclass(frozen=True)
class Plot:
    """Statistics against a swept parameter."""

    figure: Figure
    title: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Stretch:
    """One y of one repeat over time, thinned, extremes kept."""

    repeat: int
    label: str
    seconds: Floats
    y: Floats


@dataclass(frozen=True)
class Panel:
    point: str
    title: str
    stretches: tuple[Stretch, ...]
    strokes: Strokes = Strokes()
    """Events during the run; times count as those of the first y."""


@dataclass(frozen=True)
class Panels:
    """Messages and values over time, a panel for each point."""

    figure: Figure
    title: str
    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    total: int
    """Messages and events; `shown` of them are drawn."""

    @property
    def shown(self) -> int:
        return sum(len(each.y) for panel in self.panels for each in panel.stretches)


Drawn = Plot | Panels


class Recorder:
    """Takes from each point what its figures over time need, so that messages need not be kept."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._panels: dict[str, list[Panel]] = {}
        self._total: dict[str, int] = {}

    def see(self, run: Run, results: Results) -> None:
        """A point with its messages."""
        points = {point.name: point.params for point in self._experiment.points}
        params = points.get(run.point, {})
        marks: tuple[Mark, ...] | None = None
        for figure in self._experiment.figures:
            if figure.x == TIME and _chosen(figure, params):
                title = ", ".join(
                    f"{name} = {value}" for name, value in params.items() if name not in figure.only
                )
                marks = read_marks(run) if marks is None else marks
                stretches, strokes, total = _stretches(
                    run, results, self._experiment, figure, marks
                )
                panel = Panel(run.point, title, stretches, strokes)
                self._panels.setdefault(figure.name, []).append(panel)
                self._total[figure.name] = self._total.get(figure.name, 0) + total

    def drawn(self, sweep: SweepResults | None) -> list[Drawn]:
        """Every figure that has something to show, in the file's order."""
        found: list[Drawn] = []
        for figure in self._experiment.figures:
            if figure.x == TIME:
                if any(panel.stretches for panel in self._panels.get(figure.name, ())):
                    found.append(self._over_time(figure))
            elif sweep is not None and (plot := _plot(sweep, figure)) is not None:
                found.append(plot)
        return found

    def _over_time(self, figure: Figure) -> Panels:
        panels = tuple(self._panels[figure.name])
        every = [each.y for panel in panels for each in panel.stretches]
        value = _value(self._experiment, figure.y[0])
        unit = "ns" if value is None else value.unit
        # An outlier must not choose the unit.
        y = axis_of(figure.y_label or _name(figure), unit, np.concatenate(every), "y" in figure.log)
        first = "message" if value is None else "event"
        x = Axis(figure.x_label or f"time since the first {first}", "ns", 1e9, "s")
        return Panels(
            figure, figure.title or _title(figure), x, y, panels, self._total[figure.name]
        )


def fit_text(plot: Plot, curve: Curve) -> str:
    """The line that fits, in the units of the axes: `2.12 ms + 3.001 · delay`."""
    assert curve.fit is not None
    intercept, slope = curve.fit
    per = slope * plot.x.scale / plot.y.scale
    # The slope has no unit where both axes have the same one.
    same = plot.x.unit == plot.y.unit
    per_unit = "" if same and plot.x.unit else f" {plot.y.shown}/{plot.x.shown}".rstrip("/ ")
    if same:
        per = slope
    sign = "-" if per < 0 else "+"
    rest = f"{abs(per):.4g}{per_unit} · {plot.x.name}"
    return f"{intercept / plot.y.scale:.3g} {plot.y.shown} {sign} {rest}"


def _stretches(
    run: Run, results: Results, experiment: Experiment, figure: Figure, marks: Sequence[Mark]
) -> tuple[tuple[Stretch, ...], Strokes, int]:
    from loopscope.analysis.value import read_samples
    from loopscope.timeline import UnknownTableError

    found: list[tuple[int, str, npt.NDArray[np.int64], Floats]] = []
    origin: Mapping[int, int] = {}
    hosts: frozenset[str] | None = frozenset()
    for y in figure.y:
        label = figure.label(y.text)
        value = _value(experiment, y)
        if value is not None:
            try:
                read = read_samples(run, value)
            except UnknownTableError:
                continue
            repeat, ts, samples = read.repeat, read.ts, read.x
            first = {each: int(ts[repeat == each].min()) for each in np.unique(repeat).tolist()}
            since = ts.copy()
            for number, at in first.items():
                since[repeat == number] -= at
            origin, hosts = origin or first, None
        else:
            part = _part(results, y)
            origin = origin or part.origin
            hosts = None if hosts is None else hosts | part.hosts
            repeat, since = part.intervals.repeat, part.since
            samples = part.intervals.length.astype(np.float64)
        for number in np.unique(repeat):
            here = np.flatnonzero(repeat == number)
            here = here[np.argsort(since[here], kind="stable")]
            found.append((int(number), label, since[here], samples[here]))
    stretches, total = [], 0
    for number, label, elapsed, samples in found:
        if figure.until_ns is not None:
            early = elapsed <= figure.until_ns
            elapsed, samples = elapsed[early], samples[early]
        total += len(samples)
        kept = thin(samples, max(4, _PANEL_POINTS // len(found)))
        stretches.append(Stretch(number, label, elapsed[kept] / 1e9, samples[kept]))
    ends = [end for each in stretches if len(each.seconds) for end in each.seconds[[0, -1]]]
    shown = strokes_over(marks, origin, hosts, min(ends), max(ends)) if ends else Strokes()
    return tuple(stretches), shown, total


def _value(experiment: Experiment, y: Statistic) -> Value | None:
    """None where a path is meant."""
    named = (each for each in experiment.values if each.name == y.path)
    return next(named, None) if y.hop is None and y.stat is None else None


def _part(results: Results, y: Statistic) -> Part:
    ends = paths_of(results)[y.path].loop if y.hop is None else (y.hop.start, y.hop.end)
    return (part_of if y.stat is None else ages_of)(results, y.path, ends)


def _plot(sweep: SweepResults, figure: Figure) -> Plot | None:
    chosen = [point for point in sweep.points if _chosen(figure, point.params)]
    x_values, x_unit, categories = places([point.params[figure.x] for point in chosen])
    groups: dict[tuple[str, Scalar | None, tuple[tuple[str, Scalar], ...]], list[int]] = {}
    beside = (figure.x, figure.series, *figure.only)
    for y in figure.y:
        for i, point in enumerate(chosen):
            rest = tuple(pair for pair in point.params.items() if pair[0] not in beside)
            of = point.params.get(figure.series) if figure.series else None
            groups.setdefault((y.text, of, rest), []).append(i)
    curves = []
    seen: dict[str, list[object]] = {"colour": [], "dash": []}
    for (text, of, rest), indices in groups.items():
        curve = _curve(figure, text, [chosen[i] for i in indices], x_values[indices])
        if curve is None:
            continue
        named = [figure.label(text)] if len(figure.y) > 1 else []
        named += [f"{figure.series} = {of}"] if figure.series else []
        named += [f"{name} = {value}" for name, value in rest]
        by_series = figure.series is not None
        colour = of if by_series else (rest if len({r for _, _, r in groups}) > 1 else text)
        dash = (text, rest) if by_series else (text if colour == rest else None)
        curves.append(
            Curve(
                ", ".join(named),
                _index(seen["colour"], colour),
                _index(seen["dash"], dash),
                *curve,
            )
        )
    if not curves:
        return None
    unit = next(
        found.unit
        for point in chosen
        for y in figure.y
        if (found := point.statistic(y.text)) is not None
    )
    log = figure.log
    x = axis_of(figure.x_label or _words(figure.x), x_unit, x_values, "x" in log, categories)
    texts = {at: str(point.params[figure.x]) for at, point in zip(x_values, chosen, strict=True)}
    if x.logarithmic and len(texts) <= _MOST_MARKS:
        x = replace(x, marks=tuple(sorted(texts.items())))
    ys = np.concatenate([curve.y for curve in curves])
    name = figure.y_label or _name(figure)
    return Plot(
        figure,
        figure.title or _title(figure),
        x,
        axis_of(name, unit, ys, "y" in log),
        tuple(curves),
    )


def _curve(
    figure: Figure, text: str, points: Sequence[PointResult], x: Floats
) -> (
    tuple[tuple[str, ...], Floats, Floats, Floats | None, Floats, tuple[float, float] | None] | None
):
    """Names of the points, x, y, error bars, doubt and fit; None where nothing was measured."""
    found = [point.statistic(text) for point in points]
    there = [i for i, each in enumerate(found) if each is not None and each.value is not None]
    if not there:
        return None
    order = sorted(there, key=lambda i: (x[i], i))
    y, doubt, bars = [], [], []
    for i in order:
        each = found[i]
        assert each is not None and each.value is not None
        y.append(float(each.value))
        doubt.append(float("nan") if each.err is None else float(each.err))
        bar = points[i].statistic(figure.error.text) if figure.error else None
        bars.append(float("nan") if bar is None or bar.value is None else float(bar.value))
    xs, ys = x[order], np.array(y)
    fit = None
    if figure.compare == "linear" and len(np.unique(xs)) > 1:
        slope, intercept = np.polyfit(xs, ys, 1)
        fit = float(intercept), float(slope)
    names = tuple(points[i].name for i in order)
    return names, xs, ys, np.array(bars) if figure.error else None, np.array(doubt), fit


def _chosen(figure: Figure, params: Mapping[str, Scalar]) -> bool:
    return all(params.get(name) == value for name, value in figure.only.items())


def _name(figure: Figure) -> str:
    """Name of the vertical axis where the experiment gives none."""
    y = figure.y[0]
    if len(figure.y) > 1:
        if y.stat is None and y.hop is None:
            return "value"
        return {"ns": "time", "Hz": "rate"}.get(statistic_names.unit(y.stat or "p50"), "value")
    if figure.x == TIME and y.stat is not None:
        return "age of the data"
    if y.stat is not None:
        return f"{y.stat} of {y.text.rpartition('.')[0]}"
    return "time" if y.hop else _words(y.path)


def _title(figure: Figure) -> str:
    what = ", ".join(y.text for y in figure.y)
    return f"{what} over time" if figure.x == TIME else f"{what} against {figure.x}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _index(seen: list[object], key: object) -> int:
    if key not in seen:
        seen.append(key)
    return seen.index(key)
