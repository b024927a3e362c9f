"""Opening a run directory."""

import json
import subprocess
import sys

import pytest
from synthetic_run import Row, SyntheticRun, pipeline

from loopscope.timeline import NothingMeasuredError, RunError, UnknownTableError, open_run

HEAVY = {"ibis", "duckdb", "pyarrow", "numpy", "pandas", "matplotlib", "plotly", "rich"}


def test_tables_are_over_all_repeats(tmp_path):
    run = open_run(pipeline(tmp_path, messages=10, repeats=3).write())
    assert list(run.tables) == ["pipe.received", "pipe.sent"]
    table = run.table("pipe.received")
    assert table.columns[:3] == ("repeat", "ts", "err_ns")
    counted = table.group_by("repeat").agg(n=table.count()).order_by("repeat").to_pyarrow()
    assert counted.to_pydict() == {"repeat": [1, 2, 3], "n": [30, 30, 30]}
    assert run.hosts.count().to_pyarrow().as_py() == 9
    assert set(run.clock.repeat.to_pyarrow().to_pylist()) == {1, 2, 3}
    assert [each.repeat for each in run.accounts] == sorted([1, 2, 3] * 4)
    assert run.environment["h2"]["clocksource"] == "tsc"


def test_a_table_that_one_repeat_lacks_is_of_the_others(tmp_path):
    rows = [Row("a", "io:out", 1, 5), Row("a", "io:out", 1, 5, repeat=2)]
    rows.append(Row("a", "io:late", 1, 5, repeat=2))
    run = open_run(SyntheticRun(tmp_path, rows, repeats=2).write())
    assert run.table("io.late").repeat.to_pyarrow().to_pylist() == [2]
    with pytest.raises(UnknownTableError, match=r"no table io\.none; it has: io\.late, io\.out"):
        run.table("io.none")


def test_latest_is_the_run_that_it_links_to(tmp_path):
    root = pipeline(tmp_path / "20250101T000000Z-abc123", messages=3).write()
    (tmp_path / "latest").symlink_to(root.name)
    run = open_run(tmp_path / "latest")
    assert run.id == "20250101T000000Z-abc123"
    assert run.experiment == "synthetic"
    assert run.output == root


def test_several_points_must_be_named(tmp_path):
    root = pipeline(tmp_path, messages=3).write()
    (root / "base").rename(root / "period=1ms")
    SyntheticRun(root, []).write()
    with pytest.raises(
        RunError, match="has several points; name one with --point: base, period=1ms"
    ):
        open_run(root)
    with pytest.raises(RunError, match="no point 'x'"):
        open_run(root, "x")
    assert open_run(root, "period=1ms").output == root / "period=1ms"


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(RunError, match="no such run directory"):
        open_run(tmp_path / "nothing")
    with pytest.raises(RunError, match="is not a run directory"):
        open_run(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ({"status": "failed", "error": "host h2: no route"}, "host h2: no route"),
        ({"status": "failed"}, "its manifest does not say why"),
        ({"status": "interrupted"}, "it was interrupted"),
        # Nobody holds the lock of a run that goes on.
        ({"status": "running"}, "its controller was killed"),
        (
            {"status": "failed", "experiment": {"points": [{"name": "n=1"}, {"name": "n=2"}]}},
            "point n=2: host h2: no route",
        ),
    ],
)
def test_a_run_that_never_measured_anything_says_why(tmp_path, manifest, why):
    (tmp_path / "manifest.json").write_text(json.dumps({"run": "x", **manifest}))
    (tmp_path / "n=2").mkdir()
    point = {"version": 1, "status": "failed", "error": "host h2: no route"}
    (tmp_path / "n=2/point.json").write_text(json.dumps(point))
    with pytest.raises(NothingMeasuredError, match=f"ended before anything was measured: {why}$"):
        open_run(tmp_path)


def test_a_complete_run_without_its_files_is_no_run(tmp_path):
    (tmp_path / "manifest.json").write_text('{"run": "x", "status": "complete"}')
    with pytest.raises(RunError, match="is not a run directory"):
        open_run(tmp_path)


def test_a_broken_file_is_named(tmp_path):
    root = pipeline(tmp_path, messages=3).write()
    loss = root / "base" / "1" / "hosts" / "h2" / "loss.json"
    account = json.loads(loss.read_text())
    account["emitted"] += 1
    loss.write_text(json.dumps(account))
    with pytest.raises(RunError, match=r"h2/loss\.json: .*emitted is 7, but .* sum is 6"):
        _ = open_run(root).accounts
    loss.write_text("{}")
    with pytest.raises(RunError, match=r"h2/loss\.json: not an account of loss"):
        _ = open_run(root).accounts
    (root / "base" / "1" / "tables" / "hosts.parquet").unlink()
    with pytest.raises(RunError, match=r"hosts\.parquet is missing"):
        _ = open_run(root).hosts
    (root / "manifest.json").write_text("[")
    with pytest.raises(RunError, match=r"manifest\.json"):
        open_run(root)


@pytest.mark.parametrize(
    ("modules", "allowed"),
    [
        ("loopscope.timeline, loopscope.analysis, loopscope.report", set()),
        ("loopscope.cli", {"rich"}),
    ],
)
def test_importing_the_package_imports_nothing_heavy(modules, allowed):
    program = (
        f"import sys, {modules};print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert HEAVY & set(printed.stdout.split()) <= allowed
