"""The results as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from loopscope.analysis import Results, Verdict
from loopscope.analysis.quantity import number
from loopscope.analysis.results import ExpectationResult, PatternResult
from loopscope.experiment import MessagePath
from loopscope.report import analyses, graph_waterfall, host_timeline, waterfall
from loopscope.report.chart import Chart
from loopscope.report.chart_page import page_figure
from loopscope.report.clock_charts import CLOCK_CHARTS, clock_chart, has_clock_chart
from loopscope.report.clock_series import ClockDrawing, read_clock_drawings
from loopscope.report.graph_rows import graph_tables
from loopscope.report.link_rows import Row, Table, tables
from loopscope.report.marks import Mark, read_marks
from loopscope.report.own_charts import own_chart
from loopscope.report.parts import paths_of
from loopscope.report.path_charts import end_charts, hops_chart, parts_of, pattern_chart
from loopscope.report.plots import Drawn
from loopscope.report.rows import (
    ABSENT,
    CLOCK_EVENT_HEADINGS,
    LOOP_HEADINGS,
    PATTERN_HEADINGS,
    Cell,
    IntervalRow,
    clock_event_cells,
    clock_line,
    cost_line,
    deciding,
    headings,
    interval_rows,
    loop_cells,
    loops_line,
    loss_line,
    measured,
    pattern_cells,
    pattern_line,
    probes_line,
    value_rows,
    value_source,
)
from loopscope.strict_json import to_json
from loopscope.timeline import Run

_FEW = 4
"""Entries of a group of the environment that are shown at once."""
_SYMBOL = {Verdict.PASS: "✓", Verdict.FAIL: "✕", Verdict.UNKNOWN: "?"}


def page(run: Run, results: Results, own: Sequence[Drawn] = ()) -> str:
    """``own`` are the experiment's own figures."""
    figures: dict[str, Any] = {}
    sections = [own_figures(own, figures)] if own else []
    sections += [_pattern(pattern, figures) for pattern in results.patterns]
    paths, marks = paths_of(results), read_marks(run)
    ends = sum(len(path.ends) for path in paths.values())
    for path in paths.values():
        sections.append(_path_figures(path, results, marks, ends, figures))
    sections.append(_timeline(run, results, figures))
    sections.append(_clocks(results, read_clock_drawings(run, results), figures))
    repeats = "1 repeat" if results.repeats == 1 else f"{number(results.repeats)} repeats"
    main = Template(_asset("run.html")).substitute(
        expectations=expectation_table(results),
        problems=problem_list(results.problems),
        values=value_table(results),
        intervals=interval_table(results),
        network=network_tables(results),
        loss=escape(loss_line(results.loss)),
        drops=_drops(results),
        clock=_clock(results),
        cost=_cost(results),
        environment=environment_table(run.environment),
        sections="".join(sections),
        analyses=analyses.section(run.output),
    )
    return shell(
        results.experiment, results.run, repeats, results.verdict, main, results.to_dict(), figures
    )


def shell(
    experiment: str,
    run: str,
    extent: str,
    verdict: Verdict | None,
    main: str,
    results: Mapping[str, Any],
    figures: Mapping[str, Any],
) -> str:
    """The whole page around what it tells."""
    return Template(_asset("page.html")).substitute(
        title=escape(f"{experiment} · {run}"),
        experiment=escape(experiment),
        run=escape(run),
        extent=extent,
        verdict="" if verdict is None else badge(verdict),
        main=main,
        style=_asset("page.css"),
        plotly=_asset("plotly/plotly-cartesian.min.js"),
        script=_asset("page.js"),
        results=_embedded(results),
        figures=_embedded(figures),
    )


def _pattern(pattern: PatternResult, figures: dict[str, Any]) -> str:
    name = f"pattern-{pattern.name}"
    figure = _figure(name, "Latency against its target", pattern_chart(pattern), figures)
    head = "".join(
        f"<th{_number(place)}>{escape(text)}</th>" for place, text in enumerate(PATTERN_HEADINGS)
    )
    rows = []
    for row in pattern.rows:
        cells = "".join(
            f'<td{_number(place)} data-value="{_value(cell.value)}">{escape(cell.text)}</td>'
            for place, cell in enumerate(pattern_cells(row))
        )
        verdict = "" if row.verdict is None else badge(row.verdict)
        rows.append(f"<tr>{cells}<td>{verdict}</td><td>{escape(row.reason or '')}</td></tr>")
    table = (
        f'<div class="wide"><table id="{escape(name)}"><thead><tr>{head}<th></th><th></th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    return (
        f"<h2>Pattern {escape(pattern.name)}</h2><p>{escape(pattern_line(pattern))}.</p>"
        f"{figure}{table}"
    )


def _number(place: int) -> str:
    """The class of a pattern's column: type and receiver are names."""
    return "" if place < 2 else ' class="number"'


def own_figures(own: Sequence[Drawn], figures: dict[str, Any]) -> str:
    """The experiment's own figures; adds their data to `figures`."""
    html = "<h2>Figures</h2>"
    for each in own:
        html += _figure(f"own-{each.figure.name}", each.title, own_chart(each), figures)
    return html


def value_table(results: Results) -> str:
    """The values of `measure.values`; nothing where there are none."""
    if not results.values:
        return ""
    rows = (
        f"<tr><th>{escape(each.name)}</th>"
        f'<td class="number" data-value="{_value(each.value)}">{escape(shown)}</td>'
        f"<td>{escape(value_source(each))}</td></tr>"
        for each, shown in value_rows(results)
    )
    return f'<h2>Values</h2><table id="values"><tbody>{"".join(rows)}</tbody></table>'


def _path_figures(
    path: MessagePath, results: Results, marks: Sequence[Mark], among: int, figures: dict[str, Any]
) -> str:
    """`among`: how many ends all paths have."""
    html = f"<h2>Path {escape(path.name)}</h2>"
    parts = parts_of(results, path)
    hops = hops_chart(results, path, parts, marks)
    arrived = [ends for ends in path.ends if len(parts[ends].intervals.length)]
    if hops is None and not arrived:
        return f"{html}<p>No message was seen.</p>"
    for ends in path.ends:
        if ends in arrived:
            for name, title, chart in end_charts(results, path, parts, ends, marks, among):
                html += _figure(name, title, chart, figures)
        else:
            part = parts[ends]
            way = f", {part.intervals.first} → {part.intervals.last}"
            html += f"<p>No message arrived{escape(way)}.</p>"
    if arrived:
        if path.name in results.graph_messages:
            chart = waterfall.chart(graph_waterfall.usual(results.graph_messages[path.name]))
            chart = replace(chart, caption=waterfall.GRAPH_CAPTION)
        else:
            chart = waterfall.chart(waterfall.usual(results.messages[path.name]))
        html += _figure(f"waterfall-{path.name}", "Single messages", chart, figures)
    if hops is not None:
        html += _figure(f"hops-{path.name}", "Time of each hop", hops, figures)
    return html


def _timeline(run: Run, results: Results, figures: dict[str, Any]) -> str:
    """Around the slowest message of the first path that has one; nothing where none was seen."""
    window = host_timeline.slowest(results, None, None)
    if window is None:
        return ""
    chart = host_timeline.chart(host_timeline.read_timeline(run, results, window))
    return f"<h2>Hosts</h2>{_figure('timeline', 'Time line of the hosts', chart, figures)}"


def _figure(name: str, title: str, chart: Chart, figures: dict[str, Any]) -> str:
    """Its place in the page; adds its data to `figures`."""
    figures[name] = page_figure(chart)
    return (
        f'<figure><h3>{escape(title)}</h3><div class="plot" data-figure="{escape(name)}"></div>'
        f"<figcaption>{escape(chart.subtitle)}</figcaption></figure>"
    )


def badge(verdict: Verdict) -> str:
    symbol = _SYMBOL[verdict]
    return f'<span class="badge {str(verdict).lower()}">{symbol} {verdict}</span>'


def expectation_table(results: Results) -> str:
    if results.verdict is None:
        return "<p>Nothing was expected of this run.</p>"
    rows = [
        f"<tr><td>{badge(each.verdict)}</td><td><code>{escape(each.text)}</code></td>"
        f'<td class="number" data-value="{_value(each.measured)}">{escape(measured(each))}</td>'
        f"<td>{escape(each.reason or '')}{_deciding(each)}</td></tr>"
        for each in results.expectations
    ]
    rows += [
        f"<tr><td>{badge(pattern.verdict)}</td><td>every target of {escape(pattern.name)}</td>"
        f'<td class="number">{escape(pattern_line(pattern))}</td><td></td></tr>'
        for pattern in results.patterns
        if pattern.verdict is not None
    ]
    head = '<tr><th></th><th>expected</th><th class="number">measured</th><th></th></tr>'
    return f'<table id="expectations"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


def _deciding(expectation: ExpectationResult) -> str:
    cases = deciding(expectation)
    return f'<p class="note">{escape(cases)}</p>' if cases else ""


def problem_list(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f'<section class="problems"><h2>Problems</h2><ul>{items}</ul></section>'


def interval_table(results: Results) -> str:
    if not results.paths:
        return ""
    head = "".join(f'<th class="number">{escape(name)}</th>' for name in headings(results))
    rows = "".join(map(_interval_row, interval_rows(results)))
    return (
        f'<div class="wide"><table id="intervals" class="intervals"><thead><tr><th></th>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _interval_row(row: IntervalRow) -> str:
    cells = "".join(map(_cell, row.cells))
    ends = escape(row.ends)
    if row.name:
        label = f'<strong>{escape(row.name)}</strong><span class="ends">{ends}</span>'
        return f'<tr class="path"><th>{label}</th>{cells}</tr>'
    return f"<tr><th>{ends}</th>{cells}</tr>"


def network_tables(results: Results) -> str:
    """Paths that are graphs, and what the emulated links did; nothing where there were none."""
    return "".join(map(_network, (*graph_tables(results), *tables(results))))


def _network(table: Table) -> str:
    head = "".join(f'<th class="number">{escape(name)}</th>' for name in table.headings)
    rows = "".join(map(_network_row, table.rows))
    return (
        f'<section><h2>{escape(table.title)}</h2><div class="wide"><table id="{table.name}">'
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="note">{escape(table.note)}</p></section>'
    )


def _network_row(row: Row) -> str:
    start = '<tr class="path">' if row.heads else "<tr>"
    return f"{start}<th>{escape(row.label.strip())}</th>{''.join(map(_cell, row.cells))}</tr>"


def _cell(cell: Cell) -> str:
    value, bracket, interval = cell.text.partition(" (")
    shown = escape(value)
    if bracket:
        shown += f' <span class="ends">({escape(interval)}</span>'
    return f'<td class="number" data-value="{_value(cell.value)}">{shown}</td>'


def _value(value: float | None) -> str:
    return "" if value is None else str(value)


def _drops(results: Results) -> str:
    if not results.loss.drops:
        return ""
    rows = "".join(
        f"<tr><td>{escape(drop.host)}</td><td>{escape(drop.process)}</td>"
        f"<td><code>{escape(drop.entity)}</code></td><td>{escape(drop.cause)}</td>"
        f'<td class="number">{number(drop.count)}</td></tr>'
        for drop in results.loss.drops
    )
    names = ("host", "component", "event", "cause", "dropped")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _clock(results: Results) -> str:
    hosts = (f"{escape(each.host)} {escape(clock_line(each))}" for each in results.clock.hosts)
    lines = [escape(line) for line in (loops_line(results), probes_line(results)) if line]
    return "<br>".join([", ".join(f"<span>{host}</span>" for host in hosts), *lines])


def _clocks(results: Results, hosts: Sequence[ClockDrawing], figures: dict[str, Any]) -> str:
    """What happened to clocks, how well they agree, and their figures; nothing where there is
    none of it."""
    events = (clock_event_cells(each) for each in results.clock.events)
    html = _clock_table("clock-events", CLOCK_EVENT_HEADINGS, list(events))
    html += _clock_table(
        "clock-loops", LOOP_HEADINGS, [loop_cells(each) for each in results.clock.loops]
    )
    for name in CLOCK_CHARTS:
        if has_clock_chart(name, hosts):
            html += _figure(name, *clock_chart(name, hosts), figures)
    return f"<h2>Clocks</h2>{html}" if html else ""


def _clock_table(name: str, headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Nothing where there are no rows."""
    if not cells:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in cells
    )
    return (
        f'<div class="wide"><table id="{name}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cost(results: Results) -> str:
    line = cost_line(results)
    return f'<dt>cost</dt><dd id="cost">{escape(line)}</dd>' if line else ""


def environment_table(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    """What was noted of each host; groups of many entries are folded."""
    if not hosts:
        return "<p>Nothing was noted.</p>"
    flat = {host: dict(_flattened(environment)) for host, environment in hosts.items()}
    groups: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for each in flat.values() for key in each):
        groups.setdefault(key.partition(".")[0], []).append(key)
    shown = [key for keys in groups.values() if len(keys) <= _FEW for key in keys]
    html = _environment_rows(flat, shown)
    for group, keys in groups.items():
        if len(keys) > _FEW:
            unlike = sum(len({each.get(key, ABSENT) for each in flat.values()}) > 1 for key in keys)
            note = f", {number(unlike)} of them not the same on all hosts" if unlike else ""
            html += (
                f"<details><summary>{escape(group)}: {number(len(keys))} entries{note}</summary>"
                f"{_environment_rows(flat, keys)}</details>"
            )
    return html


def _environment_rows(flat: Mapping[str, Mapping[str, str]], keys: Sequence[str]) -> str:
    rows = []
    for key in keys:
        values = [each.get(key, ABSENT) for each in flat.values()]
        if len(set(values)) == 1:
            cells = f'<td colspan="{len(values)}">{escape(values[0])}</td>'
        else:
            cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        rows.append(f"<tr><th>{escape(key)}</th>{cells}</tr>")
    head = "".join(f"<th>{escape(host)}</th>" for host in flat)
    return (
        f'<div class="wide"><table class="environment"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _flattened(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield from _flattened(each, f"{prefix}{key}.")
        elif isinstance(each, list):
            yield f"{prefix}{key}", ", ".join(str(item) for item in each)
        else:
            yield f"{prefix}{key}", ABSENT if each is None else str(each)


def _embedded(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return to_json(value, ensure_ascii=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("loopscope.report").joinpath(name).read_text(encoding="utf-8")
