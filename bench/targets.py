"""Rows of targets as a table, and what several rounds of a figure come to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOT_MEASURED = "not measured"


@dataclass
class Row:
    """One target."""

    what: str
    target: str
    measured: str
    ratio: str
    verdict: str


Parts = Mapping[str, Callable[[Any], Iterable[Row]]]
"""By the figure whose results they take."""


def rows(parts: Parts, results: Mapping[str, Any]) -> list[Row]:
    """The targets of all that was measured."""
    return [
        row for figure, part in parts.items() if figure in results for row in part(results[figure])
    ]


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
    }


def render(rows: Iterable[Row], notes: Iterable[str]) -> str:
    """The table as text, its notes below."""
    table = [Row("what", "target", "measured", "ratio", "verdict"), *rows]
    cells = [[row.what, row.target, row.measured, row.ratio, row.verdict] for row in table]
    widths = [max(len(row[i]) for row in cells) for i in range(5)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    ]
    return "\n".join([*lines, *(f"* {note}" for note in notes)])
