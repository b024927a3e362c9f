"""Pages from the templates in `templates/`, which escape what they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from loopscope.analysis import Verdict
from loopscope.analysis.quantity_text import number
from loopscope.report import rows
from loopscope.report.channel_rows import channel_tables
from loopscope.report.chart import Chart
from loopscope.report.chart_page import page_figure
from loopscope.report.dag_rows import graph_tables
from loopscope.report.link_rows import tables
from loopscope.report.rows import ABSENT
from loopscope.strict_json import to_json

_FEW = 4
"""Entries of a group of the environment that are shown at once."""
_SYMBOL = {Verdict.PASS: "✓", Verdict.FAIL: "✕", Verdict.UNKNOWN: "?"}


def render(template: str, **content: Any) -> Markup:
    """The HTML of a template; None is shown as nothing."""
    return Markup(_templates().get_template(template).render(content))


def prepare() -> None:
    """Compiles the templates of a run's page, which takes some time, before they are used."""
    for template in ("run.html", "page.html", "parts.html"):
        _templates().get_template(template)


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("loopscope.report"),
        autoescape=True,
        finalize=lambda value: "" if value is None else value,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters["number"] = number
    made.globals |= {
        "graph_tables": graph_tables,
        "link_tables": tables,
        "channel_tables": channel_tables,
        "rows": rows,
        "symbols": _SYMBOL,
    }
    return made


@dataclass(frozen=True)
class PageFigure:
    """The place of a figure in the page."""

    name: str
    title: str
    caption: str
    width: int = 0
    """In pixels; 0: that of the page."""
    description: str = ""


class PageFigures:
    """The figures of a page."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        """Name to what the page's script draws."""

    def add(self, name: str, title: str, chart: Chart) -> PageFigure:
        self.data[name] = page_figure(chart)
        return PageFigure(name, title, chart.subtitle, chart.width, chart.description)


def render_page(
    template: str, document: Mapping[str, Any], figures: PageFigures, **content: Any
) -> str:
    """A whole page, which contains `document`, the results, and its figures' data as JSON."""
    return render(
        template,
        style=_asset("page.css"),
        plotly=_asset("plotly/plotly-cartesian.min.js"),
        script=_asset("page.js"),
        results_json=_embedded(document),
        figures_json=_embedded(figures.data),
        **content,
    )


@dataclass(frozen=True)
class NotedGroup:
    """Entries of the environment whose names begin alike."""

    name: str
    rows: list[tuple[str, list[str]]]
    """Key and each host's value."""

    @property
    def unlike(self) -> int:
        """Entries that are not the same on all hosts."""
        return sum(len(set(values)) > 1 for _, values in self.rows)


@dataclass(frozen=True)
class Noted:
    """Environment of the hosts, for the page."""

    hosts: list[str]
    shown: list[tuple[str, list[str]]]
    folded: list[NotedGroup]


def environment(hosts: Mapping[str, Mapping[str, Any]]) -> Noted:
    """Environment of each host; groups of many entries are folded."""
    flat = {host: dict(_flattened(each)) for host, each in hosts.items()}
    groups: dict[str, NotedGroup] = {}
    for key in dict.fromkeys(key for each in flat.values() for key in each):
        name = key.partition(".")[0]
        values = [each.get(key, ABSENT) for each in flat.values()]
        groups.setdefault(name, NotedGroup(name, [])).rows.append((key, values))
    shown = [row for group in groups.values() if len(group.rows) <= _FEW for row in group.rows]
    return Noted(list(flat), shown, [each for each in groups.values() if len(each.rows) > _FEW])


def _flattened(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield from _flattened(each, f"{prefix}{key}.")
        elif isinstance(each, list):
            yield f"{prefix}{key}", ", ".join(str(item) for item in each)
        else:
            yield f"{prefix}{key}", ABSENT if each is None else str(each)


def _embedded(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    return Markup(to_json(value, ensure_ascii=False).replace("<", "\\u003c"))


def _asset(name: str) -> Markup:
    return Markup(files("loopscope.report").joinpath(name).read_text(encoding="utf-8"))
