"""Branching paths as rows of text, the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable

from loopscope.analysis.path_result import FlowResult, GraphResult
from loopscope.analysis.quantity_text import duration, maximum_error, number, quantity
from loopscope.analysis.results import Results
from loopscope.report.link_rows import Row, Table
from loopscope.report.rows import ABSENT, Cell


def graph_tables(results: Results) -> list[Table]:
    """One for each branching path: from each beginning to each end, then every edge."""
    return [_table(graph) for graph in results.graphs]


def _table(graph: GraphResult) -> Table:
    flows = (*graph.ends, *graph.edges)
    # A column in which there is nothing to see is left out.
    columns = [
        (head, cell)
        for head, cell in _COLUMNS.items()
        if head in _ALWAYS or any(cell(flow).value for flow in flows)
    ]
    return Table(
        name=f"graph-{graph.name}",
        title=f"Path {graph.name}",
        headings=("uses", *(head for head, _ in columns)),
        rows=tuple(
            Row(
                f"{'' if flow in graph.ends else '  '}{flow.first} → {flow.last}",
                (Cell(flow.how, None), *(cell(flow) for _, cell in columns)),
                heads=flow in graph.ends,
            )
            for flow in flows
        ),
        note="Of what was sent each message is used, superseded (a newer one was used instead), "
        "lost, unused (nothing was used after it) or undecided (the clock leaves it open). Times "
        "are to the first use, the age is the greatest at any.",
    )


def _count(of: str) -> Callable[[FlowResult], Cell]:
    def cell(flow: FlowResult) -> Cell:
        count: int = getattr(flow, of)
        return Cell(number(count), count)

    return cell


def _time(stat: str) -> Callable[[FlowResult], Cell]:
    return lambda flow: _duration(flow.times[stat])


def _duration(ns: float | None) -> Cell:
    return Cell(ABSENT if ns is None else duration(ns), ns)


def _clock_error(flow: FlowResult) -> Cell:
    if flow.err_ns is not None:
        return Cell(maximum_error(flow.err_ns), flow.err_ns)
    return Cell(ABSENT if flow.times["max"] is None else "unknown", None)


def _rate(flow: FlowResult) -> Cell:
    return Cell(ABSENT if flow.rate_hz is None else quantity(flow.rate_hz, "Hz"), flow.rate_hz)


_ALWAYS = ("sent", "used", "lost", "p50", "p99", "max", "clock error")
_COLUMNS: dict[str, Callable[[FlowResult], Cell]] = {
    "sent": _count("sent"),
    "used": _count("used"),
    "superseded": _count("superseded"),
    "lost": _count("lost"),
    "unused": _count("unused"),
    "undecided": _count("undecided"),
    "dupl.": _count("duplicates"),
    "had none": _count("empty"),
    "may miss": _count("missing"),
    "p50": _time("p50"),
    "p99": _time("p99"),
    "max": _time("max"),
    "clock error": _clock_error,
    "age": lambda flow: _duration(flow.age_ns),
    "rate": _rate,
    "jitter": lambda flow: _duration(flow.jitter_ns),
}
