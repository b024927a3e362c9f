"""A thread that sleeps between a message's event and the call that gives the message away."""

from __future__ import annotations

import pytest
from kernel_tables import PREEMPTED, SLEEPS, Kernel

from loopscope.analysis.critical_path import Part
from loopscope.analysis.hop_decomposition import Passage
from loopscope.analysis.ledger import TCP, Carried, Held, Mark
from loopscope.analysis.network_path import over_link, over_network
from loopscope.analysis.scheduling import IDLE, Scheduling

SENDER, RECEIVER, ROUTER = 10, 20, 50


def scheduling() -> Scheduling:
    """The sender sleeps from 120 to 300, and again when it has given the message away."""
    return Kernel(
        switches=[
            (10, 0, IDLE, PREEMPTED, SENDER),
            (120, 0, SENDER, SLEEPS, IDLE),
            (310, 0, IDLE, PREEMPTED, SENDER),
            (360, 0, SENDER, SLEEPS, IDLE),
            (620, 1, IDLE, PREEMPTED, RECEIVER),
            (700, 1, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(300, 0, IDLE, SENDER, 0), (610, 1, ROUTER, RECEIVER, 0)],
    ).scheduling()


def by_sender(parts: list[Part]) -> list[tuple[str, int, int]]:
    return [(part.name, part.start, part.end) for part in parts if part.tid == SENDER]


LAST = Mark(TCP, 4000, 5000, 0, 1)
OWN = [("running", 100, 120), ("blocked", 120, 300), ("wake-up", 300, 310)]


@pytest.mark.parametrize("held", [(), (Held(350, 500, "why"),)], ids=["at once", "held"])
def test_over_a_link_it_is_no_time_of_the_networks_code(held: tuple[Held, ...]) -> None:
    passage = Passage(("h1", "h2"), 500 if held else 350, 600, 0, ROUTER, 0, None, 600)
    carried = Carried("TCP", 340, passage.came, SENDER, 600, 600, held, LAST)
    found = over_link(scheduling(), SENDER, 100, passage, RECEIVER, 640, carried)
    until = 360 if held else 350
    assert by_sender(found) == [*OWN, ("running", 310, until)]
    whys = [(part.start, part.end, part.what) for part in found if part.name == "held"]
    assert whys == [(360, 500, "why")][: len(held)]


def test_what_tcp_held_begins_after_it() -> None:
    carried = Carried("TCP", 340, 500, IDLE, 550, 600, (Held(340, 500, "why"),), LAST)
    found = over_network(scheduling(), SENDER, 100, carried, RECEIVER, 640)
    assert by_sender(found) == [*OWN, ("running", 310, 340)]
    assert Part("held", 340, 500, None, None, what="why") in found
