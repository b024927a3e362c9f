"""The step `plot`: files next to the tables, the same each time."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest
from small_tables import graph_of
from synthetic_run import pipeline, with_tables

from loopscope.graph.engine import DuckDB
from loopscope.graph.execution import Written, check, make, read_inputs
from loopscope.timeline import open_run

MESSAGES = 40


def drawn(folder: Path, duckdb: DuckDB, steps: str) -> Written:
    run = folder / "run"
    if not run.exists():
        pipeline(run, messages=MESSAGES).write()
        with_tables(open_run(run))
    graph, source = graph_of(f"a: {{from: hops, steps: {steps}}}"), read_inputs([run])
    assert check(graph, source) == []
    written = make(graph, "test", source, duckdb, folder / "out", lambda text: None)
    return next(each for each in written if each.kind == "figure")


@pytest.mark.parametrize("kind", ["scatter", "histogram", "ccdf", "mean-deviation", "heatmap"])
def test_a_figure_of_a_table(tmp_path: Path, duckdb: DuckDB, kind: str) -> None:
    own = importlib.util.find_spec("loopscope.report.figures") is None
    if own and kind in ("mean-deviation", "heatmap"):
        pytest.skip("SKIPPED LOUDLY: loopscope.report.figures is not there")
    y = "" if kind in ("histogram", "ccdf") else ", y: duration"
    x = "x: duration" if not y else "x: hop" if kind == "mean-deviation" else "x: start"
    steps = f"[plot: {{kind: {kind}, columns: {{{x}{y}}}, name: mine, title: A title}}]"
    found = drawn(tmp_path, duckdb, steps)
    assert found.problem is None and found.rows == MESSAGES * 5
    assert {file.name for file in found.files} == {
        f"mine.{e}" for e in ("svg", "pdf", "png", "csv")
    }
    assert "A title" in (tmp_path / "out/figures/mine.svg").read_text()
    with (tmp_path / "out/figures/mine.csv").open() as numbers:
        assert len(list(csv.reader(numbers))) > 1
    before = {file: file.read_bytes() for file in found.files}
    drawn(tmp_path, duckdb, steps)
    assert {file: file.read_bytes() for file in found.files} == before


def test_nothing_to_draw_is_told_and_loses_nothing_else(tmp_path: Path, duckdb: DuckDB) -> None:
    steps = "[{where: duration < 0}, {plot: {kind: ccdf, columns: {x: duration}}}]"
    found = drawn(tmp_path, duckdb, steps)
    assert found.files == () and found.problem
    assert (tmp_path / "out/tables/a.parquet").exists()
