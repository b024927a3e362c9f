"""The results on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from loopscope.analysis import Results, Verdict
from loopscope.report.rows import (
    IntervalRow,
    clock_line,
    cost_line,
    headings,
    interval_rows,
    loss_line,
    measured,
)

_STYLE = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "bold yellow"}
_GAP = "  "


def render(results: Results, console: Console | None = None) -> None:
    """Intervals, expectations, loss, clock, problems; then the verdict, where one is due."""
    console = console or Console()
    width = console.width if console.is_terminal else None
    lines = [
        *([*_intervals(results, width), Text()] if results.paths else []),
        *_expectations(results),
        Text.assemble(("events  ", "dim"), loss_line(results.loss)),
        *_clock(results),
        *([Text.assemble(("cost    ", "dim"), cost_line(results))] if results.subtracted else []),
        *(Text.assemble(("problem ", "yellow"), problem) for problem in results.problems),
    ]
    if results.verdict is not None:
        lines.append(Text(str(results.verdict), _STYLE[results.verdict]))
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def _intervals(results: Results, width: int | None) -> list[Text]:
    """A table; where the terminal is too narrow, each label stands above its numbers."""
    rows, heads = interval_rows(results), headings(results)
    columns = [
        max(len(head), *(len(row.cells[i].text) for row in rows)) for i, head in enumerate(heads)
    ]
    label = max(len(row.label) for row in rows)
    beside = width is None or label + sum(len(_GAP) + column for column in columns) <= width
    gap = _GAP if beside else " "

    def numbers(texts: list[str]) -> str:
        return "".join(
            gap + text.rjust(column) for text, column in zip(texts, columns, strict=False)
        )

    lines = [Text(" " * (label if beside else 0) + numbers(heads), "dim")]
    for row in rows:
        text = numbers([cell.text for cell in row.cells])
        if beside:
            gap_after = " " * (label - len(row.label))
            lines.append(Text.assemble((row.label, _style(row)), gap_after, text))
        else:
            lines += [Text(row.label, _style(row)), Text(text)]
    return lines


def _style(row: IntervalRow) -> str:
    return "bold" if row.name else ""


def _expectations(results: Results) -> list[Text]:
    longest = max((len(each.text) for each in results.expectations), default=0)
    lines = []
    for each in results.expectations:
        verdict = (f"{each.verdict!s:<7}", _STYLE[each.verdict])
        reason = (f"  {each.reason}" if each.reason else "", "dim")
        said = f"  {each.text:<{longest}}  {measured(each)}"
        lines.append(Text.assemble(verdict, said, reason))
    return [*lines, Text()] if lines else []


def _clock(results: Results) -> list[Text]:
    hosts = [f"{each.host} {clock_line(each)}" for each in results.clock]
    return [Text.assemble(("clock   ", "dim"), ", ".join(hosts))] if hosts else []
