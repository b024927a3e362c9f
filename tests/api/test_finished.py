"""Runs as notebooks see them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_run import expectation, path, pipeline, write_sweep

import loopscope as ls


def test_the_notebook_shows_verdicts_losses_and_clocks_escaped(tmp_path: Path) -> None:
    late = expectation("loop.p99 < 1us", "p99", "<", 1_000)
    named = expectation("<b>loop.lost</b> == 0", "lost", "==", 0, is_time=False)
    run = ls.open_run(pipeline(tmp_path / "<run>", messages=30, expect=[late, named]).write())
    shown = run._repr_html_()
    assert "FAIL" in shown and "loop.p99 &lt; 1us" in shown
    assert "emitted 180 = recorded 180 + dropped 0" in shown
    assert "h1 reference, h2 ± 900 ns" in shown
    assert "&lt;b&gt;loop.lost&lt;/b&gt; == 0" in shown and "&lt;run&gt;" in shown
    assert "<b>loop.lost" not in shown and "<run>" not in shown


def test_a_run_that_cannot_be_judged_shows_why(home: Path, tmp_path: Path) -> None:
    (tmp_path / "base/1/hosts").mkdir(parents=True)
    assert "no manifest.json" in ls.open_run(tmp_path)._repr_html_()


def test_messages_as_pandas_and_polars_are_the_same(home: Path) -> None:
    messages = ls.open_run("runs/pipeline/latest").paths["loop"].messages
    assert messages.to_polars()["id"].to_list() == messages.to_pandas()["id"].tolist()
    assert len(messages.to_pandas()) == 200


def test_a_figure_is_the_commands(home: Path, tmp_path: Path) -> None:
    """The files of `Figure.save` and of `loopscope figure` are the same bytes."""
    figure = ls.open_run("runs/pipeline/latest").figure("waterfall", message=12)
    mine = figure.save(tmp_path / "api", formats=["svg"])
    command = [sys.executable, "-c", "from loopscope.cli import main; main()", "figure"]
    command += ["runs/pipeline/latest", "waterfall", "--message", "12", "--format", "svg"]
    subprocess.run([*command, "-o", str(tmp_path / "cli")], check=True, capture_output=True)
    for file in mine:
        assert file.read_bytes() == (tmp_path / "cli" / file.name).read_bytes(), file.name
    shown = figure._repr_svg_()
    assert shown.encode() == mine[0].read_bytes() and "<svg" in shown
    assert any("12" in str(cell) for row in figure.rows[1:] for cell in row)


def test_a_figure_of_a_sweep_compares_its_points(home: Path, tmp_path: Path) -> None:
    sweep = ls.open_sweep("runs/sweep/latest")
    figure = sweep.figure("mean-deviation", "loop", against="delay")
    assert [each.suffix for each in figure.save(tmp_path, formats=["png"])] == [".png", ".csv"]
    of_point = sweep["delay=10ms"].figure("ccdf", "loop").save(tmp_path, formats=["png"])
    assert of_point[0].exists()
    shown = sweep._repr_html_()
    assert shown.count("PASS") == 3 and "10ms" in shown


@pytest.mark.parametrize(
    "ask, message",
    [
        ({"kind": "waterfal"}, "waterfall"),
        ({"kind": "ccdf", "of": "lop"}, "loop"),
        ({"kind": "ccdf", "begin": "3"}, "begin"),
        ({"kind": "ccdf", "message": 1}, "message"),
    ],
)
def test_a_wrong_figure_says_what_is_right(home: Path, ask: dict[str, str], message: str) -> None:
    with pytest.raises(ls.FigureError, match=message):
        ls.open_run("runs/pipeline/latest").figure(**ask)


def test_a_kind_that_suits_several_asks_which(tmp_path: Path) -> None:
    made = pipeline(tmp_path, messages=20)
    made.paths = [*made.paths, path("other", "id", made.paths[0].events[:2])]
    run = ls.open_run(made.write())
    with pytest.raises(ls.FigureError, match="name what it is to be of: 'loop', 'other'"):
        run.figure("waterfall")
    assert run.figure("waterfall", "other").name == "waterfall-other"


def test_runs_lists_each_once_and_says_what_is_damaged(home: Path, tmp_path: Path) -> None:
    table = ls.runs()
    assert table.experiment.tolist() == ["synthetic", "synthetic"]
    assert table.verdict.tolist() == ["PASS", "PASS"] and table.points.tolist() == [1, 2]
    assert str(table.start[0]) == "2026-01-02 03:04:05+00:00"
    assert ls.runs("runs/sweep").id.tolist() == ["20260102T030406Z-bbbbbb"]
    for name, content in {"cut": "{", "odd": '{"experiment": 3}', "date": '{"created": 3}'}.items():
        (tmp_path / "a" / name).mkdir(parents=True)
        (tmp_path / "a" / name / "manifest.json").write_text(content)
    assert ls.runs(tmp_path).state.tolist() == ["unreadable"] * 3
    assert len(ls.runs(tmp_path / "a" / "cut")) == 0
    with pytest.raises(ls.RunError, match="no such folder"):
        ls.runs(tmp_path / "none")


def failing(folder: Path) -> ls.Run:
    """A run with a FAIL, an UNKNOWN and a PASS, and a page."""
    expect = [
        expectation("loop.p99 < 100us", "p99", "<", 100_000),
        expectation("loop.lost == 0", "lost", "==", 0, is_time=False),
    ]
    made = pipeline(folder, messages=100, lose_every=20, expect=expect)
    run = ls.open_run(made.write())
    run.report.write_text("<html>")
    return run


def test_a_failure_names_expectations_causes_and_the_report(tmp_path: Path) -> None:
    run = failing(tmp_path)
    with pytest.raises(ls.ExpectationsFailed) as failed:
        run.assert_passed()
    text = str(failed.value)
    assert "FAIL     loop.p99 < 100us" in text and "FAIL     loop.lost == 0" in text
    assert "the slowest hop of loop is" in text
    assert f"report: {run.report.as_uri()}" in text


def test_unknown_is_a_failure_of_its_own_that_says_why(tmp_path: Path) -> None:
    drops = {("sink", "pipe:received"): 3}
    run = ls.open_run(pipeline(tmp_path, messages=100, lose_every=50, drops=drops).write())
    with pytest.raises(ls.ExpectationsUnknown) as unknown:
        run.assert_passed()
    row = next(row for row in run.verdicts if row.verdict == "UNKNOWN")
    assert row.reason and row.reason in str(unknown.value)
    assert f"loopscope report {tmp_path}" in str(unknown.value)


def test_a_run_without_expectations_does_not_pass(tmp_path: Path) -> None:
    run = ls.open_run(pipeline(tmp_path, messages=10, expect=[]).write())
    with pytest.raises(ls.ExpectationsUnknown, match="states no expectation"):
        run.assert_passed()


def test_a_sweep_passes_only_if_every_point_does(home: Path, tmp_path: Path) -> None:
    ls.open_sweep("runs/sweep/latest").assert_passed()
    late = [expectation("loop.p99 < 100us", "p99", "<", 100_000)]
    points = [
        ({"delay": "0ms"}, pipeline(tmp_path / "late", messages=20)),
        ({"delay": "9ms"}, pipeline(tmp_path / "late", messages=20, expect=late)),
    ]
    with pytest.raises(ls.ExpectationsFailed, match=r"delay=9ms:\n  FAIL     loop.p99 < 100us"):
        ls.open_sweep(write_sweep(points, {})).assert_passed()
    points = [
        ({"delay": "0ms"}, pipeline(tmp_path / "part", messages=20)),
        ({"delay": "9ms"}, pipeline(tmp_path / "part", messages=20)),
    ]
    sweep = ls.open_sweep(write_sweep(points, {"delay=9ms": "source ended"}))
    assert list(sweep) == ["delay=0ms"]
    with pytest.raises(ls.ExpectationsFailed, match="delay=9ms: source ended"):
        sweep.assert_passed()


def test_importing_loopscope_is_cheap() -> None:
    code = "import sys, loopscope, loopscope.pytest_plugin, json; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    heavy = {"ibis", "duckdb", "pandas", "pyarrow", "numpy", "pydantic", "grpc", "matplotlib"}
    assert not heavy & set(json.loads(done.stdout))
