"""Messages of programs as bounds on clocks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopscope import experiment
from loopscope.control.causality import messages_of

FILE = """\
name: causality
hosts: [h1, h2, h3]
clock: {messages: [loop]}
components:
  a: {host: h1, run: a}
  b: {host: h2, run: b}
  c: {host: h3, run: c}
phases:
  - {name: run, timeout: 5s}
measure:
  paths:
    loop: {key: number, events: [a/m:out, b/m:in, b/m:out, c/m:in, c/m:out, a/m:in]}
    other: {key: number, events: [a/m:out, b/m:in]}
"""


def record(repeat: Path, event: str, rows: list[tuple[str, int | None, int]]) -> None:
    process, number, counter = zip(*rows, strict=True)
    folder = repeat / "timeline" / "m" / event
    folder.mkdir(parents=True, exist_ok=True)
    columns = {
        "process": pa.array(process),
        "number": pa.array(number, pa.int32()),
        "counter": pa.array(counter, pa.uint64()),
    }
    pq.write_table(pa.table(columns), folder / "part-0.parquet")


@pytest.fixture
def plan(tmp_path: Path) -> experiment.Experiment:
    file = tmp_path / "causality.yaml"
    file.write_text(FILE)
    return experiment.load(file)


def test_messages_bound_clocks_by_keys_of_any_type(tmp_path: Path) -> None:
    file = tmp_path / "causality.yaml"
    file.write_text(FILE.replace("key: number", "key: [name, number]", 1))
    names = ["x", "x", "y", None]
    for event, process, counters in (("out", "a", [1, 2, 3, 4]), ("in", "b", [11, 12, 13, 14])):
        folder = tmp_path / "timeline" / "m" / event
        folder.mkdir(parents=True)
        columns = {
            "process": pa.array([process] * 4),
            "name": pa.array(names).dictionary_encode() if event == "in" else pa.array(names),
            "number": pa.array([1, (1 << 64) - 1, 1, 1], pa.uint64()),
            "counter": pa.array(counters, pa.uint64()),
        }
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
    found = messages_of(experiment.load(file), tmp_path)
    assert found["h2"] == [(False, 11, 1), (False, 12, 2), (False, 13, 3)]


def test_hops_to_and_from_the_reference_bound_its_peers(
    plan: experiment.Experiment, tmp_path: Path
) -> None:
    # Number 2 comes to b twice, 3 never, 4 has no sender; c's own events are not a's.
    out = [("a", 1, 100), ("a", 2, 200), ("a", 3, 300), ("b", 1, 17), ("b", 2, 27), ("c", 1, 70)]
    came = [("b", 1, 11), ("b", 2, 21), ("b", 2, 22), ("b", 4, 41), ("c", 1, 60), ("a", 1, 190)]
    record(tmp_path, "out", [*out, ("a", None, 400)])
    record(tmp_path, "in", [*came, ("b", None, 401)])
    assert messages_of(plan, tmp_path) == {"h2": [(False, 11, 100)], "h3": [(True, 70, 190)]}


def test_without_events_there_is_no_bound(plan: experiment.Experiment, tmp_path: Path) -> None:
    assert messages_of(plan, tmp_path) == {"h2": [], "h3": []}


def test_a_path_that_does_not_touch_the_reference_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "causality.yaml"
    mistaken = FILE.replace("clock: {messages: [loop]}", "clock: {messages: [other]}")
    file.write_text(mistaken.replace("[a/m:out, b/m:in]}\n", "[b/m:out, c/m:in]}\n"))
    (problem,) = experiment.check(file)
    assert (problem.line, problem.path) == (3, "clock.messages[0]")
    assert "no message of 'other' goes to or from h1, the reference" in problem.message
