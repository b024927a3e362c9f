"""The interrupts of kernels' processors as slices of a Perfetto trace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from loopscope.analysis.interrupts import CLASSES, SOURCES

if TYPE_CHECKING:
    from loopscope.analysis.interrupts import Source
    from loopscope.timeline import Run
    from loopscope.timeline.relation import Relation

_NEXT = "OVER (PARTITION BY host, cpu, event ORDER BY ts, counter)"


def recorded(run: Run) -> list[Source]:
    """The pairs of tables that tell of interrupts, of those that the run has."""
    return [
        source
        for source in SOURCES
        if {*source.tables} <= {*run.tables}
        and source.columns <= {*run.relation(source.tables[0]).columns}
    ]


def interrupts(run: Run, repeat: int, sources: list[Source]) -> Iterator[dict[str, Any]]:
    """`kind`, `name`, `host`, `cpu`, `ts`, `until`, `tid` and `err_ns` of each of a repeat's.

    Those of a kind come in the order of their begins. Each is from an entry to the exit that
    follows it; entries and exits without the other one are none.
    """
    for kind in CLASSES:
        ends = [_ends(run, repeat, source) for source in sources if source.kind == kind]
        if not ends:
            continue
        following = f"*, lead(ts) {_NEXT} AS until, lead(enters) {_NEXT} AS again"
        whole = reduce(lambda a, b: a.union(b), ends).project(following)
        rows = whole.filter("enters AND NOT again").order("ts, counter")
        for batch in rows.to_arrow_reader():
            yield from batch.to_pylist()


def _ends(run: Run, repeat: int, source: Source) -> Relation:
    """The entries and the exits of a pair of tables."""
    entries, exits = (
        run.relation(table)
        .filter(f"repeat = {repeat}")
        .project(
            f"'{source.kind}' AS kind, '{source.event}' AS event, host, cpu, ts, counter, tid, "
            f"err_ns, ({name})::VARCHAR AS name, {enters} AS enters"
        )
        for table, name, enters in zip(
            source.tables, (source.shown[0], "NULL"), (True, False), strict=True
        )
    )
    return entries.union(exits)
