"""What the manifest says about a common start."""

from __future__ import annotations

import pytest

from loopscope.control.components import State
from loopscope.control.instant import Instant
from loopscope.control.starts import start_of
from loopscope.experiment import Component, PhasesReady


def state(name: str, began: tuple[int, int] | None) -> State:
    """A component that began at an instant of global time, known within so many ns."""
    made = State(Component(name, "h1", ("x",), {}, {}, PhasesReady(), None, None))
    if began is not None:
        at, within = began
        made.began["run"] = Instant("h1", 5, at - within, at + within)
    return made


def test_the_skew_is_from_the_first_to_the_last() -> None:
    states = [state("b", (1_030, 2)), state("a", (1_010, 4)), state("c", (1_020, 50))]
    assert start_of("run", 1_000, states) == {
        "at_ns": 1_000,
        "components": {
            "b": {"late_ns": 30, "within_ns": 2},
            "a": {"late_ns": 10, "within_ns": 4},
            "c": {"late_ns": 20, "within_ns": 50},
        },
        "skew_ns": 20,
        "skew_within_ns": 6,
    }


@pytest.mark.parametrize("others", [[None], [(1_010, 4), None], [(1_010, 4)], []])
def test_a_skew_that_was_not_measured_is_null(others: list[tuple[int, int] | None]) -> None:
    states = [state(str(number), each) for number, each in enumerate(others)]
    made = start_of("run", 1_000, states)
    assert made["skew_ns"] is None and made["skew_within_ns"] is None
    assert [made["components"][str(n)] is None for n in range(len(others))] == [
        each is None for each in others
    ]
    unknown = State(states[0].spec) if states else state("x", None)
    unknown.began["run"] = Instant("h1", 5)
    assert start_of("run", 1_000, [unknown])["components"] == {unknown.spec.name: None}
