"""Marks on figures over time: chosen once, drawn alike on the page and in files."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from links_run import segment, write_account
from synthetic_run import SECOND, pipeline
from typer.testing import CliRunner

from loopscope.analysis import analyse
from loopscope.cli import app
from loopscope.report.axis import Axis
from loopscope.report.chart import Chart, Panel, Trace
from loopscope.report.chart_file import file_figure
from loopscope.report.chart_page import page_figure
from loopscope.report.marks import LINK, TRIGGER, Mark, change_text, read_marks, strokes_over
from loopscope.report.path_charts import end_charts, parts_of
from loopscope.timeline import open_run

ORIGIN = {1: 5 * SECOND}


def at(seconds: float, kind: str = LINK, text: str = "x", hosts: frozenset[str] | None = None):
    return Mark(1, ORIGIN[1] + round(seconds * SECOND), kind, text, hosts)


def test_what_is_near_is_one_stroke_and_what_is_far_or_of_others_none() -> None:
    marks = [at(1, text="a"), at(1.01, text="b"), at(1.01, TRIGGER, "c"), at(2, text="a"), at(12)]
    marks += [at(3, hosts=frozenset({"h9"})), at(4, hosts=frozenset({"h1", "h9"})), at(-1)]
    marks += [Mark(2, ORIGIN[1], LINK, "of a repeat that is not drawn")]
    found = strokes_over(marks, ORIGIN, {"h1"}, 0, 10)
    told = [(each.seconds, each.kind, each.texts, each.count, each.number) for each in found.every]
    assert told == [
        (1.0, LINK, ("a", "b"), 2, 1),
        (1.01, TRIGGER, ("c",), 1, 2),
        (2.0, LINK, ("a",), 1, 3),
        (4.0, LINK, ("x",), 1, 4),
    ]


@pytest.mark.parametrize("count", [2, 12, 37])
def test_both_renderers_draw_all_and_many_are_ticks(count: int) -> None:
    strokes = strokes_over([at(i / 4) for i in range(count)], ORIGIN, None, 0, 10)
    ends = Trace(np.array([0, 10e9]), np.array([1, 2]), "black", line=1)
    axis = Axis("time", "ns", 1e9, "s")
    chart = Chart((Panel(axis, Axis("y", "", 1, ""), (ends,), strokes=strokes),))
    (axes,) = file_figure(chart, 7).axes
    (lines,) = axes.collections
    drawn = [(float(line[0][0]), float(line[1][1])) for line in lines.get_segments()]
    page = page_figure(chart)
    shapes = [(shape["x0"], shape["y1"]) for shape in page["layout"]["shapes"]]
    height = 1 if count <= 20 else 0.05
    assert drawn == shapes == [(i / 4, height) for i in range(count)]
    assert page["data"][-1]["x"] == [i / 4 for i in range(count)]
    assert f"links changed, {count} times" in chart.subtitle
    assert ("Ticks" in chart.subtitle) == (count > 20)


def test_changes_are_told_as_people_write_them() -> None:
    before = {"delay_ns": 0, "loss": {"kind": "independent", "probability": 0.01}, "duplicate": 0.0}
    after = {"delay_ns": 200_000_000, "rate_bps": 100_000_000, "duplicate": 0.005}
    assert change_text(before, after) == ("delay 200 ms, no loss, duplicate 0.5 %, rate 100 Mbit/s")


def test_a_run_s_marks_are_on_its_figures(tmp_path: Path) -> None:
    made = pipeline(tmp_path / "run", messages=900)
    path = made.write()
    hosts = [host.name for host in made.hosts]
    slow = segment({"delay_ns": 20_000_000})
    write_account(path, hosts, {(hosts[0], hosts[1]): [segment({}), slow]})
    first = min(row.ts for row in made.rows)
    last = max(row.ts for row in made.rows)
    changed, hit = first + (last - first) // 4, first + (last - first) // 2
    folder = path / "base/1/timeline/link/set"
    folder.mkdir(parents=True)
    row = {"ts": [changed], "id": [1], "host": ["_router"], "process": ["_links"]}
    row |= {"err_ns": [0], "pid": [7], "counter": pa.array([None], pa.uint64())}
    ends = {"from": pa.array([0], pa.uint16()), "to": pa.array([1], pa.uint16())}
    pq.write_table(pa.table(row | ends), folder / "part-0.parquet")
    rows = [("entity", hit), ("host", hit + 9), ("end", last)]
    table = {"ts": [ts for _, ts in rows], "host": ["h1"] * 3, "process": ["a"] * 3}
    table |= {"stream": ["fr"] * 3, "cause": [cause for cause, _ in rows]}
    table |= {"entity": ["pipe:received"] * 3, "id": [7] * 3}
    pq.write_table(pa.table(table), path / "base/1/tables/triggers.parquet")

    run = open_run(path)
    texts = [f"{hosts[0]}→{hosts[1]}: delay 20 ms", "fr: pipe:received 7"]
    assert [each.ts for each in read_marks(run)] == [changed, hit]
    assert [each.text for each in read_marks(run)] == texts
    results = analyse(run)
    measured = results.messages["loop"].path
    parts = parts_of(results, measured)
    name, _, chart = next(end_charts(results, measured, parts, measured.loop, read_marks(run), 1))
    page = page_figure(chart)
    assert name == "response-time-loop"
    origin = first
    wanted = [round((ts - origin) / 1e9, 6) for ts in (changed, hit)]
    assert [shape["x0"] for shape in page["layout"]["shapes"]] == wanted
    done = CliRunner().invoke(app, ["figure", str(path), "scatter", "loop"])
    assert done.exit_code == 0, done.output
    with (path / "figures/scatter-loop.csv").open(newline="") as lines:
        told = [line for line in csv.reader(lines) if line[0] in texts]
    assert [line[0] for line in told] == texts
    assert [int(line[1]) for line in told] == [changed - origin, hit - origin]


def test_a_run_of_an_older_version_has_no_marks(tmp_path: Path) -> None:
    run = open_run(pipeline(tmp_path / "run", messages=20).write())
    assert read_marks(run) == ()
    assert "triggers" not in run.every_table()
