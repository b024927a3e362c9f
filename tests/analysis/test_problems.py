"""Problems that a time line's making found: those of many loops of clocks are one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_run import pipeline

from loopscope.analysis import analyse
from loopscope.timeline import open_run


def failed(number: int, why: str = "nothing was answered") -> dict[str, str]:
    return {"host": f"h{number}", "file": f"clock/mesh/h{number + 1}", "what": why}


def contradicting(number: int, at: int) -> dict[str, str]:
    what = (
        f"between 0.100 s and 1.200 s of the run its time and h{number + 1}'s contradict the "
        f"probes between the two, at {at} of 100 instants: the clock of one of them or of the "
        "reference, or a stamp, is wrong, and maximum errors of times between hosts may be"
    )
    return {"host": f"h{number}", "file": "clock/probes", "what": what}


OTHER = {"host": "h9", "file": "clock/probes", "what": "3 bytes at the end are torn"}


def problems(folder: Path, *found: dict[str, str]) -> tuple[str, ...]:
    run = pipeline(folder, messages=20).write()
    summary = run / "base/1/tables/summary.json"
    said = json.loads(summary.read_text())
    summary.write_text(json.dumps({**said, "problems": list(found)}))
    return analyse(open_run(run)).problems


def test_loops_that_fail_are_one_problem(tmp_path: Path) -> None:
    found = [failed(number) for number in range(20, 28)]
    found[3] = failed(23, "its log is torn")
    assert problems(tmp_path, OTHER, *found) == (
        "h9, repeat 1: clock/probes: 3 bytes at the end are torn",
        "clocks: 8 loops of two hosts and the reference could not be checked; of h20 h21: nothing "
        "was answered; also of h21 h22, h22 h23, h23 h24, h24 h25 and 3 more",
    )


def test_loops_that_contradict_are_one_problem_with_the_worst_first(tmp_path: Path) -> None:
    found = [contradicting(number, at=10 * (number % 7 + 1)) for number in range(4)]
    before, after = (
        "clocks: 4 loops of two hosts and the reference contradict themselves; of ",
        ("; also of h2 h3, h1 h2, h0 h1"),
    )
    [told] = problems(tmp_path, *found)
    assert told == before + f"h3 h4: {found[3]['what']}" + after


@pytest.mark.parametrize("number", [1, 3])
def test_few_have_a_problem_each(tmp_path: Path, number: int) -> None:
    found = [failed(each) for each in range(number)] + [contradicting(7, 1)]
    assert problems(tmp_path, *found) == tuple(
        f"{each['host']}, repeat 1: {each['file']}: {each['what']}" for each in found
    )
