"""The table of paths and hops as CSV, with times in ns and an empty cell for what is not known."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import TextIO

from loopscope.analysis import Results, SweepResults
from loopscope.report.rows import COLUMNS
from loopscope.report.sweep_rows import parameters

_ENDS = ("path", "repeat", "hop", "from", "to")


def write_csv(results: Results | SweepResults, file: TextIO) -> None:
    """Writes a row for each path and each of its hops.

    And one for each repeat of a path where there are several. ``repeat`` is empty in rows of all
    repeats, ``hop`` is empty in rows of whole paths. The rows of a sweep begin with the point's
    parameters; a point without results has none.

    Raises OSError.
    """
    writer = csv.writer(file, lineterminator="\n")
    swept = parameters(results) if isinstance(results, SweepResults) else []
    writer.writerow([*swept, *_ENDS, *(column.name for column in COLUMNS)])
    if isinstance(results, Results):
        writer.writerows(_rows(results))
        return
    for point in results.points:
        if point.results is not None:
            params = [point.params.get(name) for name in swept]
            writer.writerows([*params, *row] for row in _rows(point.results))


def _rows(results: Results) -> Iterator[list[str | int | float | None]]:
    for path in results.paths:
        repeats = [(repeat, None, each) for repeat, each in (path.loop.by_repeat or {}).items()]
        hops = [(None, number, hop) for number, hop in enumerate(path.hops, start=1)]
        for repeat, hop, interval in [(None, None, path.loop), *repeats, *hops]:
            values = [column.cell(interval).value for column in COLUMNS]
            yield [path.name, repeat, hop, interval.first, interval.last, *values]
