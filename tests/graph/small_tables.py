"""Small tables given as Python's own rows, and what a graph makes of them."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loopscope.experiment import Graph, load_graph
from loopscope.graph.engine import Engine
from loopscope.graph.execution import Inputs, check, make
from loopscope.graph.tables import Part, Stored

Row = dict[str, Any]
TYPES = {
    "repeat": "int64",
    "ts": "int64",
    "err_ns": "int64",
    "id": "int64",
    "host": "string",
    "x": "int64",
    "real": "float64",
}
"""Columns of every small table; a row may leave any but `repeat` out, which is null there."""


def stored(rows: Sequence[Row], folder: Path, name: str) -> Stored:
    """A table of a run with a file for each repeat."""
    parts = []
    for repeat in sorted({row["repeat"] for row in rows} or {1}):
        own = [row for row in rows if row["repeat"] == repeat]
        columns = {
            key: pa.array([row.get(key) for row in own], pa.type_for_alias(dtype))
            for key, dtype in TYPES.items()
            if key != "repeat"
        }
        file = folder / f"{name}-{repeat}.parquet"
        pq.write_table(pa.table(columns), file)
        parts.append(Part((file,), {"run": "r", "point": "base", "repeat": repeat}))
    return Stored(tuple(parts), {"run": "string", "point": "string", **TYPES})


def graph_of(text: str) -> Graph:
    """The graph of the text under `analyse`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.yaml"
        file.write_text("analyse:\n" + textwrap.indent(text, "  "))
        return load_graph(file)


def made_of(
    steps: str, tables: Mapping[str, Sequence[Row]], engine: Engine, begin: str = "a.a"
) -> list[Row]:
    """The rows that steps, as in a file, make of the table `begin`, without run and point."""
    graph = graph_of(f"made: {{from: {begin}, steps: {steps}}}")
    with tempfile.TemporaryDirectory() as folder:
        known = {name: stored(rows, Path(folder), name) for name, rows in tables.items()}
        source = Inputs(("r",), known, {})
        assert check(graph, source) == []
        make(graph, "test", source, engine, Path(folder) / "out", lambda text: None)
        rows: list[Row] = pq.read_table(Path(folder) / "out/tables/made.parquet").to_pylist()
    return [
        {key: value for key, value in row.items() if key not in ("run", "point")} for row in rows
    ]


def alike(found: Sequence[Row], wanted: Sequence[Row], *order: str) -> None:
    """Asserts that both have the same rows, whatever their order; reals to 12 digits."""

    def comparable(row: Row) -> tuple[tuple[str, str], ...]:
        return tuple(
            (key, f"{value:.12g}" if isinstance(value, float) else repr(value))
            for key, value in sorted(row.items())
        )

    assert sorted(map(comparable, found)) == sorted(map(comparable, wanted))
