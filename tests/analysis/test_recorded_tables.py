"""Queries, exports and figures of what is no run: recordings, imports, all points of a sweep."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from synthetic_run import pipeline, with_tables
from typer.testing import CliRunner, Result

from loopscope import _native
from loopscope.cli import app
from loopscope.cli.recording_summary import account_of
from loopscope.cli.terminal import TerminalProgress
from loopscope.timeline import Run, open_run

GOLDEN = Path(__file__).resolve().parents[2] / "schema" / "golden" / "host"
POINTS = ("delay=1ms", "delay=2ms")


def loopscope(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(params=["recording", "import"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The run of the golden trace: 16 events of 11 kinds."""
    place = tmp_path / "recorded"
    if request.param == "import":
        _native.import_ctf(GOLDEN / "trace", place, lambda *_: None)
    else:
        shutil.copytree(GOLDEN, place)
        with TerminalProgress(verbose=False, plain=False) as progress:
            account_of(place, progress)
    return place


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """Two points of two repeats, in the second of which fewer messages were sent."""
    root = tmp_path / "20250101T000000Z-abc123"
    for name, messages in zip(POINTS, (20, 10), strict=True):
        other = pipeline(tmp_path / name, messages=messages, repeats=2).write()
        with_tables(open_run(other))
        shutil.copytree(other, root, dirs_exist_ok=True)
        (root / "base").rename(root / name)
    return root


def test_a_recording_is_asked(recorded: Path) -> None:
    done = loopscope("query", recorded, "--json")
    assert done.exit_code == 0, done.output
    tables = {json.loads(line)["table"] for line in done.stdout.splitlines()}
    assert {"pipe.sent", "pipe.received"} <= tables
    done = loopscope("query", recorded, "select id, ts from pipe.received order by ts", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert done.exit_code == 0 and rows[0]["id"] == "1"
    done = loopscope("query", recorded, "select 1", "--point", "x")
    assert done.exit_code == 2 and "has no points" in done.stderr


def test_a_recording_is_exported(recorded: Path, tmp_path: Path) -> None:
    done = loopscope("export", recorded, "--to", "parquet", "-o", tmp_path / "tables")
    assert done.exit_code == 0, done.output
    assert pq.read_table(tmp_path / "tables" / "pipe.sent.parquet").num_rows > 0
    done = loopscope("export", recorded, "--to", "ctf", "-o", tmp_path / "ctf")
    is_import = (recorded / "import.json").exists()
    told = "--to parquet, arrow or csv" if is_import else "a recording is a CTF trace as it is"
    assert done.exit_code == 2 and told in done.stderr
    done = loopscope("export", recorded, "--to", "perfetto", "-o", tmp_path / "trace")
    assert (done.exit_code, (tmp_path / "trace").exists()) == (
        (2, False) if is_import else (0, True)
    )


def test_a_recording_is_drawn(recorded: Path, tmp_path: Path) -> None:
    done = loopscope("figure", recorded, "--list")
    assert done.exit_code == 0 and "pipe:received.size" in done.stdout, done.output
    words = ("scatter", "pipe:received.size", "--format", "svg", "-o", tmp_path / "f")
    done = loopscope("figure", recorded, *words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "f" / "scatter-pipe-received.size.csv").exists()
    done = loopscope("figure", recorded)
    assert done.exit_code == 2, done.output
    assert "is a recording or an import: draw samples of its fields" in done.stderr


def test_all_points_are_asked(swept: Path) -> None:
    sql = "select point, repeat, count(*) as n from pipe.sent group by all order by all"
    done = loopscope("query", swept, sql, "--csv")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["point"], row["repeat"]) for row in rows] == [
        (name, repeat) for name in POINTS for repeat in ("1", "2")
    ]
    alone = loopscope("query", swept, "select count(*) as n from pipe.sent", "--point", POINTS[1])
    assert sum(int(row["n"]) for row in rows[2:]) == int(alone.stdout.split()[-1])
    hops = loopscope("query", swept, "select distinct point from hops order by all", "--json")
    assert [json.loads(line)["point"] for line in hops.stdout.splitlines()] == list(POINTS)


def test_points_without_tables_are_told(swept: Path) -> None:
    for repeat in ("1", "2"):
        shutil.rmtree(swept / POINTS[1] / repeat / "timeline")
    done = loopscope("query", swept, "select distinct point from pipe.sent", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout) == {"point": POINTS[0]}
    assert done.stderr == f"loopscope: not run to their end, and not in the tables: {POINTS[1]}\n"
    for repeat in ("1", "2"):
        shutil.rmtree(swept / POINTS[0] / repeat / "timeline")
    done = loopscope("query", swept, "select 1")
    assert done.exit_code == 2 and "no point of the sweep was run to its end" in done.stderr


def test_all_points_are_exported(swept: Path, tmp_path: Path) -> None:
    done = loopscope("export", swept, "--to", "csv", "-o", tmp_path / "tables")
    assert done.exit_code == 0, done.output
    with (tmp_path / "tables" / "pipe.sent.csv").open() as file:
        assert {row["point"] for row in csv.DictReader(file)} == set(POINTS)


def test_all_points_have_a_trace_each(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(run: Run, repeat: int, paths: object, file: Path, seen: object) -> int:
        return file.write_text(f"{run.point} {repeat}")

    monkeypatch.setattr("loopscope.export.write_perfetto", written)
    words = ("export", swept, "--to", "perfetto", "-o", tmp_path / "traces")
    done = loopscope(*words)
    assert done.exit_code == 0, done.output
    files = {file.name: file.read_text() for file in (tmp_path / "traces").iterdir()}
    assert files == {f"{name}.perfetto-trace": f"{name} 1" for name in POINTS}
    done = loopscope(*words)
    assert done.exit_code == 2 and "give another with --output" in done.stderr
