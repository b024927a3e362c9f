"""The results on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from loopscope.analysis import Results, Verdict
from loopscope.analysis.results import PatternResult
from loopscope.report.channel_rows import channel_tables
from loopscope.report.dag_rows import graph_tables
from loopscope.report.link_rows import Table, tables
from loopscope.report.rows import (
    PATTERN_HEADINGS,
    IntervalRow,
    clock_texts,
    cost_line,
    deciding,
    headings,
    interval_rows,
    kernel_line,
    loops_line,
    loss_line,
    measured,
    pattern_cells,
    pattern_line,
    probes_line,
    value_rows,
    value_source,
    watched_line,
)

STYLE = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "bold yellow"}
_GAP = "  "


def render(results: Results, console: Console | None = None) -> None:
    """Intervals, expectations, loss, clock, problems; then the verdict, where one is due."""
    console = console or Console()
    width = console.width if console.is_terminal else None
    lines = [
        *([*_intervals(results, width), Text()] if results.paths else []),
        *(line for pattern in results.patterns for line in _pattern(pattern)),
        *_values(results),
        *(
            line
            for table in (*graph_tables(results), *tables(results), *channel_tables(results))
            for line in _network(table, width)
        ),
        *_expectations(results),
        Text.assemble(("events  ", "dim"), loss_line(results.loss)),
        *_kernel(results),
        *_clock(results),
        *([Text.assemble(("cost    ", "dim"), cost_line(results))] if results.subtracted else []),
        *(Text.assemble(("problem ", "yellow"), problem) for problem in results.problems),
    ]
    if results.verdict is not None:
        lines.append(Text(str(results.verdict), STYLE[results.verdict]))
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def _intervals(results: Results, width: int | None) -> list[Text]:
    rows = [
        (Text(row.label, _style(row)), [cell.text for cell in row.cells])
        for row in interval_rows(results)
    ]
    return _table(headings(results), rows, width)


def _network(table: Table, width: int | None) -> list[Text]:
    rows = [
        (Text(row.label, "bold" if row.heads else ""), [cell.text for cell in row.cells])
        for row in table.rows
    ]
    lines = _table(table.headings, rows, width)
    return [Text(table.title, "bold"), *lines, Text(table.note, "dim"), Text()]


def _table(
    heads: Sequence[str], rows: Sequence[tuple[Text, list[str]]], width: int | None
) -> list[Text]:
    """Where the terminal is too narrow, each label stands above its numbers."""
    columns = [max(len(head), *(len(row[i]) for _, row in rows)) for i, head in enumerate(heads)]
    label = max(len(row) for row, _ in rows)
    beside = width is None or label + sum(len(_GAP) + column for column in columns) <= width
    gap = _GAP if beside else " "

    def numbers(texts: Sequence[str]) -> str:
        return "".join(
            gap + text.rjust(column) for text, column in zip(texts, columns, strict=False)
        )

    lines = [Text(" " * (label if beside else 0) + numbers(heads), "dim")]
    for name, cells in rows:
        text = numbers(cells)
        if beside:
            lines.append(Text.assemble(name, " " * (label - len(name)), text.rstrip()))
        else:
            lines += [name, *([Text(text.rstrip())] if text.strip() else [])]
    return lines


def _pattern(pattern: PatternResult) -> list[Text]:
    """A table of its rows, then how many targets were met."""
    table = [[cell.text for cell in pattern_cells(row)] for row in pattern.rows]
    widths = [max(map(len, column)) for column in zip(PATTERN_HEADINGS, *table, strict=True)]

    def line(cells: Sequence[str]) -> str:
        # Names to the left, numbers to the right.
        names = [text.ljust(width) for text, width in zip(cells[:2], widths[:2], strict=True)]
        numbers = [text.rjust(width) for text, width in zip(cells[2:], widths[2:], strict=True)]
        return _GAP.join([*names, *numbers])

    lines = [Text(line(PATTERN_HEADINGS), "dim")]
    for cells, row in zip(table, pattern.rows, strict=True):
        verdict = ("", "") if row.verdict is None else (f"{row.verdict!s:<7}", STYLE[row.verdict])
        reason = (f"  {row.reason}" if row.reason else "", "dim")
        lines.append(Text.assemble(line(cells), _GAP, verdict, reason))
    said = f"{pattern.name}: {pattern_line(pattern)}"
    return [*lines, Text(said, "bold"), Text()]


def _style(row: IntervalRow) -> str:
    return "bold" if row.name else ""


def _values(results: Results) -> list[Text]:
    rows = value_rows(results)
    name = max((len(each.name) for each, _ in rows), default=0)
    shown = max((len(text) for _, text in rows), default=0)
    lines = [
        Text.assemble(f"{each.name:<{name}}  {text:>{shown}}  ", (value_source(each), "dim"))
        for each, text in rows
    ]
    return [*lines, Text()] if lines else []


def _expectations(results: Results) -> list[Text]:
    longest = max((len(each.text) for each in results.expectations), default=0)
    lines = []
    for each in results.expectations:
        verdict = (f"{each.verdict!s:<7}", STYLE[each.verdict])
        reason = (f"  {each.reason}" if each.reason else "", "dim")
        said = f"  {each.text:<{longest}}  {measured(each)}"
        lines.append(Text.assemble(verdict, said, reason))
        if cases := deciding(each):
            lines.append(Text(f"         {cases}", "dim"))
    return [*lines, Text()] if lines else []


def _kernel(results: Results) -> list[Text]:
    lines = {"watched ": watched_line(results), "kernel  ": kernel_line(results)}
    return [Text.assemble((name, "dim"), line) for name, line in lines.items() if line]


def _clock(results: Results) -> list[Text]:
    hosts = clock_texts(results.clock.hosts)
    lines = [", ".join(hosts), loops_line(results), probes_line(results)]
    return [Text.assemble(("clock   ", "dim"), line) for line in lines if line]
