"""`loopscope analyse`: what it writes, of one run, of a sweep and of many."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from synthetic_run import pipeline, with_tables, write_sweep
from typer.testing import CliRunner, Result

from loopscope.analysis import analyse, analyse_sweep, write_path_tables
from loopscope.cli import app
from loopscope.experiment import load_graph
from loopscope.experiment.pipelines import steps
from loopscope.export import write_bundle
from loopscope.graph.steps import STEPS
from loopscope.graph.stored_analyses import kept_graphs, make_kept
from loopscope.timeline import open_run

MESSAGES = 60
GRAPH = """\
analyse:
  loop: {steps: [path: loop]}
  counts:
    from: loop
    steps:
      - group:
          by: [run, point, repeat]
          derive: {n: count(), back: count(end), worst: max(duration)}
  slow:
    from: loop
    steps: [{top: {rows: 3, of: duration}}, {narrate: {time: start, width: start_err}}]
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    file = tmp_path / "of-mine.yaml"
    file.write_text(GRAPH)
    return file


def run_of(folder: Path, **more: Any) -> Path:
    path = pipeline(folder, messages=MESSAGES, **more).write()
    with_tables(open_run(path))
    return path


def ask(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["analyse", *map(str, words)])


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_the_output_says_what_it_is_and_comes_again_the_same(tmp_path: Path, graph: Path) -> None:
    run = run_of(tmp_path / "run", repeats=2, lose_every=7)
    done = ask(run, "--graph", graph, "--json")
    assert done.exit_code == 0, done.output
    folder = run / "analysis/of-mine"
    told = json.loads(done.stdout)
    assert told["folder"] == str(folder)
    assert {(o["kind"], o["name"], o["rows"]) for o in told["outputs"]} == {
        ("table", "counts", 2),
        ("log", "slow", 3),
    }
    definition = json.loads((folder / "graph.json").read_text())
    assert definition["outputs"][0]["columns"]["worst"] == "int64"
    assert definition["runs"] == ["run"] and "duckdb" in definition["engine"]
    assert dict(kept_graphs(run)) == {"of-mine": load_graph(graph)}
    counts = pq.read_table(folder / "tables/counts.parquet").to_pylist()
    lost = len(range(1, MESSAGES, 7))
    assert [(c["repeat"], c["n"], c["back"]) for c in counts] == [
        (repeat, MESSAGES, MESSAGES - lost) for repeat in (1, 2)
    ]
    lines = (folder / "slow.txt").read_text().splitlines()
    assert lines[0] == "run run, point base, repeat 1"
    assert sum("duration" in line and "± " in line for line in lines) == 3
    before = files(folder)
    assert ask(run, "--graph", graph).exit_code == 0
    assert files(folder) == before
    make_kept(run, str)
    assert files(folder) == before


def test_a_bundle_has_the_definition_and_not_the_tables(tmp_path: Path, graph: Path) -> None:
    run = run_of(tmp_path / "run")
    assert ask(run, "--graph", graph).exit_code == 0
    write_bundle([run], tmp_path / "b.tar.gz", lambda text: None)
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = {name for name in archive.getnames() if "/analysis/" in name}
    assert any(name.endswith("of-mine/graph.json") for name in names)
    assert not any(name.endswith(".parquet") for name in names)


PAIRS = """
analyse:
  sent: {from: pipe.sent, steps: [where: process = 'node1']}
  paired:
    from: pipe.received
    steps: [where: process = 'node1', {pair: {with: sent, key: id}}]
  apart:
    from: pipe.sent
    steps: [where: process = 'source', {pair: {with: sent, key: id}}]
  known: {from: paths.loop, steps: [select: [repeat, id, hop_1, hop_err_1]]}
"""


def test_a_pair_on_one_host_is_as_exact_as_the_hop_of_a_path(tmp_path: Path, graph: Path) -> None:
    graph.write_text(PAIRS)
    run = run_of(tmp_path / "run", repeats=2)
    done = ask(run, "--graph", graph)
    assert done.exit_code == 0, done.output
    tables = {
        name: pq.read_table(run / f"analysis/of-mine/tables/{name}.parquet").to_pylist()
        for name in ("paired", "apart", "known")
    }
    hops = {(row["repeat"], row["id"]): (row["hop_1"], row["hop_err_1"]) for row in tables["known"]}
    assert {
        (row["repeat"], row["id"]): (row["duration"], row["err_ns"]) for row in tables["paired"]
    } == hops
    assert len(hops) == 2 * MESSAGES and max(err for _, err in hops.values()) < 10
    assert {row["err_ns"] for row in tables["apart"]} == {900}


def called(run: Path, id: str) -> Path:
    """A run whose manifest says what it is called."""
    file = run / "manifest.json"
    file.write_text(json.dumps({"run": id, **json.loads(file.read_text())}))
    return run


def test_a_run_is_used_once_whatever_its_folder_is_called(tmp_path: Path, graph: Path) -> None:
    run = called(run_of(tmp_path / "un" / "one"), "20260101T000000Z-aaaaaa")
    (tmp_path / "un" / "latest").symlink_to("one")
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    done = ask(*sorted((tmp_path / "un").iterdir()), copy, "--graph", graph, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    (row,) = pq.read_table(tmp_path / "out/tables/counts.parquet").to_pylist()
    assert (row["run"], row["n"]) == ("20260101T000000Z-aaaaaa", MESSAGES)
    assert done.stderr.count("it is used once") == 2
    document = json.loads((tmp_path / "out/graph.json").read_text())
    assert document["runs"] == ["20260101T000000Z-aaaaaa"] and len(document["notes"]) == 2
    # Judged again, a copy is still that run.
    assert analyse(open_run(copy)).run == "20260101T000000Z-aaaaaa"


def test_different_runs_in_folders_of_one_name_are_not_merged(tmp_path: Path, graph: Path) -> None:
    runs = [run_of(tmp_path / each / "run") for each in "ab"]
    done = ask(*runs, "--graph", graph, "-o", tmp_path / "out")
    assert done.exit_code == 2 and "are both called run" in done.stderr
    for number, run in enumerate(runs):
        called(run, f"number {number}")
    assert ask(*runs, "--graph", graph, "-o", tmp_path / "out").exit_code == 0
    rows = pq.read_table(tmp_path / "out/tables/counts.parquet").to_pylist()
    assert [(row["run"], row["n"]) for row in rows] == [
        ("number 0", MESSAGES),
        ("number 1", MESSAGES),
    ]


def test_a_run_without_the_path_of_a_graph_is_told(tmp_path: Path, graph: Path) -> None:
    whole = run_of(tmp_path / "whole", repeats=2)
    (whole / "base/2/tables/path-loop.parquet").unlink()
    other = pipeline(tmp_path / "other", messages=MESSAGES, paths=[], expect=[]).write()
    manifest = json.loads((whole / "manifest.json").read_text())
    (whole / "manifest.json").write_text(json.dumps({**manifest, "status": "failed"}))
    done = ask(whole, other, "--graph", graph, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    said = "has no table paths.loop: nothing that is made of it is of that"
    assert f"loopscope: the run other {said}" in done.stderr
    assert f"loopscope: the run whole (repeat 2 of point base) {said}" in done.stderr
    assert len(json.loads((tmp_path / "out/graph.json").read_text())["notes"]) == 2


def test_of_a_sweep_parameters_are_columns_and_failed_points_are_out(
    tmp_path: Path, graph: Path
) -> None:
    graph.write_text(GRAPH.replace("by: [run, point,", "by: [point_delay, point_size, point,"))
    points = [
        ({"delay": delay, "size": size}, pipeline(tmp_path / "sweep", messages=MESSAGES))
        for delay, size in (("0ms", 3), ("1.5ms", 4), ("9ms", 5))
    ]
    run = write_sweep(points, {"delay=9ms,size=5": "it failed"})
    # What the failed point left is there, and not told.
    manifest = (run / "manifest.json").read_text()
    points[2][1].write()
    with_tables(open_run(run, "delay=9ms,size=5"))
    (run / "manifest.json").write_text(manifest)
    analyse_sweep(run, write_path_tables)
    assert ask(run, "--graph", graph).exit_code == 0
    counts = pq.read_table(run / "analysis/of-mine/tables/counts.parquet").to_pylist()
    found = [(row["point"], row["point_delay"], row["point_size"], row["n"]) for row in counts]
    assert sorted(found) == [
        ("delay=0ms,size=3", 0, 3, MESSAGES),
        ("delay=1.5ms,size=4", 1_500_000, 4, MESSAGES),
    ]


def test_of_many_runs_the_run_is_a_column(tmp_path: Path, graph: Path) -> None:
    runs = [run_of(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    told = ask(*runs, "--graph", graph)
    assert told.exit_code == 2 and "--output" in told.stderr
    assert ask(*runs, "--graph", graph, "-o", tmp_path / "both").exit_code == 0
    counts = pq.read_table(tmp_path / "both/tables/counts.parquet").to_pylist()
    assert [(row["run"], row["n"]) for row in counts] == [("one", MESSAGES), ("two", MESSAGES)]
    assert counts[0]["worst"] != counts[1]["worst"]


def test_a_folder_that_is_no_output_is_left_alone(tmp_path: Path, graph: Path) -> None:
    run = run_of(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    told = ask(run, "--graph", graph, "-o", tmp_path / "mine")
    assert told.exit_code == 2 and "is no output of analyse" in told.stderr
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("[derive: {far: id * 9223372036854775807}]", "Overflow"),
        ("[python: {call: own:breaks, columns: {x: integer}}]", "own.py, line 3: KeyError: 'nix'"),
        ("[python: {call: own:wrong, columns: {x: integer}}]", "but the step says x"),
    ],
)
def test_what_only_the_rows_show_is_told_without_a_traceback(
    tmp_path: Path, steps: str, told: str
) -> None:
    run = run_of(tmp_path / "run")
    (tmp_path / "own.py").write_text(
        "def breaks(batches):\n"
        "    for batch in batches:\n"
        "        {}['nix']\n"
        "        yield batch\n\n"
        "def wrong(batches):\n"
        "    return batches\n"
    )
    graph = tmp_path / "graph.yaml"
    graph.write_text(f"analyse: {{a: {{from: paths.loop, steps: {steps}}}}}")
    done = ask(run, "--graph", graph)
    assert done.exit_code == 2 and told in done.stderr, done.output
    assert "Traceback" not in done.output
    assert not (run / "analysis/graph").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name a run directory"),
        (("nix",), "no such run directory"),
        (("{run}",), "has no analyse: give a file with --graph"),
        (("{run}", "--graph", "nix.yaml"), "nix.yaml:1:1: cannot read the file"),
        (("{run}", "--graph", "{graph}", "--engine", "duckbd"), "did you mean duckdb?"),
        (("{run}", "--graph", "{graph}", "--point", "nix"), "has no point 'nix'"),
    ],
)
def test_what_cannot_be_asked(
    tmp_path: Path, graph: Path, words: tuple[str, ...], told: str
) -> None:
    run = run_of(tmp_path / "run")
    done = ask(*(word.format(run=run, graph=graph) for word in words))
    assert done.exit_code == 2 and told in done.stderr


def test_every_step_is_documented_and_computed() -> None:
    assert steps().keys() == STEPS.keys()
    listed = json.loads(ask("--steps", "--json").stdout)
    assert [each["step"] for each in listed] == list(steps())
    for each in listed:
        assert each["what"] and each["gives"]
        assert all(option["what"] for option in each["options"]), each["step"]


def test_what_is_exported_on_the_way_does_not_stand_for_the_end(
    tmp_path: Path, graph: Path
) -> None:
    run = run_of(tmp_path / "run")
    steps = "[export: csv, {group: {derive: {n: count()}}}]"
    graph.write_text(f"analyse: {{a: {{from: paths.loop, steps: {steps}}}}}")
    assert ask(run, "--graph", graph).exit_code == 0
    folder = run / "analysis/of-mine/tables"
    assert len((folder / "a.csv").read_text().splitlines()) == 1 + MESSAGES
    assert pq.read_table(folder / "a.parquet").to_pylist() == [{"n": MESSAGES}]


def test_an_experiment_is_no_file_of_pipelines(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    file = Path(__file__).resolve().parents[2] / "experiments/pipeline.yaml"
    done = ask(run, "--graph", file)
    assert done.exit_code == 2
    assert (
        "pipeline.yaml:1:1: this is an experiment, whose analyse: goes with its runs" in done.stderr
    )


def test_an_interrupt_ends_it_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    file = tmp_path / "long.yaml"
    join = "join: {with: a, on: [one]}"
    more = ", ".join(f"{join[:-1]}, suffix: _{i}}}" for i in range(4))
    file.write_text(
        "analyse:\n  a: {steps: [path: loop, {derive: {one: id * 0}}]}\n"
        f"  b: {{from: a, steps: [{join}, {more}, {{group: {{derive: {{n: count()}}}}}}]}}\n"
    )
    command = [Path(sys.executable).with_name("loopscope"), "analyse", run, "--graph", file]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        draft = run / "analysis/.long.unfinished"
        while process.poll() is None and not draft.exists():
            time.sleep(0.01)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors
    assert not list((run / "analysis").iterdir())
