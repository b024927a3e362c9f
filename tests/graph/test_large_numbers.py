"""Whole numbers beyond 2^63 in the tables of runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from small_tables import graph_of

from loopscope.graph.engine import DuckDB
from loopscope.graph.execution import Inputs, check, make
from loopscope.graph.tables import Part, Stored, _types


def test_numbers_that_no_engine_holds_are_texts_and_keys(tmp_path: Path, duckdb: DuckDB) -> None:
    parts = []
    for repeat, macs in ((1, [1, 2, 2]), (2, [2, (1 << 64) - 1, (1 << 63) - 1])):
        file = tmp_path / f"{repeat}.parquet"
        columns = {"ts": [1, 2, 3], "mac": pa.array(macs, pa.uint64()), "small": [0, 1, 2]}
        pq.write_table(pa.table(columns), file)
        parts.append(Part((file,), {"run": "r", "point": "base", "repeat": repeat}))
    types = _types("a.a", parts)
    assert (types["mac"], types["small"]) == ("string", "int64")
    steps = "[{group: {by: [mac], derive: {n: count(), last: max(ts)}}}]"
    graph = graph_of(f"made: {{from: a.a, steps: {steps}}}")
    source = Inputs(("r",), {"a.a": Stored(tuple(parts), types)}, {})
    assert check(graph, source) == []
    make(graph, "test", source, duckdb, tmp_path / "out", lambda text: None)
    rows = pq.read_table(tmp_path / "out/tables/made.parquet").to_pylist()
    assert {row["mac"]: row["n"] for row in rows} == {
        "1": 1,
        "2": 3,
        str((1 << 63) - 1): 1,
        str((1 << 64) - 1): 1,
    }
