"""Requirements on each message, or each use, of a branching path.

They are checked against the simulation of `test_path_graphs`, and by the language.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import SECOND, ClockStep, Host, Row, SyntheticRun
from test_path_graphs import (
    JOINS,
    SUPERSEDED,
    UNUSED,
    USED,
    Simulation,
    Towards,
    kinds,
    leads,
    made_path,
    origins,
    recorded,
    surely,
)

from loopscope.analysis import AnalysisError, Verdict, analyse
from loopscope.analysis.results import LoopResult
from loopscope.experiment import Allowed, Hop, Requirement, TimeWindow
from loopscope.experiment.document import from_text
from loopscope.timeline import open_run

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
SAMPLERS = {"latest", "named", "window"}
US = 1000


def wanted(kind: str, ends: tuple[int, int], limit: int | None, window=None) -> Requirement:
    op = None if limit is None else "<="
    return Requirement(kind, kind, "way", Hop(*ends), None, op, limit, None, Allowed(), window)


class Truth:
    """What is true of a part in one repeat; times from the stamps alone."""

    def __init__(self, simulation: Simulation, start: int, end: int) -> None:
        self.simulation, self.start, self.end = simulation, start, end
        self.nodes = simulation.nodes
        self.on_the_way = kinds(self.nodes, start, end)
        self.samples = bool(self.on_the_way & SAMPLERS)
        self.joins = bool(self.on_the_way & {*JOINS})
        self.towards = Towards(simulation, end)
        begins = [m.ts for node in self.nodes if not node.inputs for m in node.messages]
        # Where nothing set out no time is counted.
        self.zero = min(begins, default=-SECOND)
        stamps = [row.ts for row in simulation.rows(1)]
        self.last = max(stamps, default=0) - 5 * SECOND

    def inside(self, window: TimeWindow | None, at: int) -> bool:
        if window is None:
            return True
        since = at - self.zero
        return since >= window.after_ns and (window.until_ns is None or since < window.until_ns)

    def first_use(self, message):
        uses = self.towards.uses(self.start, message, surely)
        return min(uses, key=lambda use: (use.ts, use.number), default=None)

    def counts(self, requirement: Requirement) -> tuple[int, int, int, int]:
        """Met, missed, undecided, beyond the end."""
        found = [0, 0, 0, 0]
        kind, limit, window = requirement.kind, requirement.limit_ns, requirement.window
        if kind == "age":
            for use in self.nodes[self.end].messages:
                made_of, _ = origins(self.simulation, self.end, use, self.start)
                if made_of and self.inside(window, use.ts):
                    oldest = min(message.ts for message in made_of)
                    found[use.ts - oldest > limit] += 1
            return tuple(found)
        for message in self.nodes[self.start].messages:
            if not self.inside(window, message.ts):
                continue
            fate, use = self.towards.fate(self.start, message), self.first_use(message)
            if kind == "time" and fate == SUPERSEDED and self.samples:
                continue
            if kind == "time" and fate != USED:
                passed = self.last - message.ts >= limit
                unused = fate == UNUSED and self.samples
                found[(2 if unused else 1) if passed else 3] += 1
            elif kind == "time":
                found[use.ts - message.ts > limit] += 1
            else:
                found[not self.whole(message)] += 1
        return tuple(found)

    def whole(self, message) -> bool:
        """Whether it was at every event on the way, once."""
        for index in range(self.start, self.end + 1):
            if leads(self.nodes, self.start, index) and leads(self.nodes, index, self.end):
                of = Truth(self.simulation, self.start, index) if index != self.start else None
                there = message if of is None else of.first_use(message)
                if there is None or there.times > 1:
                    return False
        return True


@pytest.mark.parametrize("seed", range(10))
def test_cases_of_a_random_graph(tmp_path: Path, seed: int) -> None:
    simulation = Simulation(seed, 1, doubt=False)
    path, place = made_path(simulation)
    run, _ = recorded(tmp_path, [simulation], path)
    window = TimeWindow(1_500_000, 5_000_000)
    requirements, truths = [], []
    for start in range(len(path.events)):
        for end in range(len(path.events)):
            if start not in path.before(end):
                continue
            truth = Truth(simulation, place[start], place[end])
            assert truth.samples == bool(path.uses(start, end) & {"latest", "window"})
            given = [wanted("time", (start, end), limit) for limit in (200 * US, 900 * US)]
            given.append(wanted("time", (start, end), 400 * US, window))
            if truth.joins:
                given.append(wanted("age", (start, end), 700 * US))
                given.append(wanted("age", (start, end), 700 * US, window))
            if not truth.samples:
                given.append(wanted("complete", (start, end), None))
            requirements += given
            truths += [truth.counts(each) for each in given]
    results = analyse(run, [path], requirements).expectations
    assert len(results) > 3
    for requirement, result, truth in zip(requirements, results, truths, strict=True):
        counts = result.counts and tuple(vars(result.counts).values())
        assert (counts or (0, 0, 0, 0)) == truth, requirement
        if truth[1] and not requirement.allowed.rows:
            assert result.verdict is F
        elif sum(truth[:3]):
            assert result.verdict is (U if truth[2] else P)


FILE = """
name: x
hosts: [h1, h2]
components:
  source: {host: h1, run: 'true'}
  other: {host: h2, run: 'true'}
  control: {host: h2, run: 'true'}
phases: [{name: run, timeout: 1s}]
measure:
  paths:
    way:
      events:
        - source/a:sent
        - {event: other/a:seen, after: source/a:sent}
        - {event: control/a:received, after: source/a:sent}
        - {event: control/b:step, join: {control/a:received: latest}}
"""
TO_OTHER = "way[source/a:sent -> other/a:seen]"
TO_STEP = "way[source/a:sent -> control/b:step]"


def expected(*lines: str):
    return from_text(FILE + f"expect: {json.dumps(lines)}\n", "x.yaml", {})


def rows(err: int = 0) -> list[Row]:
    """Messages, one each millisecond without the fifth; steps at 1.5 ms and each 2 ms later.

    Ages at the steps are 0.5 ms, and 3.5 ms at the last one, because no further message came.
    """
    made = [Row("source", "a:sent", n, SECOND + n * 1000 * US, 0, "h1") for n in range(8)]
    for n in range(8):
        sent = SECOND + n * 1000 * US
        if n != 4:
            made.append(Row("other", "a:seen", n, sent + (n + 1) * 10 * US, err, "h2"))
        made.append(Row("control", "a:received", n, sent + 20 * US, err, "h2"))
    steps = [1500 * US + n * 2000 * US for n in range(4)] + [10_500 * US]
    return made + [Row("control", "b:step", 0, SECOND + at, err, "h2") for at in steps]


def judged(folder: Path, *lines: str, err: int = 0, **more):
    plan, problems = expected(*lines)
    assert plan is not None, problems
    hosts = [Host("h1", True, 0, 0.0), Host("h2", False, 9, 1.0)]
    made = SyntheticRun(folder, rows(err), hosts, components=["source", "other", "control"], **more)
    return analyse(open_run(made.write()), plan.paths, plan.expectations)


def test_requirements_of_a_sink(tmp_path: Path) -> None:
    lines = [
        f"{TO_OTHER} <= 80us",
        f"{TO_OTHER} <= 80us for 85%",
        f"{TO_OTHER} <= 50us, no two misses in a row",
        f"{TO_OTHER} <= 50us between 0s and 4ms",
        f"{TO_OTHER} complete",
        f"{TO_OTHER} in order",
        f"{TO_OTHER}.age <= 1080us",
        f"{TO_OTHER}.p99 <= 40us between 0s and 4ms",
        f"{TO_OTHER}.rate < 1kHz",
        "other/a:seen.rate < 1kHz",
        f"{TO_OTHER}.jitter == 1010us",
        "other/a:seen.jitter == 1010us",
        "way[source/a:sent before other/a:seen]",
        "way[other/a:seen before source/a:sent] for 1%",
    ]
    results = judged(tmp_path, *lines).expectations
    verdicts = [each.verdict for each in results]
    assert verdicts == [F, P, F, P, F, P, F, P, P, P, P, P, F, F]
    assert results[8].measured == results[9].measured
    assert results[10].measured == results[11].measured == 1_010_000
    assert vars(results[0].counts) == {"met": 7, "missed": 1, "undecided": 0, "beyond": 0}
    [lost] = results[0].deciding
    assert (lost.id, lost.lost, lost.at_ns) == (4, True, 4_000_000)
    # The age of information, as of a list: what was lost lets the data before it grow old. And what
    # came last grew old until the end.
    oldest = results[6].deciding[0]
    assert (oldest.value_ns, results[6].counts.missed) == (10_500_000 - 7_000_000, 2)


def test_ages_at_a_join_are_of_each_use(tmp_path: Path) -> None:
    lines = [
        f"{TO_STEP}.age <= 500us",
        f"{TO_STEP}.age <= 500us for 80%",
        f"{TO_STEP}.age <= 500us, no two misses in a row",
        f"{TO_STEP}.age <= 500us between 0s and 8ms",
        f"{TO_STEP}.age <= 3500us after 8ms",
        f"{TO_STEP} < 500us for 1%",
        f"{TO_STEP} <= 500us",
        "way[control/a:received -> control/b:step].superseded == 4 between 0s and 8ms",
        f"{TO_STEP}.max <= 500us between 0s and 7ms",
    ]
    results = judged(tmp_path, *lines).expectations
    assert [each.verdict for each in results] == [F, P, P, P, P, F, P, P, P]
    assert vars(results[0].counts) == {"met": 4, "missed": 1, "undecided": 0, "beyond": 0}
    [old] = results[0].deciding
    assert (old.value_ns, old.at_ns) == (3_500_000, 10_500_000)
    # Four of eight messages were superseded; they are no cases.
    assert vars(results[6].counts) == {"met": 4, "missed": 0, "undecided": 0, "beyond": 0}


def test_a_use_that_the_clock_leaves_open_is_undecided(tmp_path: Path) -> None:
    # A receipt may have come before or after the step, 480 µs later.
    [found] = judged(tmp_path, f"{TO_STEP}.age <= 800us for 70%", err=600 * US).expectations
    drifting = judged(tmp_path / "own", f"{TO_STEP}.age <= 1100us for 70%", err=600 * US)
    assert found.verdict is U
    assert drifting.expectations[0].verdict is P


def test_what_the_trace_may_have_dropped_may_have_been_used(tmp_path: Path) -> None:
    drops = {("control", "a:received"): 2}
    results = judged(tmp_path, f"{TO_STEP}.age < 9s", f"{TO_STEP} < 1us", drops=drops)
    assert [each.verdict for each in results.expectations] == [U, U]
    assert results.expectations[0].reason == (
        "up to 2 events may be missing from the trace, so that others may have been used"
    )
    results = judged(tmp_path / "else", f"{TO_OTHER} <= 80us for 85%", drops=drops)
    assert results.expectations[0].verdict is P


def test_clocks_in_doubt_concern_both_ends_of_a_part(tmp_path: Path) -> None:
    loop = LoopResult(1, "h2", "h3", 9, 0, 9, 0, 9, 3, 1, 1, 1, 1, 1, None)
    own = "way[control/a:received -> control/b:step].age < 9s"
    lines = [f"{TO_STEP}.age < 9s", f"{TO_OTHER} < 9s for 50%", own, f"{TO_OTHER}.rate < 1kHz"]
    results = judged(tmp_path, *lines, loops=[loop]).expectations
    assert [each.verdict for each in results] == [U, U, P, P]
    assert "contradict each other" in results[0].reason
    step = ClockStep("h2", ns=(10 * SECOND, 10 * SECOND))
    results = judged(tmp_path / "set", *lines, clock_steps=[step])
    [told] = [each for each in results.problems if "was set" in each]
    assert f"{TO_STEP}.age < 9s (PASS); {TO_OTHER} < 9s for 50% (PASS)" in told
    assert own not in told and "rate" not in told


REFUSED = {
    f"{TO_STEP} in order": ("'in order' is said of messages that all go on", f"{TO_STEP}.age"),
    f"{TO_STEP} complete": ("'complete' is said of messages that all go on", f"{TO_STEP}.age"),
    "way[source/a:sent before control/b:step]": ("'before' is said of messages", "way["),
    "way < 5ms": ("has 2 ends", TO_OTHER),
    "way.age < 5ms": ("has 2 ends", TO_OTHER),
    "way symmetric within 5ms": ("without branches and joins; 'way' has them", None),
    "way[other/a:seen -> control/b:step] < 5ms": ("nothing leads from other/a:seen", None),
    "way[other/a:seen before control/b:step]": ("nothing leads from other/a:seen", None),
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_makes_no_sense_is_refused_at_its_place(line: str) -> None:
    plan, [problem] = expected(line)
    message, hint = REFUSED[line]
    assert plan is None and message in problem.message
    assert (problem.path, problem.line) == ("expect[0]", FILE.count("\n") + 1)
    assert hint is None or problem.hint.startswith(hint)


def test_what_makes_no_sense_is_no_verdict_either(tmp_path: Path) -> None:
    plan, _ = expected(f"{TO_OTHER} in order", f"{TO_STEP} < 5ms")
    run = open_run(SyntheticRun(tmp_path, rows(), components=["source", "other"]).write())
    order, time = plan.expectations
    with pytest.raises(AnalysisError, match="order is said of parts that take every message"):
        analyse(run, plan.paths, [replace(order, hop=time.hop)])
