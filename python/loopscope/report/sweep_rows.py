"""A sweep's points as rows of text, the same on the terminal and on the page."""

from __future__ import annotations

from dataclasses import dataclass

from loopscope.analysis import PointResult, SweepResults
from loopscope.analysis.quantity_text import quantity
from loopscope.report.rows import ABSENT, Cell


@dataclass(frozen=True)
class PointRow:
    point: PointResult
    params: tuple[str, ...]
    """Values of the sweep's parameters; empty where this point sets none."""
    cells: tuple[Cell, ...]
    """Cells of the table's statistics."""

    @property
    def ending(self) -> str:
        """The verdict, or that there is none."""
        if self.point.error is not None:
            return self.point.status
        return "" if self.point.verdict is None else str(self.point.verdict)


def parameters(sweep: SweepResults) -> list[str]:
    """The swept parameters' names."""
    return list(dict.fromkeys(name for point in sweep.points for name in point.params))


def columns(sweep: SweepResults) -> list[str]:
    """The headings of the table's statistics."""
    return [each.text for each in sweep.experiment.table]


def point_rows(sweep: SweepResults) -> list[PointRow]:
    names = parameters(sweep)
    return [
        PointRow(
            point,
            tuple(str(point.params.get(name, "")) for name in names),
            tuple(_cell(point, text) for text in columns(sweep)),
        )
        for point in sweep.points
    ]


def _cell(point: PointResult, text: str) -> Cell:
    found = point.statistic(text)
    if found is None or found.value is None:
        return Cell(ABSENT, None)
    return Cell(quantity(found.value, found.unit), found.value)
