"""Losses of hosts among failures: what is called the first cause, and what comes after it."""

from __future__ import annotations

from itertools import permutations
from math import inf

import pytest

from loopscope.control.desk_clock import DeskClock
from loopscope.control.failure import (
    ComponentFailure,
    ComponentsFailed,
    Failure,
    PhaseTimedOut,
    consequences,
)
from loopscope.control.host_loss import HostLoss, Missed
from loopscope.control.instant import Instant, PrintedLine
from loopscope.control.progress import Silent
from loopscope.provider._proto import agent_pb2 as pb

SECOND = 1_000_000_000


def failure(at: Instant, received_ns: int | None = None, name: str = "client") -> ComponentFailure:
    what = "exit status 7"
    return ComponentFailure(name, at.host, "run", [name], what, at, (), received_ns=received_ns)


def loss(earliest: float, latest: float, alive_ns: int = 0, host: str = "h2") -> HostLoss:
    at = Instant(host, 0, earliest, latest)
    return HostLoss(host, "run", "its agent is gone", at, alive_ns, ["server"])


def text(*failures: Failure) -> str:
    """The text of these failures, which is the same for each order in which they are given."""
    (only,) = {str(ComponentsFailed(each, ["bystander (h1)"])) for each in permutations(failures)}
    return only


@pytest.mark.parametrize(
    ("at", "when"),
    [
        ((150, 160), "before or after that (it is not known so closely when the host was lost)"),
        ((190, 210), "before or after that (it is not known so closely when the host was lost)"),
        ((201, 210), "after that"),
        ((-inf, inf), "before or after that (it is not known so closely when the host was lost)"),
    ],
)
def test_a_peer_that_fails_within_or_after_a_loss_follows_it(
    at: tuple[float, float], when: str
) -> None:
    lines = text(loss(100, 200), failure(Instant("h1", 1, *at))).split("\n")
    assert lines[0] == "host h2: its agent is gone"
    assert lines[1].startswith("  in phase run, after ") and "before" in lines[1]
    assert lines[2] == "  lost with it: server"
    assert lines[3] == f"{when}, client on h1 failed in phase run: exit status 7"
    assert lines[4] == "  command: client"
    assert lines[-1] == "stopped because of that: bystander (h1)"


def test_a_failure_before_the_host_was_last_alive_is_the_first_cause() -> None:
    said = text(loss(100, 200), failure(Instant("h1", 1, 90, 99)))
    assert said.startswith("client on h1 failed in phase run: exit status 7")
    assert "\nafter that, host h2: its agent is gone" in said


@pytest.mark.parametrize(("received_ns", "first"), [(50, "client"), (51, "host h2")])
def test_a_host_that_answers_a_later_question_was_lost_after_the_failure(
    received_ns: int, first: str
) -> None:
    """That needs no clock of the hosts."""
    assert text(loss(-inf, inf, 50), failure(Instant("h1", 1), received_ns)).startswith(first)


def test_a_failure_that_the_lost_agent_has_reported_was_before_the_loss() -> None:
    said = text(loss(100, 200), failure(Instant("h2", 1, 150, 160)))
    assert said.startswith("client on h2 failed")
    assert "\nafter that, host h2: its agent is gone" in said


def test_the_loss_is_behind_what_is_surely_earlier_and_ahead_of_the_rest() -> None:
    early = failure(Instant("h1", 1, 10, 20), name="early")
    late = failure(Instant("h3", 1, 5, 150), name="late")
    for order in permutations([early, loss(100, 200), late]):
        first, second, third = ComponentsFailed(order, []).failures
        assert (first, third) == (early, late) and isinstance(second, HostLoss)


def test_hosts_that_are_lost_alike_are_one_line() -> None:
    hosts = [loss(100, 200, host=f"h{n}") for n in range(2, 9)]
    lines = str(ComponentsFailed(hosts, [])).split("\n")
    assert sum("its agent is gone" in line for line in lines) == 2
    assert "host h3, h4, h5, h6, h7, h8: its agent is gone" in lines[-1]


class Shown(Silent):
    """Keeps what is shown as failures."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def failure(self, text: str) -> None:
        self.failures.append(text)


def test_a_loss_that_is_noticed_later_corrects_the_first_cause() -> None:
    client = failure(Instant("h1", 1, 150, 160), 51)
    shown = ComponentsFailed([client], ["server (h2)", "bystander (h1)"])
    shown.show(Shown())
    now = shown.completed([client, loss(100, 200, 50)], ["bystander (h1)"])
    corrected = "corrected: what was shown as the first cause was: client on h1 failed in phase run"
    assert str(now).startswith("host h2: its agent is gone\n") and corrected in str(now)
    assert now.to_show == str(now)
    now.show(Shown())
    first, second = now.to_show.split("\n")
    assert first == "host h2: its agent is gone" and second.startswith(corrected)
    assert "stopped because of that: bystander (h1)" in str(now) and "server (h2)" not in str(now)


def test_a_loss_that_came_after_the_first_cause_corrects_nothing() -> None:
    client = failure(Instant("h1", 1, 90, 99))
    shown = ComponentsFailed([client], [])
    shown.show(Shown())
    now = shown.completed([client, loss(100, 200)], [])
    assert "corrected" not in str(now)
    assert now.to_show.split("\n") == [
        "client on h1 failed in phase run: exit status 7",
        "after that, host h2: its agent is gone",
    ]


def test_a_phase_that_timed_out_while_a_host_was_silent() -> None:
    timed_out = PhaseTimedOut("run", 2, ["victim"], ["still not done: victim"], ["client (h1)"], 50)
    said = str(timed_out.completed([loss(100, 200, 49)], ["client (h1)"]))
    assert said.startswith("host h2: its agent is gone\n")
    assert "corrected: what was shown as the first cause was: phase run did not end" in said
    assert "when the host was lost), phase run did not end within its timeout of 2 s\n" in said
    assert said.endswith("still not done: victim\nstopped because of that: client (h1)")
    later = str(timed_out.completed([loss(100, 200, 50)], []))
    assert later.startswith("phase run did not end") and "corrected" not in later
    assert later.endswith("after that, host h2: its agent is gone")


def test_what_peers_printed_until_a_second_after_the_loss() -> None:
    def line(at: int, what: str, host: str = "h1") -> PrintedLine:
        return PrintedLine(Instant(host, at, at - 1, at + 1), what)

    lines = [line(98, "before"), line(150, "within"), line(300, "soon")]
    lines.append(line(202 + SECOND, "late"))
    said = consequences(
        loss(100, 200), {"client": lines, "server": [line(150, "its own", host="h2")]}
    )
    assert [each.split(" on h1")[1] for each in said[1:]] == [" (or before it): within", ": soon"]


def test_peers_that_printed_too_much_are_named() -> None:
    def lines(*at: int) -> list[PrintedLine]:
        return [PrintedLine(Instant("h1", each, each - 1, each + 1), f"{each}") for each in at]

    printed = {"all": lines(98, 300), "cut": lines(300, 400), "quiet": lines(300)}
    printed["lost"] = [PrintedLine(Instant("h2", 9, 150, 160), "of the lost host")]
    said = consequences(loss(100, 200), printed, ["all", "cut", "lost"])
    where = "cut (hosts/h1/components/cut/stdout.log and stderr.log)"
    assert said[-1] == f"  these printed more, before the lines that are looked at: {where}"


def instant(ns: int, within_ns: int) -> pb.GlobalInstant:
    return pb.GlobalInstant(global_ns=ns, within_ns=within_ns)


def test_bounds_on_the_global_clock_hold_whatever_an_answer_took_and_clocks_drift() -> None:
    """The true global time is 7 s ahead and its rate is 1000 ppm more than that of the desk.

    The first answer is the closest one, so that it bounds all later instants.
    """

    def true(ns: int) -> float:
        return 7 * SECOND + ns * 1.001

    clock = DeskClock()
    assert clock.bounds(5) == (-inf, inf)
    for asked, read, answered in ((10 * SECOND, 1e-5, 1e-5), (20 * SECOND, 0.8, 0.1)):
        at = asked + int(read * SECOND)
        clock.take(asked, at + int(answered * SECOND), instant(int(true(at)) + 400, 500))
        for ns in range(SECOND, 40 * SECOND, SECOND // 2):
            earliest, latest = clock.bounds(ns)
            assert earliest <= true(ns) <= latest
            assert latest - earliest < 1.1 * SECOND + 0.005 * abs(ns - asked)


def test_answers_that_contradict_each_other_bound_nothing() -> None:
    clock = DeskClock()
    clock.take(10, 20, instant(1000, 5))
    clock.take(30, 40, instant(9000, 5))
    assert clock.bounds(30) == (-inf, inf)


def test_a_loss_lies_between_the_last_sign_of_life_and_when_it_was_missed() -> None:
    clock = DeskClock()
    clock.take(1000, 1010, instant(5000, 10))

    def at(alive_ns: int, reported: Instant | None = None) -> Instant:
        missed = Missed("h2", lambda: "gone", True, 2000, alive_ns, reported)
        return missed.loss("run", clock).at

    assert 4960 <= at(990).earliest_ns <= 4970 and 6000 <= at(990).latest_ns <= 6022
    assert at(0).earliest_ns == -inf
    assert at(0, Instant("h2", 1, 5500, 5600)).earliest_ns == 5500
    assert at(990, Instant("h2", 1, 100, 200)).earliest_ns > 4000
    # A host that reports what is yet to come moves nothing.
    assert at(990, Instant("h2", 1, 8000, 9000)) == at(990)


def test_why_a_host_was_lost_is_settled_once() -> None:
    reasons = iter(["its agent is gone: killed", "the connection was replaced"])
    missed = Missed("h2", lambda: next(reasons), True, 2000, 1000)
    assert missed.settle() == missed.settle() == missed.loss("run", DeskClock()).what
