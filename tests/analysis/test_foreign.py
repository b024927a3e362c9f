"""Events that other tools recorded: what their loss and their stamps leave open."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import Row, SyntheticRun

from loopscope.analysis import analyse
from loopscope.analysis.missing_events import UNACCOUNTED, contradictions, missing_events
from loopscope.experiment import MessagePath, PathEvent, PathTrigger, Stream
from loopscope.timeline import open_run

ENTITY = "topic:publish"


def made(root: Path, *foreign: dict[str, Any]) -> Path:
    """A path whose second event is another tool's, on the host of the first."""
    path = MessagePath("topic", "id", (event("talker", "own:sent"), event("talker", ENTITY)))
    rows = [
        Row("talker", entity, number, 1_000_000 * number + late, err=100)
        for number in range(1, 11)
        for entity, late in (("own:sent", 0), (ENTITY, 5_000))
    ]
    run = SyntheticRun(root, rows, paths=[path], components=["talker"]).write()
    file = run / "base/1/timeline/topic/publish/part-0.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("counter")
    nulls = pa.nulls(len(table), pa.uint64())
    pq.write_table(table.set_column(at, "counter", nulls), file)
    # The process says that it recorded its own events, and no others.
    loss = run / "base/1/hosts/h1/loss.json"
    account = json.loads(loss.read_text())
    for each in (account, *account["processes"]):
        each["emitted"] = each["recorded"] = 10
    loss.write_text(json.dumps(account))
    summary = {"problems": [], "foreign": list(foreign)}
    (run / "base/1/tables/summary.json").write_text(json.dumps(summary))
    return run


def event(component: str, entity: str) -> PathEvent:
    return PathEvent(component, "h1", *entity.split(":"))


def source(kind: str | None = "ctf", whole: bool = True, **lost: int) -> dict[str, Any]:
    none = {"events": 0, "events_before": 0, "packets": 0}
    return {
        "host": "h1",
        "process": "lttng",
        "source": "components/lttng/files/lttng",
        "kind": kind,
        "events": 10,
        "unknown": 0,
        "lost": none | lost,
        "whole": whole,
        "tables": ["topic.publish"] if kind == "ctf" else [],
    }


@pytest.mark.parametrize(
    ("foreign", "missing"),
    [
        ([source()], 0),
        ([source(events=2, events_before=3), source(events=4)], 9),
        ([source(), source("pcap", whole=False)], 0),
        ([source(), source(None, whole=False)], UNACCOUNTED),
        ([source(packets=1)], UNACCOUNTED),
        ([source(whole=False)], UNACCOUNTED),
    ],
)
def test_what_a_tool_lost_may_be_missing(
    tmp_path: Path, foreign: list[dict[str, Any]], missing: int
) -> None:
    run = open_run(made(tmp_path / "run", *foreign))
    assert missing_events(run, "talker", ENTITY) == missing
    # What loopscope recorded has accounts of its own.
    assert missing_events(run, "talker", "own:sent") == 0


def test_foreign_events_are_in_no_account_and_have_both_errors(tmp_path: Path) -> None:
    run = open_run(made(tmp_path / "run", source()))
    assert contradictions(run) == []
    [foreign] = run.foreign
    assert (foreign.repeat, foreign.lost, foreign.tables) == (1, 0, ("topic.publish",))
    results = analyse(run)
    assert results.paths[0].loop.count == 10
    # One host, but two clocks: the rate's bound, nanoseconds here, does not hold.
    assert results.paths[0].loop.err_ns == 200


def test_what_only_own_events_can_do_is_told(tmp_path: Path) -> None:
    root = made(tmp_path / "run", source())
    manifest = json.loads((root / "manifest.json").read_text())
    experiment = manifest["experiment"]
    experiment["clock"]["messages"] = ["topic"]
    stream = Stream(
        "late", "flight-recorder", ("*",), 4096, 4, (), (PathTrigger("topic", 1),), 0, False
    )
    experiment["streams"] = [dataclasses.asdict(stream)]
    (root / "manifest.json").write_text(json.dumps(manifest))
    told = [each for each in analyse(open_run(root)).problems if "another tool" in each]
    assert [each.partition(" was recorded")[0] for each in told] == [
        f"clock: messages: topic: talker/{ENTITY}",
        f"stream late: no message of topic could trigger it: talker/{ENTITY}",
    ]
    # Its own events do both.
    summary = {"problems": [], "foreign": []}
    (root / "base/1/tables/summary.json").write_text(json.dumps(summary))
    assert not any("another tool" in each for each in analyse(open_run(root)).problems)
