"""Rows of targets as a table, and what several rounds of a figure come to."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
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


def verdicts(rows: Iterable[Row]) -> dict[str, str]:
    """The verdict of each row that has one, by its name.

    The name of an indented row follows that of the row that it is below. A name that is taken has
    a number behind it, so no row hides another one's verdict.
    """
    found: dict[str, str] = {}
    taken: Counter[str] = Counter()
    above = ""
    for row in rows:
        name = row.what
        if name.startswith(" "):
            name = f"{above}: {name.strip()}"
        else:
            above = name
        if row.verdict:
            taken[name] += 1
            found[f"{name} ({taken[name]})" if taken[name] > 1 else name] = row.verdict
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
    }


CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Ends of an interval that has the median of what was drawn from, with `CONFIDENCE`.

    They are two of the values by their order, so they hold for any distribution: of n values as
    many are below its median as of n throws of a coin are heads. None of too few values.
    """
    count, place, fewer = len(values), 0, 0
    # `fewer`: the sequences of throws with fewer heads than `place`.
    while fewer + comb(count, place) <= (1 - CONFIDENCE) / 2 * 2**count:
        fewer += comb(count, place)
        place += 1
    ordered = sorted(values)
    return (ordered[place - 1], ordered[-place]) if place else None


def added(with_it: Sequence[float], without: Sequence[float]) -> dict[str, float | None]:
    """By how much more the one has than the other of the same round: the median, its interval."""
    differences = [more - less for more, less in zip(with_it, without, strict=False)]
    low, high = median_interval(differences) or (None, None)
    return {
        "median": round(statistics.median(differences), 4),
        "low": None if low is None else round(low, 4),
        "high": None if high is None else round(high, 4),
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
