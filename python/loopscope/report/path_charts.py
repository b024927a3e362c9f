"""The page's charts of a path, and those of its hops and of a pattern's types for files, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.quantity_text import UNKNOWN_NS, maximum_error, number
from loopscope.report.axis import Axis, axis_of
from loopscope.report.chart import Chart, Histogram, Hover, Panel, Row, Symbol, Trace
from loopscope.report.marks import Mark
from loopscope.report.palette import BLUE, ORANGE, TARGET
from loopscope.report.path_samples import Part, Sampled, ages_of, joins, part_of, sampled_of
from loopscope.report.sample_charts import Detail, ccdf
from loopscope.report.sampled_charts import sampled_chart
from loopscope.report.samples import Column, Samples, Series

if TYPE_CHECKING:
    from loopscope.analysis.results import PatternResult, Results
    from loopscope.experiment import MessagePath

_POINTS = 5000
_HOPS_POINTS = 8000
_PATHS = 2
"""Number of paths with all their points; more paths share as many, so that pages stay light."""
_RANKS = 200
_CELLS = (150, 60)
_TAILED = 8
"""Multiple of the median that is far from it: on a linear axis such values flatten the rest."""
_HOP_PIXELS = 170

CCDF_CAPTION = (
    "The share of messages that took at least so long, of the path and of each hop; the band of "
    "the path is what the clocks' error leaves open. Logarithmic scales."
)
AGE_CAPTION = "Of the age the share is that of the uses."
HEATMAP_CAPTION = "How many messages took how long, over time, all repeats together."
PATTERN_CAPTION = (
    "From each message's intended send time to its arrival, a dot for each receiver; the bar is "
    "the target. Logarithmic scale."
)
Ends = tuple[int, int]
NamedChart = tuple[str, str, Chart]
"""A chart's name in the page and its title."""


def share_of(paths: int) -> float:
    """Divisor of the number of points of each of so many paths."""
    return max(1.0, paths / _PATHS)


def end_charts(
    results: Results,
    path: MessagePath,
    parts: Mapping[Ends, Part],
    ends: Ends,
    marks: Sequence[Mark],
    among: int,
) -> Iterator[NamedChart]:
    """Charts from one beginning of a path, of which messages arrived, to one end.

    `parts` are those of the path; `among`: how many ends all paths of the page have.
    """
    part = parts[ends]
    ages = ages_of(results, path.name, ends) if joins(path, ends) else None
    way = f", {part.intervals.first} → {part.intervals.last}"
    of = way if len(path.ends) > 1 else ""
    # A graph's figures over time have as many points together as a list's one.
    drawn = sum(1 + joins(path, each) for each in path.ends)
    detail = Detail(
        points=int(_POINTS / share_of(len(results.messages) + len(results.graphs)) / drawn)
    )
    times = sampled_of(part)
    what = "End-to-end response time" if ages is None else "Time to the first use"
    over_time = sampled_chart("scatter", times, detail, marks)
    yield f"response-time-{part.text}", f"{what}{way}", over_time
    title = f"Distribution of the {part.name}{of}"
    yield f"response-histogram-{part.text}", title, _distribution(times)
    caption = CCDF_CAPTION
    if ages is not None and len(ages.intervals.length):
        used = sampled_of(ages)
        chart = sampled_chart("scatter", used, detail, marks)
        yield f"age-{part.text}", f"Age of the data at each use{way}", chart
        title = f"Distribution of the {ages.name}{of}"
        yield f"age-histogram-{part.text}", title, _distribution(used)
        caption += f" {AGE_CAPTION}"
    hops = _between(path, parts, ends)
    tails = replace(_tails(part, ages, hops), caption=caption)
    yield f"ccdf-{part.text}", f"Tails{of}", tails
    if sum(len(each.x) for each in _traces(over_time)) < len(part.intervals.length):
        cells = [max(10, round(length / among**0.5)) for length in _CELLS]
        shown = sampled_chart("heatmap", times, Detail(cells=(cells[0], cells[1])))
        shown = replace(shown, caption=HEATMAP_CAPTION)
        yield f"heatmap-{part.text}", f"Response times over time{of}", shown


def parts_of(results: Results, path: MessagePath) -> dict[Ends, Part]:
    """Parts of a path: from end to end, and the hops."""
    return {ends: part_of(results, path.name, ends) for ends in (*path.ends, *path.hops)}


def hops_chart(
    results: Results, path: MessagePath, every: Mapping[Ends, Part], marks: Sequence[Mark]
) -> Chart | None:
    """Each hop over time, and its histogram at the right; None where no message was seen."""
    parts = [every[hop] for hop in path.hops]
    parts = [part for part in parts if len(part.intervals.length)]
    points = _HOPS_POINTS / share_of(len(results.messages) + len(results.graphs))
    detail = Detail(points=int(points / max(1, len(path.hops))), keyed=True)
    panels: list[Panel] = []
    lines: list[tuple[str, Sampled, Iterable[Row]]] = []
    outside, sampling, key = 0, False, ""
    for part in parts:
        sampled = replace(sampled_of(part), name="time", without={})
        over = sampled_chart("scatter", sampled, detail, () if panels else marks)
        name = f"{part.intervals.first} → {part.intervals.last}"
        title = f"{name} (clock error {maximum_error(int(part.intervals.err.max()))})"
        [left], n = over.panels, len(part.intervals.length)
        layers = [
            replace(e, picture=True, size=max(1.6, e.size)) if isinstance(e, Trace) else e
            for e in left.layers
        ]
        strokes = panels[0].strokes if panels else left.strokes
        panels.append(
            replace(left, layers=tuple(layers), title=title, strokes=strokes, shares="x",
                    numbered=not panels, grid=False)
        )  # fmt: skip
        bars = _distribution(sampled)
        shown = sum(len(each.x) for each in _traces(over))
        note = f"n = {number(n)}"
        note += f", {number(shown)} points, extremes kept" if shown < n else ""
        [counts] = (e.counts for e in bars.panels[0].layers if isinstance(e, Histogram))
        left_out = n - int(counts.sum())
        note += f"; {number(left_out)} outside the bars" if left_out else ""
        outside += left_out
        panels.append(
            replace(bars.panels[0], y=Axis("", "", 1, "", from_zero="zero"), note=note, grid=False)
        )
        sampling |= shown < n
        key = over.key
        lines.append((name, sampled, over.rows))
    if not panels:
        return None
    caption = "Left: over time. Right: how many messages took how long."
    if sampling:
        caption += " At the left a sample of the messages is shown, extremes kept."
    if outside:
        caption += f" At the right {number(outside)} values of far tails are not shown."
    return Chart(tuple(panels), caption=caption, rows=_hops_rows(lines, panels[0]), legend="above",
                 columns=(2, 2, 2), ratios=(3, 1), inches=(0.5, 1.25),
                 key=key,
                 pixels=60 + _HOP_PIXELS * len(parts))  # fmt: skip


def _hops_rows(lines: Sequence[tuple[str, Sampled, Iterable[Row]]], first: Panel) -> Iterator[Row]:
    yield ("hop", "repeat", "id", "time since the first message (s)", "time (ns)",
           "clock error (ns)")  # fmt: skip
    for hop, sampled, (heading, *rows) in lines:
        alone = sampled.table["repeat"][0].as_py()
        for row in rows:
            if first.strokes and heading[0] == "series" and row[-1] == "":
                continue  # what is marked
            repeat, (since, ns, err, key) = (row[0] or alone, row[-4:])
            shown = sampled.key(int(key)) if sampled.key else key
            yield (hop, repeat, shown, float(since) / 1e9, ns, err)
    for stroke in first.strokes.every:
        yield ("; ".join(stroke.texts), "", "", stroke.seconds, "", "")


def pattern_chart(result: PatternResult) -> Chart:
    """The maximum and p99 of each receiver above its message's type, and its target."""
    rows = result.rows
    place = {name: i for i, name in enumerate(dict.fromkeys(row.message_type for row in rows))}
    traces = []
    series: tuple[tuple[str, list[int | None], Symbol, float, str], ...] = (
        ("target", [row.target_ns for row in rows], "dash", 6, TARGET),
        ("p99", [row.times["p99"] for row in rows], "circle", 2.6, BLUE),
        ("max", [row.times["max"] for row in rows], "circle", 2.6, ORANGE),
    )
    for name, values, symbol, size, colour in series:
        given = [(row, ns) for row, ns in zip(rows, values, strict=True) if ns]
        x = np.array([place[row.message_type] for row, _ in given], dtype=np.int64)
        y = np.array([ns for _, ns in given], dtype=np.float64)
        who = [(row.message_type, row.receiver) for row, _ in given]
        template = f"%{{customdata[0]}} at %{{customdata[1]}}: {name} %{{y}} ms"
        hover = Hover(template, lambda who=who: who)  # type: ignore[misc]
        traces.append(Trace(x, y, colour, name, symbol=symbol, size=size, hover=hover))
    every = np.concatenate([each.y for each in traces])
    y_axis = replace(axis_of("latency", "ns", every, True), scale=1e6, shown="ms")
    panel = Panel(Axis("", "", 1, "", categories=tuple(place)), y_axis, tuple(traces))
    return Chart((panel,), caption=PATTERN_CAPTION, rows=_pattern_rows(result), inches=(0, 3.2),
                 pixels=420, legend="above")  # fmt: skip


def _pattern_rows(result: PatternResult) -> Iterator[Row]:
    yield ("type", "receiver", "target (ns)", "p99 (ns)", "max (ns)", "clock error (ns)")
    for row in result.rows:
        numbers = (row.target_ns, row.times["p99"], row.times["max"], row.err_ns)
        yield (row.message_type, row.receiver, *("" if ns is None else ns for ns in numbers))


def _distribution(sampled: Sampled) -> Chart:
    """The histogram of all repeats together.

    It has a logarithmic axis where bars of equal width would leave most of the axis to one message
    in a hundred.
    """
    values = sampled.table["value"].to_numpy()
    median, p99 = np.quantile(values, [0.5, 0.99])
    tailed = p99 > _TAILED * median
    log = "x" if tailed and values.min() > 0 else "none"
    return sampled_chart(
        "histogram", replace(sampled, without={}), Detail(), log=log, together=True
    )


def _tails(part: Part, ages: Part | None, hops: Sequence[Part]) -> Chart:
    """The line from end to end is thick."""
    parts = [(part.short, part)]
    parts += [("age", ages)] if ages else []
    parts += [(f"{hop.intervals.first} → {hop.intervals.last}", hop) for hop in hops]
    series = []
    for name, each in parts:
        length, err = each.intervals.length, each.intervals.err
        if len(length):
            known = np.where(err >= UNKNOWN_NS, np.nan, err.astype(np.float64))
            series.append(Series(name, {"x": length, "err": known}))
    columns = {"x": Column("time", "ns"), "err": Column("err", "ns")}
    detail = Detail(ranks=_RANKS, what=part.what.removesuffix("s"), first=True)
    options = {"y_label": f"share of {part.what}"}
    return replace(ccdf(Samples(columns, tuple(series), 0), options, detail), legend="beside")


def _between(path: MessagePath, parts: Mapping[Ends, Part], ends: Ends) -> list[Part]:
    """The hops on the way, where that has several."""
    way = path.between(*ends)
    hops = [hop for hop in path.hops if hop != ends and way.issuperset(hop)]
    return [parts[hop] for hop in hops]


def _traces(chart: Chart) -> list[Trace]:
    return [each for panel in chart.panels for each in panel.layers if isinstance(each, Trace)]
