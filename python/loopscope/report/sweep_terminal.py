"""A sweep's results on a terminal: a line for each point, then what was not as expected."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from loopscope.analysis import PointResult, SweepResults, Verdict
from loopscope.analysis.sweep_results import FAILED
from loopscope.report.rows import deciding, measured
from loopscope.report.sweep_rows import columns, parameters, point_rows
from loopscope.report.terminal import STYLE

_GAP = "  "


def render(sweep: SweepResults, console: Console | None = None) -> None:
    """The table, expectations that do not hold, failures, problems, the verdict."""
    console = console or Console()
    lines = [*_table(sweep), Text()]
    for point in sweep.points:
        lines += _remarks(point)
    if sweep.verdict is not None:
        lines.append(Text(str(sweep.verdict), STYLE[sweep.verdict]))
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def _table(sweep: SweepResults) -> list[Text]:
    rows = point_rows(sweep)
    heads = [*parameters(sweep), *columns(sweep)]
    texts = [[*row.params, *(cell.text for cell in row.cells)] for row in rows]
    widths = [max(len(head), *(len(line[i]) for line in texts)) for i, head in enumerate(heads)]

    def line(cells: list[str]) -> str:
        return _GAP.join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    lines = [Text(line(heads), "dim")]
    for row, cells in zip(rows, texts, strict=True):
        verdict = row.point.verdict
        style = STYLE[verdict] if verdict else ""
        if row.point.error is not None:
            style = STYLE[Verdict.FAIL if row.point.status == FAILED else Verdict.UNKNOWN]
        lines.append(Text.assemble(line(cells), _GAP, (row.ending, style)))
    return lines


def _remarks(point: PointResult) -> list[Text]:
    """Lines about a point besides its numbers, its name first; none if all is well."""
    lines = []
    if point.error is not None:
        lines += [Text(f"  {line}") for line in point.error.splitlines()]
    if point.results is not None:
        for each in point.results.expectations:
            if each.verdict is not Verdict.PASS:
                verdict = (f"  {each.verdict!s:<7}", STYLE[each.verdict])
                reason = (f"  {each.reason}" if each.reason else "", "dim")
                lines.append(Text.assemble(verdict, f"  {each.text}  {measured(each)}", reason))
                if cases := deciding(each):
                    lines.append(Text(f"           {cases}", "dim"))
        lines += [
            Text.assemble(("  problem ", "yellow"), problem) for problem in point.results.problems
        ]
    return [Text(point.name, "bold"), *lines] if lines else []
