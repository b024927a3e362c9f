"""The verdict on a single message: what `loopscope why` says of it first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import expectation, pipeline
from test_ranking import LATE, MS, held_run, message
from typer.testing import CliRunner

from loopscope.analysis.message_verdict import Expected, expected
from loopscope.analysis.verdict import Verdict
from loopscope.cli import app
from loopscope.experiment.measures import Allowed, Expectation, Hop, Requirement
from loopscope.timeline import open_run

FAIL, PASS, UNKNOWN = Verdict.FAIL, Verdict.PASS, Verdict.UNKNOWN
LOSSLESS = expectation("loop.lost == 0", "lost", "==", 0, is_time=False)


def ask(*words: str | Path) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("ns", "verdict"), [(111, FAIL), (110, UNKNOWN), (91, UNKNOWN), (90, PASS)]
)
def test_a_verdict_stands_for_every_time_within_the_maximum_error(
    ns: int, verdict: Verdict
) -> None:
    took = message(1, [("running", "n", ns)])
    assert took.err_ns == 10
    assert Expected(100, None).verdict(took) is verdict
    assert Expected(None, FAIL).verdict(took) is None
    lost = replace(took, ns=0, lost=True)
    assert Expected(100, None).verdict(lost) is None
    assert Expected(None, UNKNOWN).verdict(lost) is UNKNOWN


def wanted(root: Path, *expect: Any, **more: Any) -> Expected:
    run = open_run(pipeline(root, messages=20, expect=expect, **more).write())
    experiment = run.specification
    assert experiment is not None
    return expected(run, experiment.paths[0])


def test_the_least_limit_on_the_whole_path_counts(tmp_path: Path) -> None:
    def each(kind: Any, ns: int | None, hop: Hop | None = None) -> Requirement:
        return Requirement("", kind, "loop", hop, None, "<=", ns, None, Allowed(), None)

    every = [LATE, each("time", 4 * MS), expectation("", "max", "<", 9 * MS)]
    assert wanted(tmp_path / "whole", *every) == Expected(4 * MS, None)
    whole = Hop(0, 5)
    assert wanted(tmp_path / "named", each("time", 3 * MS, whole)) == Expected(3 * MS, None)
    others = [
        expectation("", "p99", "<", 1 * MS, hop=2),
        expectation("", "deviation", "<", 1_000),
        expectation("", "count", ">", 5, is_time=False),
        Expectation("", "other", None, "p99", "<", 10, True),
        each("age", 2 * MS),
    ]
    assert wanted(tmp_path / "others", *others) == Expected(None, None)
    assert wanted(tmp_path / "complete", each("complete", None)) == Expected(None, FAIL)
    assert wanted(tmp_path / "lost", LOSSLESS) == Expected(None, FAIL)
    hop = replace(LOSSLESS, hop=Hop(1, 2))
    more = expectation("", "lost", ">", 0, is_time=False)
    assert wanted(tmp_path / "of a hop", hop, more) == Expected(None, None)


def test_what_was_dropped_is_not_surely_lost(tmp_path: Path) -> None:
    drops = {("sink", "pipe:received"): 1}
    assert wanted(tmp_path, LOSSLESS, drops=drops) == Expected(None, UNKNOWN)


def test_the_first_line_and_the_json_say_it(tmp_path: Path) -> None:
    made = held_run(tmp_path / "run")
    first, *_ = ask("why", made, "--message", "3").splitlines()
    assert first.startswith(
        "message 3: loop 9.060 ms ± 0 ns, FAIL: 8.980 ms runnable: sink of h1 (t20) waited"
    )
    (one,) = map(json.loads, ask("why", made, "--message", "3", "--json").splitlines())
    assert (one["path"], one["verdict"], one["ns"]) == ("loop", "FAIL", 9 * MS + 60_000)
    # What is late may be said; the verdict is the experiment's.
    over = ask("why", made, "--over", "1ms", "--json").splitlines()
    assert [json.loads(line)["verdict"] for line in over] == ["FAIL"] * 20


@pytest.mark.parametrize(
    ("expect", "verdict", "said"),
    [([LATE], None, "loop: lost"), ([LOSSLESS], "FAIL", "loop, FAIL: lost")],
)
def test_a_lost_message_fails_where_losses_are_judged(
    tmp_path: Path, expect: list[Any], verdict: str | None, said: str
) -> None:
    made = held_run(tmp_path / "run", expect=expect, lost=[19])
    first, *_ = ask("why", made, "--message", "19").splitlines()
    assert first.startswith(f"message 19: {said} between source/pipe:sent and sink/pipe:received")
    (one,) = map(json.loads, ask("why", made, "--lost", "--json").splitlines())
    assert (one["id"], one["verdict"]) == (19, verdict)
    kept = ask("why", made, "--message", "3").splitlines()[0]
    assert (", FAIL: " in kept) is (verdict is None), kept
