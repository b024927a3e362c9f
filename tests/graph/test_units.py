"""The units of what graphs derive: on figures' axes, in tables, and refused where they disagree."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_tables import graph_of, stored
from synthetic_run import pipeline, with_tables

from loopscope.graph.engine import DuckDB, Engine
from loopscope.graph.execution import Inputs, check, make, read_inputs
from loopscope.report.analyses import fill
from loopscope.timeline import open_run

MS = 1_000_000
ROWS = [
    {"repeat": 1, "ts": MS * n, "err_ns": 5, "id": n, "host": "h1", "x": n, "real": 1.0}
    for n in range(20)
]


def units(steps: str, folder: Path, engine: Engine, others: str = "") -> dict[str, str]:
    """Those of the columns that steps make of a small table, where they have one."""
    graph = graph_of(f"made: {{from: a.a, steps: {steps}}}{others}")
    source = Inputs(("r",), {"a.a": stored(ROWS, folder, "a.a")}, {})
    assert check(graph, source) == []
    written = make(graph, "test", source, engine, folder / "out", lambda text: None)
    (table,) = (each for each in written if each.name == "made" and each.kind == "table")
    held = pq.read_schema(table.files[0])
    for field in held:
        told = (field.metadata or {}).get(b"unit")
        assert told is None or told.decode() == table.units.get(field.name, "")
    return dict(table.units)


FORMULAS = {
    # Equal units.
    "ts - err_ns": "ns",
    "ts + 20ms": "ns",
    "20ms": "ns",
    "-ts": "ns",
    "abs(ts - 5)": "ns",
    "least(ts, 1s)": "ns",
    "coalesce(ts, 0)": "ns",
    "if(id > 3, ts, null)": "ns",
    "nullif(ts, 0)": "ns",
    "ts % 1ms": "ns",
    "round(real(ts))": "ns",
    "1500B": "B",
    "10Hz + 5kHz": "Hz",
    "1Mbit": "bit/s",
    # Plain numbers and others.
    "ts / 2": "ns",
    "3 * err_ns": "ns",
    "ts // 2": "ns",
    # None.
    "ts / 1ms": "",
    "ts // err_ns": "",
    "ts > 5ms": "",
    "ts / 1ms + 2": "",
    "sqrt(ts / 1ms)": "",
    "length(host)": "",
    # Not known, and not invented.
    "ts * err_ns": "",
    "1000 / ts": "",
    "sqrt(ts)": "",
    "ts * x": "",
    "ts + x": "",
    "x": "",
    # What may be a change of the unit.
    "ts / 1000000": "",
    "real(ts) / 1e6": "",
    "8 * 1500B": "",
}


def test_a_formulas_unit_is_what_its_parts_give(tmp_path: Path, duckdb: DuckDB) -> None:
    derived = ", ".join(f"c{n}: '{text}'" for n, text in enumerate(FORMULAS))
    found = units(f"[{{derive: {{{derived}}}}}]", tmp_path, duckdb)
    assert {text: found.get(f"c{n}", "") for n, text in enumerate(FORMULAS)} == FORMULAS


def test_a_name_with_a_unit_in_it_says_its_unit(tmp_path: Path, duckdb: DuckDB) -> None:
    derived = "late_ms: ts / 1000000, rate_hz: 1000 / id, duration: ts / 1ms, latency: x + 1"
    found = units(f"[{{derive: {{{derived}}}}}]", tmp_path, duckdb)
    assert (found["late_ms"], found["rate_hz"]) == ("ms", "Hz")
    # It is no time any more; of the other nothing is known but its name.
    assert "duration" not in found and found["latency"] == "ns"


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (
            "[{derive: {late: ts - 5}}, {rename: {late: behind}}, {select: behind}]",
            {"behind": "ns"},
        ),
        ("[{derive: {late: ts - 5}}, {select: [late]}, {where: late > 1ms}]", {"late": "ns"}),
        (
            "[{derive: {late: ts - 5}}, {group: {by: host, derive: {mean: mean(late), most: "
            "max(late), all: sum(late), n: count(late), share: sum(late) / count(), "
            "odd: count_if(late > 1ms)}}}]",
            {"mean": "ns", "most": "ns", "all": "ns", "share": "ns"},
        ),
        (
            "[{derive: {late: ts - 5}}, {window: {rows: 2, derive: {step: late - lag(late), "
            "place: row()}}}, {select: [step, place]}]",
            {"step": "ns"},
        ),
        (
            "[{derive: {late: ts - 5}}, {resample: {every: 1ms, derive: {worst: max(late)}}}]",
            {"start": "ns", "worst": "ns"},
        ),
        (
            "[{derive: {load: 1500B}}, {histogram: {of: load, bin: 1kB}}]",
            {"low": "B", "high": "B"},
        ),
        (
            "[{derive: {load: 1500B, count: 1s}}, {statistics: {of: load, statistics: p99}}]",
            {"value": "B", "low": "B", "high": "B", "err": "B"},
        ),
        (
            "[{derive: {load: 1500B, duration: 1kB}}, {pair: {with: a.a, key: id, keep: load}}]",
            {"load": "B", "start": "ns", "end": "ns", "duration": "ns", "err_ns": "ns"},
        ),
        (
            "[{derive: {load: 1500B}}, {select: [run, point, repeat, id, load]}, "
            "{join: {with: other, on: id, suffix: _there}}, {select: [load, load_there, more]}]",
            {"load": "B", "load_there": "Hz", "more": "ns"},
        ),
        (
            "[{as-of: {with: other, by: id, other: at}}, {select: [load, more]}]",
            {"load": "Hz", "more": "ns"},
        ),
        (
            "[{derive: {more: 2s, load: 1500B}}, {merge: other}, {select: [more, load]}]",
            {"more": "ns"},
        ),
        (
            "[{derive: {late: ts - 5}}, {deadline: {of: late, limit: 5ms}}]",
            {"limit": "ns"},
        ),
    ],
)
def test_steps_carry_units(
    tmp_path: Path, duckdb: DuckDB, steps: str, wanted: dict[str, str]
) -> None:
    other = (
        "\nother: {from: a.a, steps: [{derive: {at: ts, load: 5Hz, more: 3 * err_ns}}, "
        "{select: [run, point, repeat, id, at, load, more]}]}"
    )
    assert units(steps, tmp_path, duckdb, other) == wanted


@pytest.mark.parametrize(
    "formula", ["ts + 1500B", "1500B - err_ns", "ts > 5Hz", "ts in (1ms, 1500B)", "ts = 1Mbit"]
)
def test_what_is_in_different_units_is_refused_with_its_place(tmp_path: Path, formula: str) -> None:
    graph = graph_of(
        f"made: {{from: a.a, steps: [{{where: id > 2}}, {{derive: {{one: 1, sum: '{formula}'}}}}]}}"
    )
    source = Inputs(("r",), {"a.a": stored(ROWS, tmp_path, "a.a")}, {})
    (found,) = check(graph, source)
    assert found.place == ("analyse", "made", "steps", 1, "derive", "sum")
    assert "ns" in found.message and any(unit in found.message for unit in ("in B", "Hz", "bit/s"))
    assert "divide each by a quantity of its unit, such as 1ms" in found.message


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = pipeline(tmp_path_factory.mktemp("units") / "run", messages=40).write()
    with_tables(open_run(path))
    return path


def test_a_figure_of_what_was_derived_has_the_unit_at_its_axis(run: Path, duckdb: DuckDB) -> None:
    graph = graph_of(
        "made: {from: hops, steps: [{derive: {behind: duration + 20ms, share: duration / 1ms}}, "
        "{plot: {kind: scatter, name: both, columns: {x: share, y: behind}}}]}"
    )
    source = read_inputs([run])
    assert check(graph, source) == []
    make(graph, "test", source, duckdb, run / "analysis/test", lambda text: None)
    texts = (run / "analysis/test/figures/both.svg").read_text()
    assert ">behind (ms)<" in texts and ">share<" in texts
    numbers = (run / "analysis/test/figures/both.csv").read_text()
    assert numbers.splitlines()[0] == "share,behind (ns)"
    # The page's table says it too.
    page = run / "report.html"
    page.write_text("<!-- analyses --><!-- end of the analyses -->")
    fill(run)
    shown = page.read_text()
    assert ">behind (ns)</th>" in shown and ">share</th>" in shown


def test_a_value_has_the_unit_that_its_program_describes(tmp_path: Path) -> None:
    root = pipeline(tmp_path / "run", messages=3).write()
    columns = {"entity": ["pipe:sent", "pipe:received"], "unit": ["bit/s", None]}
    pq.write_table(pa.table(columns), root / "base/1/tables/entities.parquet")
    tables = read_inputs([root]).tables
    assert tables["pipe.sent"].units == {"value": "bit/s"}
    assert tables["pipe.received"].units == {}


def test_a_swept_parameters_column_has_the_unit_of_its_values(tmp_path: Path) -> None:
    from loopscope.graph.tables import units_of_points

    points = {"a": {"delay": "5ms", "size": "3kB", "n": 3, "odd": "5ms"}}
    points["b"] = {"delay": "1s", "size": "10B", "n": 4, "odd": "10B"}
    assert units_of_points(points.values()) == {"point_delay": "ns", "point_size": "B"}
