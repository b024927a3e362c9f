"""Time lines made by a map over stream files: what they hold is what one process makes of them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_run import DROPPED, MESSAGES, write_run
from synthetic_run import with_tables
from typer.testing import CliRunner

from loopscope.cli import app
from loopscope.cli.analyse import _prepare
from loopscope.cli.terminal import TerminalProgress
from loopscope.control import RunFailed, Silent, make_timeline, make_timelines
from loopscope.experiment import Experiment, from_manifest
from loopscope.export import write_ctf, write_perfetto
from loopscope.graph.engine import DuckDB, Engine
from loopscope.graph.mistake import GraphError
from loopscope.timeline import open_run

pytestmark = pytest.mark.full

FILES = 8
"""Stream files of a repeat."""

Each = Callable[[Callable[[Any], None], Sequence[Any]], None]


def in_turn(work: Callable[[Any], None], items: Sequence[Any]) -> None:
    for item in items:
        work(item)


def backwards(work: Callable[[Any], None], items: Sequence[Any]) -> None:
    """And each one twice, as where an answer got lost."""
    for item in [*reversed(items), *items]:
        work(item)


def repeats_of(run: Path) -> list[tuple[Experiment, Path]]:
    opened = open_run(run)
    experiment = from_manifest(opened.manifest["experiment"])
    return [(experiment, repeat) for repeat in opened.repeats.values()]


def both(tmp_path: Path, **given: Any) -> tuple[Path, Path]:
    """A run whose time line one process has made, and the same run without one.

    They have the same name, so that nothing that is made of them tells them apart.
    """
    first = write_run(tmp_path / "one" / "run", **given)
    second = tmp_path / "many" / "run"
    shutil.copytree(first, second)
    for experiment, repeat in repeats_of(first):
        make_timeline(experiment, repeat, Silent())
    with_tables(open_run(first))
    return first, second


def content(run: Path, *below: str) -> dict[str, bytes]:
    files = (file for each in below for file in run.rglob(each) if file.is_file())
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def rows(files: Sequence[Path]) -> list[dict[str, Any]]:
    table = pa.concat_tables([pq.read_table(file) for file in files], promote_options="permissive")
    return sorted(table.to_pylist(), key=repr)


def same(one: Path, many: Path) -> None:
    """Asserts that what the time lines of two runs hold, and what is made of them, is the same."""
    tables = ("base/*/tables/*", "base/*/hosts/*/clock/estimates/*")
    assert content(one, *tables) == content(many, *tables)
    assert len(content(one, *tables)) > 10
    first, second = open_run(one), open_run(many)
    assert (
        first.tables.keys() == second.tables.keys() == {"pipe.sent", "pipe.received", "pcap.packet"}
    )
    for name, files in first.tables.items():
        for repeat, merged in files.items():
            parts = second.tables[name][repeat]
            assert len(merged) == 1 and len(parts) == (1 if name == "pcap.packet" else 4)
            assert rows(merged) == rows(parts)
            assert [f"part-{i}.parquet" for i in range(FILES)] != sorted(
                part.name for part in parts
            )
        # Through a run the rows come in order, whatever files they are in.
        ordered = second.table(name).to_pyarrow()
        assert ordered.equals(first.table(name).to_pyarrow()), name
        assert name == "pcap.packet" or rows(second.tables[name][1]) != ordered.to_pylist()


def nothing_is_left(run: Path) -> None:
    names = [path.name for path in run.rglob("*")]
    assert not [name for name in names if name.startswith((".", "clocks.json", "streams"))], names


def test_executors_share_the_stream_files(tmp_path: Path, spark: Engine) -> None:
    one, many = both(tmp_path, repeats=2)
    notes = tmp_path / "notes"
    notes.mkdir()

    def noted(work: Callable[[Any], None], items: Sequence[Any]) -> None:
        def on_executor(item: Any) -> None:
            import json
            import os

            from pyspark import TaskContext

            work(item)
            task = TaskContext.get()
            assert task is not None
            said = [work.__name__, repr(item), os.getppid(), task.taskAttemptId()]
            (notes / f"{task.taskAttemptId()}").write_text(json.dumps(said))

        spark.each(on_executor, items)

    make_timelines(noted, repeats_of(many), Silent())
    with_tables(open_run(many))
    same(one, many)
    nothing_is_left(many)
    said = [json.loads(note.read_text()) for note in notes.iterdir()]
    assert Counter(work for work, *_ in said) == {"_solve": 2, "_decode": 2 * FILES, "_conclude": 2}
    decoded = [(item, executor, task) for work, item, executor, task in said if work == "_decode"]
    assert len({item for item, *_ in decoded}) == len({task for *_, task in decoded}) == 2 * FILES
    assert len({executor for _, executor, _ in decoded}) == 2
    summary = json.loads((many / "base/2/tables/summary.json").read_text())
    assert summary["dropped"] == DROPPED
    assert "event class 99 is not declared" in json.dumps(summary["problems"])
    assert 0 < 2 * MESSAGES - DROPPED - summary["events"]["pipe:received"] <= 100


def test_a_piece_whose_process_dies_is_done_again(tmp_path: Path, spark: Engine) -> None:
    one, many = both(tmp_path)
    died = tmp_path / "died"
    died.mkdir()

    def deadly(work: Callable[[Any], None], items: Sequence[Any]) -> None:
        def on_executor(item: Any) -> None:
            import os

            first = died / f"{work.__name__}-{item[1] if isinstance(item, tuple) else 0}"
            if first.name[-1] in "025" and not first.exists():
                first.touch()
                if first.name == "_decode-2":
                    work(item)
                os._exit(9)
            work(item)

        spark.each(on_executor, items)

    make_timelines(deadly, repeats_of(many), Silent())
    with_tables(open_run(many))
    assert len(list(died.iterdir())) == 5
    same(one, many)
    nothing_is_left(many)


def test_a_piece_that_cannot_be_done_leaves_all_as_it_was(tmp_path: Path, spark: Engine) -> None:
    _, run = both(tmp_path)
    before = content(run, "*")
    (run / "base/1/hosts/h3/loss.json").write_text("{")
    for each, error in ((spark.each, GraphError), (in_turn, RunFailed)):
        with pytest.raises(error) as failed:
            make_timelines(each, repeats_of(run), Silent())
        told = str(failed.value)
        assert told.startswith("the time line cannot be made: ") and "h3/loss.json" in told
        assert "\n" not in told
        nothing_is_left(run)
        changed = {name for name, bytes in content(run, "*").items() if before.get(name) != bytes}
        assert changed == {"base/1/hosts/h3/loss.json"}


@pytest.mark.parametrize("messages", [False, True])
def test_the_order_of_pieces_shows_nowhere(tmp_path: Path, messages: bool) -> None:
    one, many = both(tmp_path, messages=messages)
    make_timelines(backwards, repeats_of(many), Silent())
    with_tables(open_run(many))
    same(one, many)
    nothing_is_left(many)


def test_messages_bound_the_clocks_here_too(tmp_path: Path) -> None:
    """What the test above compares is not twice the time line without them."""
    without, _ = both(tmp_path / "without")
    _, run = both(tmp_path / "with", messages=True)
    make_timelines(in_turn, repeats_of(run), Silent())
    bytes = [(each / "base/1/tables/clock.parquet").read_bytes() for each in (without, run)]
    assert bytes[0] != bytes[1]


def test_exports_of_parts_are_those_of_merged_tables(tmp_path: Path) -> None:
    one, many = both(tmp_path)
    make_timelines(in_turn, repeats_of(many), Silent())
    with_tables(open_run(many))
    made = []
    for run in (one, many):
        opened, out = open_run(run), run.parent / "out"
        out.mkdir()
        write_ctf(opened, 1, "h1", out / "ctf", lambda done, total: None)
        write_perfetto(opened, 1, (), out / "trace.perfetto", lambda text: None)
        for form in ("csv", "parquet"):
            words = ["export", str(run), "--to", form, "-o", str(out / form)]
            assert CliRunner().invoke(app, words).exit_code == 0
        made.append(content(out, "*"))
    assert made[0].keys() == made[1].keys() and len(made[0]) > 15
    assert [name for name in made[0] if made[0][name] != made[1][name]] == []


def test_analyse_makes_what_is_missing_and_no_more(
    tmp_path: Path, duckdb: DuckDB, spark: Engine
) -> None:
    one, many = both(tmp_path)
    with TerminalProgress(verbose=False) as progress:
        _prepare([many], spark, progress)
    same(one, many)
    before = {path: path.stat().st_mtime_ns for path in many.rglob("*")}
    with TerminalProgress(verbose=False) as progress:
        _prepare([many], spark, progress)
    assert {path: path.stat().st_mtime_ns for path in many.rglob("*")} == before
    # Paths alone, and a time line that nobody finished; then as one process makes it.
    (many / "base/1/tables/path-loop.parquet").unlink()
    with TerminalProgress(verbose=False) as progress:
        _prepare([many], duckdb, progress)
    same(one, many)
    (many / "base/1/tables/summary.json").unlink()
    with TerminalProgress(verbose=False) as progress:
        _prepare([many], duckdb, progress)
    assert content(many, "base/1/*") == content(one, "base/1/*")
