"""The results as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from loopscope.analysis import Results, Verdict
from loopscope.analysis.quantity import number
from loopscope.report import interactive
from loopscope.report.rows import (
    ABSENT,
    Cell,
    IntervalRow,
    clock_line,
    cost_line,
    headings,
    interval_rows,
    loss_line,
    measured,
)
from loopscope.report.series import Drawings, PathDrawing
from loopscope.timeline import Run

_SYMBOL = {Verdict.PASS: "✓", Verdict.FAIL: "✕", Verdict.UNKNOWN: "?"}


def page(run: Run, results: Results, drawings: Drawings) -> str:
    figures: dict[str, Any] = {}
    sections = [_path_figures(path, figures) for path in drawings.paths]
    if drawings.clock:
        caption = (
            "How each host's clock wandered against the reference: its offset, less what its mean "
            "rate explains; the band is the clock's error. The line is its rate against nominal."
        )
        figures["clock"] = interactive.clock(drawings.clock)
        sections.append(f"<h2>Clocks</h2>{_figure('clock', 'Clock offset and rate', caption)}")
    repeats = "1 repeat" if results.repeats == 1 else f"{number(results.repeats)} repeats"
    return Template(_asset("page.html")).substitute(
        title=escape(f"{results.experiment} · {results.run}"),
        experiment=escape(results.experiment),
        run=escape(results.run),
        repeats=repeats,
        verdict="" if results.verdict is None else _badge(results.verdict),
        expectations=_expectations(results),
        problems=_problems(results),
        intervals=_intervals(results),
        loss=escape(loss_line(results.loss)),
        drops=_drops(results),
        clock=_clock(results),
        cost=_cost(results),
        environment=_environment(run.environment),
        sections="".join(sections),
        style=_asset("page.css"),
        plotly=_plotly(),
        script=_asset("page.js"),
        results=_embedded(results.to_dict()),
        figures=_embedded(figures),
    )


def _path_figures(path: PathDrawing, figures: dict[str, Any]) -> str:
    name = escape(path.name)
    if path.response is None and not path.hops:
        return f"<h2>Path {name}</h2><p>No message was seen.</p>"
    html = f"<h2>Path {name}</h2>"
    if path.response is not None:
        time, histogram = f"response-time-{path.name}", f"response-histogram-{path.name}"
        figures[time] = interactive.response_time(path)
        figures[histogram] = interactive.response_histogram(path)
        caption = interactive.interval_caption(path.response)
        ends = f"{path.response.first} → {path.response.last}"
        html += _figure(time, f"End-to-end response time, {ends}", caption)
        caption = interactive.histogram_caption(path.response)
        html += _figure(histogram, "Distribution of the response time", caption)
    if path.hops:
        hops = f"hops-{path.name}"
        figures[hops] = interactive.hops(path)
        html += _figure(hops, "Time of each hop", interactive.hops_caption(path.hops))
    return html


def _figure(name: str, title: str, caption: str) -> str:
    return (
        f'<figure><h3>{escape(title)}</h3><div class="plot" data-figure="{escape(name)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _badge(verdict: Verdict) -> str:
    symbol = _SYMBOL[verdict]
    return f'<span class="badge {str(verdict).lower()}">{symbol} {verdict}</span>'


def _expectations(results: Results) -> str:
    if not results.expectations:
        return "<p>Nothing was expected of this run.</p>"
    rows = (
        f"<tr><td>{_badge(each.verdict)}</td><td><code>{escape(each.text)}</code></td>"
        f'<td class="number" data-value="{_value(each.measured)}">{escape(measured(each))}</td>'
        f"<td>{escape(each.reason or '')}</td></tr>"
        for each in results.expectations
    )
    head = '<tr><th></th><th>expected</th><th class="number">measured</th><th></th></tr>'
    return f'<table id="expectations"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


def _problems(results: Results) -> str:
    if not results.problems:
        return ""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in results.problems)
    return f'<section class="problems"><h2>Problems</h2><ul>{items}</ul></section>'


def _intervals(results: Results) -> str:
    head = "".join(f'<th class="number">{escape(name)}</th>' for name in headings(results))
    rows = "".join(map(_interval_row, interval_rows(results)))
    return (
        f'<div class="wide"><table id="intervals"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _interval_row(row: IntervalRow) -> str:
    cells = "".join(map(_cell, row.cells))
    ends = f"{escape(row.first)} → {escape(row.last)}"
    if row.name:
        label = f'<strong>{escape(row.name)}</strong><span class="ends">{ends}</span>'
        return f'<tr class="path"><th>{label}</th>{cells}</tr>'
    return f"<tr><th>{ends}</th>{cells}</tr>"


def _cell(cell: Cell) -> str:
    return f'<td class="number" data-value="{_value(cell.value)}">{escape(cell.text)}</td>'


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
    hosts = (f"{escape(each.host)} {escape(clock_line(each))}" for each in results.clock)
    return ", ".join(f"<span>{host}</span>" for host in hosts)


def _cost(results: Results) -> str:
    line = cost_line(results)
    return f'<dt>cost</dt><dd id="cost">{escape(line)}</dd>' if line else ""


def _environment(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    if not hosts:
        return "<p>Nothing was noted.</p>"
    flat = {host: dict(_flattened(environment)) for host, environment in hosts.items()}
    rows = []
    for key in dict.fromkeys(key for each in flat.values() for key in each):
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
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("loopscope.report").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script
