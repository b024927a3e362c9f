"""The same graphs on DuckDB and on Spark, on two executors of this machine."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from small_tables import Row, stored
from synthetic_run import pipeline, with_tables, write_sweep

from loopscope.analysis import analyse_sweep, write_path_tables
from loopscope.experiment import Graph, load_graph
from loopscope.graph.engine import DuckDB, Engine
from loopscope.graph.execution import Inputs, check, make, read_inputs
from loopscope.graph.mistake import GraphError
from loopscope.timeline import open_run

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-9
"""Of reals, relative: engines add and round in other orders."""


def tables(folder: Path) -> dict[str, pa.Table]:
    found = {file.stem: pq.read_table(file) for file in folder.glob("tables/*.parquet")}
    found |= {file.stem: pyarrow.feather.read_table(file) for file in folder.glob("tables/*.arrow")}
    return found | {file.stem: pa.csv.read_csv(file) for file in folder.glob("tables/*.csv")}


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)


def same(one: Path, other: Path) -> int:
    """Asserts that two outputs have the same tables and logs; how many tables."""
    first, second = tables(one), tables(other)
    assert first.keys() == second.keys()
    for name, table in first.items():
        assert table.schema.equals(second[name].schema), name
        for column in table.column_names:
            a, b = table[column].to_pylist(), second[name][column].to_pylist()
            assert len(a) == len(b) and all(map(equal, a, b)), (name, column)
    for log in one.glob("*.txt"):
        assert log.read_text() == (other / log.name).read_text()
    return len(first)


def without_figures(graph: Graph) -> Graph:
    """Figures are drawn of tables that are compared."""

    def kept(each: Any) -> Any:
        return dataclasses.replace(
            each, steps=tuple(step for step in each.steps if step.kind != "plot")
        )

    return dataclasses.replace(graph, pipelines=tuple(map(kept, graph.pipelines)))


def on_both(graph: Graph, source: Inputs, folder: Path, duckdb: DuckDB, spark: Engine) -> int:
    graph = without_figures(graph)
    assert check(graph, source) == []
    for name, engine in (("duckdb", duckdb), ("spark", spark)):
        make(graph, "test", source, engine, folder / name, lambda text: None)
    return same(folder / "duckdb", folder / "spark")


def test_every_step(tmp_path: Path, duckdb: DuckDB, spark: Engine) -> None:
    chance = random.Random(5)

    def rows(n: int) -> list[Row]:
        return [
            {
                "repeat": chance.choice([1, 2]),
                "ts": chance.randrange(-60, 60),
                "err_ns": chance.choice([0, 1, 7, 1 << 60]),
                "id": chance.randrange(6),
                "host": chance.choice([None, "h1", "h2", "é"]),
                "x": chance.choice([None, chance.randrange(-20, 20)]),
                "real": chance.choice([None, -0.0, float("nan"), chance.uniform(-9, 9)]),
            }
            for _ in range(n)
        ]

    known = {"a.a": stored(rows(1500), tmp_path, "a"), "b.b": stored(rows(40), tmp_path, "b")}
    graph = load_graph(Path(__file__).parent / "every-step.yaml")
    assert on_both(graph, Inputs(("r",), known, {}), tmp_path, duckdb, spark) == 8


def test_the_shipped_graph_of_a_run(tmp_path: Path, duckdb: DuckDB, spark: Engine) -> None:
    run = pipeline(tmp_path / "run", messages=60, repeats=2, lose_every=7).write()
    with_tables(open_run(run))
    graph = load_graph(ROOT / "experiments/graphs/pipeline.yaml")
    assert on_both(graph, read_inputs([run]), tmp_path, duckdb, spark) == 3


def test_the_shipped_graph_of_a_sweep(tmp_path: Path, duckdb: DuckDB, spark: Engine) -> None:
    points = [
        ({"delay": delay}, pipeline(tmp_path / "sweep", messages=1200, seed=seed))
        for seed, delay in enumerate(("0ms", "10ms"))
    ]
    run = write_sweep(points, {})
    analyse_sweep(run, write_path_tables)
    graph = load_graph(ROOT / "experiments/graphs/pipeline-delay-sweep.yaml")
    assert on_both(graph, read_inputs([run]), tmp_path, duckdb, spark) == 3


OWN = """\
import pyarrow as pa
def breaks(batches):
    for batch in batches:
        {}["nix"]
        yield batch
def texts(batches):
    for batch in batches:
        yield pa.record_batch({"x": ["one"]})
"""


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("derive: {far: id * 9223372036854775807}", ""),
        (
            'python: {call: "own:breaks", columns: {x: integer}}',
            "own.py, line 4: KeyError: 'nix'",
        ),
        (
            'python: {call: "own:texts", columns: {x: integer}}',
            "own:texts gave in the column x what is no int64: Failed to parse string: 'one'",
        ),
        (
            "resample: {every: 1ns, derive: {n: count()}}",
            "5000000001 stretches are more than 100000000: choose longer ones",
        ),
    ],
)
@pytest.mark.parametrize("which", ["duckdb", "spark"])
def test_what_fails_with_the_rows_is_told_in_a_line(
    tmp_path: Path, request: pytest.FixtureRequest, which: str, step: str, told: str
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "graph.yaml").write_text(f"analyse: {{a: {{from: a.a, steps: [{step}]}}}}")
    rows = [{"repeat": 1, "ts": ts, "id": 4} for ts in (1, 5_000_000_001)]
    source = Inputs(("r",), {"a.a": stored(rows, tmp_path, "a")}, {})
    graph = load_graph(tmp_path / "graph.yaml")
    engine: Engine = request.getfixturevalue(which)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(GraphError) as failed:
        make(graph, "test", source, engine, tmp_path / "out", lambda text: None)
    if not told:
        told = "[ARITHMETIC_OVERFLOW]" if which == "spark" else "Out of Range Error: Overflow"
    # What is computed while the graph is put together is told of the graph, the rest of a pipeline.
    of, _, what = str(failed.value).partition(": ")
    assert of in ("a", "test") and what.startswith(told) and "\n" not in what
    assert sorted(tmp_path.iterdir()) == before, "nothing is left"


def test_every_shipped_graph_is_compared() -> None:
    shipped = (ROOT / "experiments/graphs").glob("*.yaml")
    assert {file.stem for file in shipped} == {"pipeline", "pipeline-delay-sweep"}


def test_spark_says_nothing_of_itself(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("SKIPPED LOUDLY: needs pyspark and Java")
    start = (
        "import sys, pathlib\n"
        "from loopscope.graph.spark import Spark\n"
        "with Spark('local[1]', pathlib.Path(sys.argv[1])): print('there')\n"
    )
    words = [sys.executable, "-c", start, tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "there\n", "")
