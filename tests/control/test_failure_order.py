"""Failures stand in the order of their causes: on one host by its clock, else as clocks tell."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from loopscope.control.failure import ComponentFailure, ComponentsFailed, Instant
from loopscope.control.instant import PrintedLine


def failure(name: str, at: Instant) -> ComponentFailure:
    return ComponentFailure(name, at.host, "run", [name], "exit status 1", at)


def texts(*failures: ComponentFailure) -> set[str]:
    """The text of these failures, for each order in which they may be reported."""
    return {str(ComponentsFailed(each, [])) for each in permutations(failures)}


def test_the_surely_earlier_one_is_the_cause_whatever_is_reported_first() -> None:
    # The later one's CLOCK_MONOTONIC is smaller: that host was booted later.
    first = failure("a", Instant("h1", 9_000, 100, 200))
    second = failure("b", Instant("h2", 10, 201, 300))
    (text,) = texts(first, second)
    assert text.startswith("a on h1 failed in phase run: exit status 1")
    assert "\nafter that, b on h2: exit status 1" in text


def test_where_bounds_overlap_the_order_is_unknown() -> None:
    first = failure("a", Instant("h1", 5, 100, 201))
    second = failure("b", Instant("h2", 5, 201, 300))
    unknown = failure("c", Instant("h3", 1))
    for text in texts(first, second, unknown):
        assert "\nbefore or after that (the clocks do not tell), b on h2" in text
        assert "after that, " not in text.replace("before or after that, ", "")


def test_on_one_host_its_own_clock_tells() -> None:
    first = failure("a", Instant("h1", 5, 100, 300))
    second = failure("b", Instant("h1", 6, 100, 300))
    (text,) = texts(first, second)
    assert text.startswith("a on h1") and "\nafter that, b on h1" in text


def test_nothing_stands_before_what_was_surely_earlier() -> None:
    # By their latest bounds alone, c would come first, though it came after a on its own host.
    a = failure("a", Instant("h1", 1, 0, 900))
    b = failure("b", Instant("h2", 1, 100, 1000))
    c = failure("c", Instant("h1", 2, 0, 800))
    for order in permutations([a, b, c]):
        names = [each.component for each in ComponentsFailed(order, []).failures]
        assert names.index("a") < names.index("c")


def test_a_host_that_reports_what_cannot_be_does_not_hide_its_failures() -> None:
    a = failure("a", Instant("h1", 1, 500, 600))
    b = failure("b", Instant("h1", 2, 100, 200))
    c = failure("c", Instant("h2", 1, 300, 400))
    for order in permutations([a, b, c]):
        assert len(ComponentsFailed(order, []).failures) == 3


def test_paths_and_numbers_of_lines_are_as_they_are_elsewhere() -> None:
    at = Instant("h1", 5, 100, 200)
    line = PrintedLine(at, "no pressure")
    for core, told in (
        ("files/core.31", "hosts/h1/components/a/files/core.31"),
        ("given to systemd by kernel.core_pattern", "given to systemd by kernel.core_pattern"),
    ):
        lines = replace(failure("a", at), last_lines=[line], core=core).lines()
        assert f"  core dump: {told}" in lines
        assert "  its last line, after the global time in s when it was read:" in lines
    lines = replace(failure("a", at), last_lines=[line, line]).lines()
    assert "  its last 2 lines, after the global time in s when they were read:" in lines
