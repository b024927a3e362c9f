"""Causes by how many late messages they account for, and a path's times without one."""

from __future__ import annotations

import pytest

from loopscope.analysis.ranking import limit_of, rank, without
from loopscope.analysis.why import WhyHop, WhyMessage, WhyPart
from loopscope.experiment.measures import Allowed, Expectation, Hop, Requirement

HOG = "n waited on cpu0 behind hog"


def message(number: int, *hops: list[tuple[str, str, int]]) -> WhyMessage:
    """A message whose hops have these parts: name, cause and ns of each."""
    found = tuple(
        WhyHop("a", "b", sum(part[2] for part in parts), 10, tuple(_parts(parts)), None)
        for parts in hops
    )
    return WhyMessage(1, number, sum(hop.ns for hop in found), 10, False, found)


def _parts(parts: list[tuple[str, str, int]]) -> list[WhyPart]:
    return [WhyPart(name, ns, cause) for name, cause, ns in parts]


def test_the_cause_of_most_misses_is_first() -> None:
    late = [
        # The parts of one cause in all hops count together, and only together they make it late.
        message(1, [("running", "n", 40), ("runnable", HOG, 40)], [("runnable", HOG, 40)]),
        message(2, [("running", "n", 5), ("runnable", HOG, 105)]),
        # Either of two would have to go, and neither is enough.
        message(3, [("runnable", HOG, 190), ("blocked", "n slept", 190)]),
        # By far the longest, and of one message.
        message(4, [("blocked", "n slept", 5000)]),
    ]
    found = rank(late, 100)
    assert [(each.name, each.in_time, each.messages, each.ns) for each in found] == [
        ("runnable", 2, 3, 375),
        ("blocked", 1, 2, 5190),
        ("running", 1, 2, 45),
    ]


def test_nothing_is_late() -> None:
    assert rank([], 100) == []


def test_times_without_a_cause_are_of_all_messages() -> None:
    found = [message(i, [("running", "n", 10 + i), ("runnable", HOG, 1000)]) for i in range(4)]
    found += [message(i, [("running", "n", 10 + i)]) for i in range(4, 100)]
    result = without(found, "behind hog")
    assert (result.messages, result.held) == (100, 4)
    assert result.with_it == {"p50": 63, "p99": 1012, "max": 1013}
    assert result.without_it == {"p50": 59, "p99": 108, "max": 109}
    assert result.to_dict()["without_it"] == result.without_it
    assert without(found, "runnable: n waited").held == 4
    with pytest.raises(ValueError, match="'hogs'.*--rank"):
        without(found, "hogs")


def test_only_a_limit_on_time_makes_a_message_late() -> None:
    def expectation(stat: str, op: str, *, is_time: bool) -> Expectation:
        return Expectation("", "loop", None, stat, op, 5_000, is_time)  # type: ignore[arg-type]

    assert limit_of(expectation("p99", "<", is_time=True)) == 5_000
    assert limit_of(expectation("p99", ">", is_time=True)) is None
    assert limit_of(expectation("lost", "<", is_time=False)) is None
    assert limit_of(expectation("jitter", "<", is_time=True)) is None
    each = Requirement("", "time", "loop", Hop(0, 1), None, "<=", 7_000, None, Allowed(), None)
    assert limit_of(each) == 7_000
    order = Requirement("", "order", "loop", None, None, None, None, None, Allowed(), None)
    assert limit_of(order) is None
