"""A verdict on a branching path is the true one or UNKNOWN.

This holds for all errors of stamps within their maximum error, and for all events that are lost.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import SECOND, Host, Row, SyntheticRun, with_tables
from test_path_graphs import Simulation, made_path

from loopscope.analysis import Verdict
from loopscope.experiment import (
    Allowed,
    Expectation,
    Hop,
    MessagePath,
    MissesIn,
    PathEdge,
    PathEvent,
    Requirement,
    TimeWindow,
)
from loopscope.experiment.measures import SAMPLING
from loopscope.timeline import open_run

pytestmark = pytest.mark.full

HOSTS = [Host("h1", True, 0, None), Host("h2", False, 9, None), Host("h3", False, 9, None)]
COUNTS = {"count": "used", "lost": "lost", "superseded": "superseded", "duplicates": "duplicates"}
TIMES = ("min", "p50", "max", "age", "jitter")


def expectations(path: MessagePath, flows) -> list[Expectation | Requirement]:
    """Limits about what is true."""
    found: list[Expectation | Requirement] = []

    def expect(ends: tuple[int, int], stat: str, value: float, is_time: bool) -> None:
        for op in ("<", ">=", "=="):
            text = f"{ends} {stat} {op} {value}"
            found.append(Expectation(text, "way", Hop(*ends), stat, op, value, is_time))

    for ends, flow in flows:
        for stat, of in COUNTS.items():
            for value in {getattr(flow, of), getattr(flow, of) + 1}:
                expect(ends, stat, value, is_time=False)
        for stat in TIMES:
            value = {"age": flow.age_ns, "jitter": flow.jitter_ns}.get(stat, flow.times.get(stat))
            for limit in [] if value is None else [int(value), int(value) + 1, int(value * 1.3)]:
                expect(ends, stat, limit, is_time=True)
        found += requirements(path, ends, flow)
        if flow.rate_hz is not None:
            for rate in (flow.rate_hz * 0.97, flow.rate_hz * 1.03):
                expect(ends, "rate", rate, is_time=False)
    return found


def requirements(path: MessagePath, ends: tuple[int, int], flow) -> list[Requirement]:
    """Requirements on each message, or each use, of a branching path.

    They are checked against the simulation of `test_path_graphs`, and by the language.
    """
    found = []

    def require(kind: str, op: str | None = None, limit: int | None = None) -> None:
        for allowed in (Allowed(), Allowed(met_ppb=700_000_000), Allowed(rows=(MissesIn(1, 4),))):
            for window in (None, TimeWindow(3_000_000), TimeWindow(1_000_000, 4_500_000)):
                text = f"{ends} {kind} {op} {limit} {allowed} {window}"
                hop = Hop(*ends)
                found.append(
                    Requirement(text, kind, "way", hop, None, op, limit, None, allowed, window)
                )

    for limit in {flow.times["p50"], flow.times["max"]} - {None}:
        require("time", "<=", limit)
        require("age", "<=", limit * 3)
    if not path.uses(*ends) & SAMPLING:
        require("complete")
        require("order")
        require("before", ">", 0)
    return found


def graph_of(folder: Path, rows, path, expected=(), components=(), **more):
    made = SyntheticRun(folder, rows, HOSTS, components=components, **more)
    return with_tables(open_run(made.write()), [path], expected)


def verdicts(results) -> dict[str, Verdict]:
    return {each.text: each.verdict for each in results.expectations}


def compare(tmp_path: Path, seed: int, distort, in_order: bool) -> Counter[Verdict]:
    """Rows of misses are in the order of the stamps, which clocks that run backwards change."""
    simulation = Simulation(seed, 1, doubt=False)
    path, _ = made_path(simulation)
    components = [event.component for event in path.events]
    rows = [replace(row, host="h3") for row in simulation.rows(1)]
    whole = graph_of(tmp_path / "whole", rows, path, components=components)
    [graph] = whole.graphs
    flows = [*zip(path.hops, graph.edges, strict=True), *zip(path.ends, graph.ends, strict=True)]
    expected = expectations(path, flows)
    truth = verdicts(graph_of(tmp_path / "true", rows, path, expected, components))
    seen, more = distort(rows)
    found = verdicts(graph_of(tmp_path / "seen", seen, path, expected, components, **more))
    for each in expected:
        if in_order or not (isinstance(each, Requirement) and each.allowed.rows):
            verdict = found[each.text]
            assert verdict in (truth[each.text], Verdict.UNKNOWN), (each.text, truth[each.text])
    return Counter(found.values())


@pytest.mark.parametrize("width", [400, 60_000])
@pytest.mark.parametrize("seed", range(6))
def test_no_verdict_is_wrong_within_the_half_widths(tmp_path: Path, seed: int, width: int) -> None:
    chance = random.Random(seed)

    def distort(rows: list[Row]):
        return [
            replace(row, ts=row.ts + chance.randint(-width, width), err=width) for row in rows
        ], {}

    found = compare(tmp_path, seed, distort, in_order=False)
    assert found[Verdict.PASS] and found[Verdict.FAIL]


@pytest.mark.parametrize("seed", range(6))
def test_no_verdict_is_wrong_whatever_was_dropped(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def distort(rows: list[Row]):
        components = sorted({row.component for row in rows})
        some = chance.sample(components, 1 + (seed % 2)) if components else []
        # With all of its occurrences: that a later one is taken for the first is not bounded.
        messages = sorted({(row.component, row.fields) for row in rows if row.component in some})
        gone = {message for message in messages if chance.random() < 0.2}
        dropped = {row for row in rows if (row.component, row.fields) in gone}
        drops = Counter((row.component, row.entity) for row in dropped)
        return [row for row in rows if row not in dropped], {"drops": drops}

    compare(tmp_path, seed, distort, in_order=True)


SENT = PathEvent("source", "h1", "a", "sent")
CAME = PathEvent("control", "h1", "a", "received")
STEP = PathEvent("control", "h1", "b", "step")
HELD = MessagePath(
    "way",
    "id",
    (SENT, CAME, STEP),
    keys=("id", "id", None),
    edges=(PathEdge(0, 1, "key", "id"), PathEdge(1, 2, "latest", None)),
)


def held(came: list[int], steps: list[int], err: int = 0) -> list[Row]:
    """A message sent 1 µs before each arrival."""
    rows = []
    for n, ts in enumerate(came):
        rows.append(Row("source", "a:sent", n, SECOND + ts - 1000, err))
        rows.append(Row("control", "a:received", n, SECOND + ts, err))
    return rows + [Row("control", "b:step", 0, SECOND + ts, err) for ts in steps]


def flow_of(folder: Path, rows: list[Row], path: MessagePath = HELD, **more):
    results = graph_of(folder, rows, path, components=["source", "control"], **more)
    return results.graphs[0].ends[0], results


def test_a_step_within_the_half_width_of_an_arrival_leaves_both_open(tmp_path: Path) -> None:
    flow, results = flow_of(tmp_path, held([0, 5000, 10_000], [2000, 5003, 12_000], err=4))
    # The second step took the first message or the second; the first was used anyhow.
    assert (flow.used, flow.undecided, flow.superseded) == (2, 1, 0)
    assert flow.age_ns == 3000 and flow.age_err_ns is None
    rows = open_run(tmp_path).path_tables["way"].to_pyarrow().to_pylist()
    assert [row["key_1"] for row in rows] == [0, None, 2]
    assert [row["undecided"] for row in rows] == [False, True, False]
    assert [row["latency"] for row in rows] == [3000, None, 3000]
    sure, _ = flow_of(tmp_path / "sure", held([0, 5000, 10_000], [2000, 5009, 12_000], err=4))
    assert (sure.used, sure.undecided) == (3, 0)


def test_messages_within_the_warm_up_are_in_no_count(tmp_path: Path) -> None:
    rows = held([1000, 5000, 9000, 13_000], [6000, 14_000])
    all_, _ = flow_of(tmp_path / "all", rows)
    assert (all_.sent, all_.used, all_.superseded) == (4, 2, 2)
    trimmed, _ = flow_of(tmp_path / "trimmed", rows, replace(HELD, trim_ns=7000))
    assert (trimmed.sent, trimmed.used, trimmed.superseded) == (2, 1, 1)
    assert trimmed.age_ns == 2000


def test_what_nothing_was_used_after_is_neither_lost_nor_superseded(tmp_path: Path) -> None:
    flow, _ = flow_of(tmp_path, held([0, 5000, 10_000], [-5000, 6000]))
    assert (flow.used, flow.superseded, flow.unused, flow.lost, flow.empty) == (1, 1, 1, 0, 1)


def test_rate_and_jitter_are_of_the_messages_at_the_end(tmp_path: Path) -> None:
    steps = [0, 10_000_000, 20_000_000, 31_000_000, 40_000_000]
    flow, _ = flow_of(tmp_path, held([-1000], steps))
    assert flow.rate_hz == 100.0 and flow.jitter_ns == 2_000_000


def test_an_event_that_was_not_recorded_at_all_is_a_problem_and_no_result(tmp_path: Path) -> None:
    rows = [row for row in held([0, 5000], [6000]) if row.entity != "b:step"]
    flow, results = flow_of(tmp_path, rows)
    assert (flow.sent, flow.unused, flow.age_ns, flow.rate_hz) == (2, 2, None, None)
    assert any("no b:step was recorded at all" in each for each in results.problems)
