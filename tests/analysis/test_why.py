"""Splitting a hop into parts by the events of the scheduler."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kernel_tables import IN_SOFTIRQ, KSOFTIRQD, PREEMPTED, SLEEPS, Kernel

from loopscope.analysis.critical_path import (
    PARTS,
    RECEIVED,
    Part,
    during_sleep,
    split,
)
from loopscope.analysis.hop_decomposition import Passage
from loopscope.analysis.network_path import SENT, over_link
from loopscope.analysis.scheduling import IDLE, LOST, Scheduling
from loopscope.report.cause_chart import COLOURS
from loopscope.timeline.loss import KernelGap

SENDER, RECEIVER, HOG, ROUTER = 10, 20, 30, 50


def briefly(parts: Sequence[Part]) -> list[tuple[str, int, int, int | None, int | None]]:
    return [(part.name, part.start, part.end, part.tid, part.by) for part in parts]


def test_a_receiver_that_waits_behind_another_thread() -> None:
    kernel = Kernel(
        switches=[
            (10, 0, IDLE, PREEMPTED, SENDER),
            (20, 1, IDLE, PREEMPTED, RECEIVER),
            (50, 1, RECEIVER, SLEEPS, HOG),
            (400, 1, HOG, PREEMPTED, RECEIVER),
            (600, 1, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(150, 0, SENDER, RECEIVER, IN_SOFTIRQ)],
        timers=[(1, 420, 430), (0, 440, 445)],
    )
    found = split(kernel.scheduling(), SENDER, 100, RECEIVER, 450)
    assert briefly(found) == [
        ("running", 100, 150, SENDER, None),
        ("runnable", 150, 400, RECEIVER, HOG),
        ("running", 400, 420, RECEIVER, None),
        ("interrupt", 420, 430, RECEIVER, None),
        ("running", 430, 450, RECEIVER, None),
    ]
    assert found[3].what == "local_timer" and found[1].cpu == 1


def test_a_thread_that_sleeps_between_two_of_its_events() -> None:
    kernel = Kernel(
        switches=[
            (10, 0, IDLE, PREEMPTED, RECEIVER),
            (520, 0, RECEIVER, SLEEPS, IDLE),
            (710, 0, IDLE, PREEMPTED, RECEIVER),
            (900, 0, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(700, 1, SENDER, RECEIVER, 0)],
    )
    found = split(kernel.scheduling(), RECEIVER, 500, RECEIVER, 800)
    assert briefly(found) == [
        ("running", 500, 520, RECEIVER, None),
        ("blocked", 520, 700, RECEIVER, SENDER),
        ("wake-up", 700, 710, RECEIVER, IDLE),
        ("running", 710, 800, RECEIVER, None),
    ]


def throttled(records: list[tuple[int, int]] | None) -> Kernel:
    """A receiver that loses its processor to another thread, and then again."""
    return Kernel(
        switches=[
            (10, 1, IDLE, PREEMPTED, RECEIVER),
            (120, 1, RECEIVER, PREEMPTED, HOG),
            (190, 1, HOG, PREEMPTED, RECEIVER),
            (200, 1, RECEIVER, PREEMPTED, HOG),
            (300, 1, HOG, SLEEPS, IDLE),
            (700, 1, IDLE, PREEMPTED, RECEIVER),
            (900, 1, RECEIVER, SLEEPS, IDLE),
        ],
        throttled=records,
    )


def test_whether_a_thread_that_waits_had_been_preempted_or_was_woken() -> None:
    found = split(throttled(None).scheduling(), RECEIVER, 100, RECEIVER, 800)
    assert [part.after for part in found if part.name == "runnable"] == ["preempted"] * 2
    assert {part.after for part in found if part.name != "runnable"} == {None}
    # One is woken as it leaves its processor to sleep, the other when it has slept.
    for waking in (515, 600):
        scheduling = leaving((waking, 1, SENDER, RECEIVER, 0))
        _, *between, waited, _ = split(scheduling, SENDER, 500, RECEIVER, 800)
        assert (waited.name, waited.after) == ("runnable", "woken"), between


@pytest.mark.parametrize("at", [198, 200, 203])
def test_a_thread_whose_cgroup_has_used_up_its_time(at: int) -> None:
    """The record is of the switch that is nearest to it."""
    kernel = throttled([(at, RECEIVER), (120, HOG)])
    found = split(kernel.scheduling(), RECEIVER, 100, RECEIVER, 800)
    assert briefly(found) == [
        ("running", 100, 120, RECEIVER, None),
        ("runnable", 120, 190, RECEIVER, HOG),
        ("running", 190, 200, RECEIVER, None),
        ("throttled", 200, 700, RECEIVER, None),
        ("running", 700, 800, RECEIVER, None),
    ]


@pytest.mark.parametrize("records", [None, [], [(120, HOG)], [(-2_000_000, RECEIVER)]])
def test_a_thread_that_loses_its_processor_is_not_throttled(
    records: list[tuple[int, int]] | None,
) -> None:
    """No record is of it: none were made, or they are of another thread or of another time."""
    kernel = throttled(records)
    found = split(kernel.scheduling(), RECEIVER, 100, RECEIVER, 800)
    assert briefly(found) == [
        ("running", 100, 120, RECEIVER, None),
        ("runnable", 120, 190, RECEIVER, HOG),
        ("running", 190, 200, RECEIVER, None),
        ("runnable", 200, 300, RECEIVER, HOG),
        ("wake-up", 300, 700, RECEIVER, IDLE),
        ("running", 700, 800, RECEIVER, None),
    ]
    # Where such a record may be lost it is not known which of the two it was.
    kernel.kernel_gaps = {(1, "_kernel"): {"sleep": [KernelGap(3 * 195, 3 * 205, 1)]}}
    less = split(kernel.scheduling(), RECEIVER, 100, RECEIVER, 800)
    if records is None:
        assert less == found
    else:
        assert [(part.name, part.start, part.end, part.what) for part in less[-2:-1]] == [
            ("unknown", 200, 700, LOST)
        ]


def leaving(*wakings: tuple[int, int, int, int, int]) -> Scheduling:
    """A receiver that goes to sleep at 520, and comes again at 710."""
    kernel = Kernel(
        switches=[
            (10, 0, IDLE, PREEMPTED, RECEIVER),
            (20, 1, IDLE, PREEMPTED, SENDER),
            (520, 0, RECEIVER, SLEEPS, HOG),
            (710, 0, HOG, PREEMPTED, RECEIVER),
            (900, 0, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=wakings,
    )
    return kernel.scheduling()


def test_a_thread_that_is_woken_while_it_leaves_its_processor_did_not_sleep() -> None:
    scheduling = leaving((515, 1, SENDER, RECEIVER, 0))
    then = [("runnable", 520, 710, RECEIVER, HOG), ("running", 710, 800, RECEIVER, None)]
    # The message was with who woke it.
    found = split(scheduling, SENDER, 500, RECEIVER, 800)
    assert briefly(found) == [
        ("running", 500, 515, SENDER, None),
        ("running", 515, 520, RECEIVER, None),
        *then,
    ]
    found = split(scheduling, RECEIVER, 500, RECEIVER, 800)
    assert [(part.name, part.start, part.end) for part in found] == [
        ("running", 500, 515),
        ("running", 515, 520),
        *(each[:3] for each in then),
    ]


def test_a_waking_before_a_sleep_does_not_end_it_where_a_later_one_does() -> None:
    scheduling = leaving((515, 1, SENDER, RECEIVER, 0), (700, 1, SENDER, RECEIVER, 0))
    found = split(scheduling, RECEIVER, 500, RECEIVER, 800)
    assert briefly(found)[:2] == [
        ("running", 500, 520, RECEIVER, None),
        ("blocked", 520, 700, RECEIVER, SENDER),
    ]


@pytest.mark.parametrize("wakings", [[], [(5, 1, SENDER, RECEIVER, 0)]])
def test_a_sleep_that_no_event_ends_is_unknown(
    wakings: list[tuple[int, int, int, int, int]],
) -> None:
    found = split(leaving(*wakings), RECEIVER, 500, RECEIVER, 800)
    assert [(part.name, part.start, part.end) for part in found] == [
        ("running", 500, 520),
        ("unknown", 520, 710),
        ("running", 710, 800),
    ]
    assert found[1].what == "what ended its sleep is not told"


def test_a_sender_that_loses_the_processor_before_it_has_sent() -> None:
    kernel = Kernel(
        switches=[
            (10, 0, IDLE, PREEMPTED, SENDER),
            (20, 1, RECEIVER, SLEEPS, IDLE),
            (120, 0, SENDER, PREEMPTED, HOG),
            (300, 0, HOG, PREEMPTED, SENDER),
            (360, 1, IDLE, PREEMPTED, RECEIVER),
            (500, 1, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(350, 0, SENDER, RECEIVER, 0)],
    )
    found = split(kernel.scheduling(), SENDER, 100, RECEIVER, 400)
    assert briefly(found) == [
        ("running", 100, 120, SENDER, None),
        ("runnable", 120, 300, SENDER, HOG),
        ("running", 300, 350, SENDER, None),
        ("wake-up", 350, 360, RECEIVER, IDLE),
        ("running", 360, 400, RECEIVER, None),
    ]


def test_what_an_interrupt_of_another_thread_brings_is_unknown_before_it() -> None:
    kernel = Kernel(
        switches=[
            (20, 1, RECEIVER, SLEEPS, HOG),
            (310, 1, HOG, PREEMPTED, RECEIVER),
            (500, 1, RECEIVER, SLEEPS, HOG),
        ],
        wakings=[(300, 1, HOG, RECEIVER, IN_SOFTIRQ)],
    )
    found = split(kernel.scheduling(), SENDER, 100, RECEIVER, 400)
    assert [(part.name, part.start, part.end) for part in found] == [
        ("unknown", 100, 300),
        ("runnable", 300, 310),
        ("running", 310, 400),
    ]


def test_a_soft_interrupt_that_waits_behind_another_thread() -> None:
    """The sender asks for it on processor 0, which another thread has until it is served."""
    switches = [
        (10, 0, IDLE, PREEMPTED, SENDER),
        (20, 1, RECEIVER, SLEEPS, IDLE),
        (150, 0, SENDER, PREEMPTED, HOG),
        (310, 1, IDLE, PREEMPTED, RECEIVER),
        (500, 1, RECEIVER, SLEEPS, IDLE),
        (600, 0, HOG, PREEMPTED, SENDER),
    ]
    kernel = Kernel(
        switches,
        wakings=[(300, 0, HOG, RECEIVER, IN_SOFTIRQ)],
        raises=[(50, 0, HOG, 0), (130, 0, SENDER, 0), (140, 0, HOG, IN_SOFTIRQ)],
        served=[(0, 60, 70), (0, 290, 320)],
    )
    found = split(kernel.scheduling(), SENDER, 100, RECEIVER, 400)
    assert briefly(found) == [
        ("running", 100, 130, SENDER, None),
        ("pending", 130, 150, None, SENDER),
        ("pending", 150, 290, None, HOG),
        ("softirq", 290, 300, HOG, None),
        ("wake-up", 300, 310, RECEIVER, IDLE),
        ("running", 310, 400, RECEIVER, None),
    ]
    assert {part.what for part in found[1:4]} == {"NET_RX"}
    # It may have been asked for before: then it was pending all the time.
    pending = split(kernel.scheduling(), SENDER, 135, RECEIVER, 400)
    assert briefly(pending)[:2] == [
        ("pending", 135, 150, None, SENDER),
        ("pending", 150, 290, None, HOG),
    ]
    # Another interrupt asked for it: what that was about is not known.
    of_interrupt = Kernel(
        switches,
        wakings=[(300, 0, HOG, RECEIVER, IN_SOFTIRQ)],
        raises=[(200, 0, HOG, 8)],
        served=[(0, 290, 320)],
    )
    found = split(of_interrupt.scheduling(), SENDER, 100, RECEIVER, 400)
    assert [(part.name, part.start, part.end) for part in found[:2]] == [
        ("unknown", 100, 200),
        ("pending", 200, 290),
    ]


def test_a_message_from_another_kernel() -> None:
    """An interrupt of the network's device brings it; what was before is not this kernel's."""
    kernel = Kernel(
        switches=[
            (20, 1, RECEIVER, SLEEPS, IDLE),
            (310, 1, IDLE, PREEMPTED, RECEIVER),
            (500, 1, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(300, 1, IDLE, RECEIVER, IN_SOFTIRQ)],
        raises=[(280, 1, IDLE, 8)],
        served=[(1, 290, 305)],
    )
    found = split(kernel.scheduling(), None, 100, RECEIVER, 400)
    assert [(part.name, part.start, part.end) for part in found] == [
        ("unknown", 100, 280),
        ("pending", 280, 290),
        ("softirq", 290, 300),
        ("softirq", 300, 305),
        ("wake-up", 305, 310),
        ("running", 310, 400),
    ]


def passage(came: int, left: int, late: int = 0, losses: int = 0) -> Passage:
    return Passage(("h1", "h2"), came, left, late, ROUTER, losses, None, returned=left)


# The sender sends at 100 and sleeps from 140 on; the router sends on at 300 and 600.
OVER_LINK = [
    (10, 0, IDLE, PREEMPTED, SENDER),
    (20, 1, RECEIVER, SLEEPS, IDLE),
    (140, 0, SENDER, SLEEPS, IDLE),
    (280, 0, IDLE, PREEMPTED, ROUTER),
    (320, 0, ROUTER, SLEEPS, IDLE),
    (590, 0, IDLE, PREEMPTED, ROUTER),
    (650, 0, ROUTER, SLEEPS, IDLE),
]


def test_a_message_over_an_emulated_link() -> None:
    """It left the link 15 later than it was to."""
    comes = [(330, 1, IDLE, PREEMPTED, RECEIVER), (700, 1, RECEIVER, SLEEPS, IDLE)]
    kernel = Kernel(sorted(OVER_LINK + comes), wakings=[(310, 0, ROUTER, RECEIVER, IN_SOFTIRQ)])
    found = over_link(kernel.scheduling(), SENDER, 100, passage(120, 300, 15), RECEIVER, 350)
    assert briefly(found) == [
        ("running", 100, 120, SENDER, None),
        ("link", 120, 285, None, None),
        ("late", 285, 300, ROUTER, None),
        ("running", 300, 310, ROUTER, None),
        ("wake-up", 310, 330, RECEIVER, IDLE),
        ("running", 330, 350, RECEIVER, None),
    ]


def test_a_message_that_comes_to_the_link_when_its_sender_sleeps() -> None:
    comes = [(620, 1, IDLE, PREEMPTED, RECEIVER), (700, 1, RECEIVER, SLEEPS, IDLE)]
    kernel = Kernel(sorted(OVER_LINK + comes), wakings=[(610, 0, ROUTER, RECEIVER, IN_SOFTIRQ)])
    found = over_link(kernel.scheduling(), SENDER, 100, passage(400, 600), RECEIVER, 640)
    assert briefly(found)[:3] == [
        ("running", 100, 140, SENDER, None),
        ("held", 140, 400, None, None),
        ("link", 400, 600, None, None),
    ]
    assert found[1].what == SENT


def test_a_message_that_is_held_until_a_later_one_comes() -> None:
    """Out of order: what woke the receiver is what the router sent on afterwards."""
    comes = [(620, 1, IDLE, PREEMPTED, RECEIVER), (700, 1, RECEIVER, SLEEPS, IDLE)]
    kernel = Kernel(sorted(OVER_LINK + comes), wakings=[(610, 0, ROUTER, RECEIVER, IN_SOFTIRQ)])
    found = over_link(kernel.scheduling(), SENDER, 100, passage(120, 300), RECEIVER, 640)
    assert briefly(found) == [
        ("running", 100, 120, SENDER, None),
        ("link", 120, 300, None, None),
        ("held", 300, 610, None, None),
        ("wake-up", 610, 620, RECEIVER, IDLE),
        ("running", 620, 640, RECEIVER, None),
    ]
    assert found[2].what == RECEIVED


def test_a_thread_that_serves_interrupts_is_followed() -> None:
    """The soft interrupt's thread is woken by the sender, and waits for the processor."""
    kernel = Kernel(
        switches=[
            (5, 0, IDLE, PREEMPTED, KSOFTIRQD),
            (6, 0, KSOFTIRQD, SLEEPS, SENDER),
            (20, 1, RECEIVER, SLEEPS, IDLE),
            (150, 0, SENDER, PREEMPTED, HOG),
            (250, 0, HOG, PREEMPTED, KSOFTIRQD),
            (310, 1, IDLE, PREEMPTED, RECEIVER),
            (500, 1, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(140, 0, SENDER, KSOFTIRQD, 0), (300, 0, KSOFTIRQD, RECEIVER, IN_SOFTIRQ)],
    )
    found = split(kernel.scheduling(), SENDER, 100, RECEIVER, 400)
    assert briefly(found) == [
        ("running", 100, 140, SENDER, None),
        ("runnable", 140, 150, KSOFTIRQD, SENDER),
        ("runnable", 150, 250, KSOFTIRQD, HOG),
        ("running", 250, 300, KSOFTIRQD, None),
        ("wake-up", 300, 310, RECEIVER, IDLE),
        ("running", 310, 400, RECEIVER, None),
    ]


def test_a_kernel_that_does_not_tell_when_idling_ends() -> None:
    kernel = Kernel(
        switches=[
            (20, 1, RECEIVER, SLEEPS, IDLE),
            (500, 1, RECEIVER, SLEEPS, IDLE),
            (510, 0, SENDER, SLEEPS, IDLE),
        ],
        wakings=[(300, 0, SENDER, RECEIVER, 0)],
    )
    found = split(kernel.scheduling(), RECEIVER, 350, RECEIVER, 400)
    assert briefly(found) == [("running", 350, 400, RECEIVER, None)]
    (only,) = split(kernel.scheduling(), HOG + 1, 310, RECEIVER, 400)
    assert (only.name, only.by) == ("wake-up", IDLE) and "not told" in only.what


@dataclass
class Drawn:
    """Events that are drawn by chance, as `Kernel` takes them."""

    switches: list[tuple[int, int, int, int, int]]
    wakings: list[tuple[int, int, int, int, int]]
    timers: list[tuple[int, int, int]]
    raises: list[tuple[int, int, int, int]]
    served: list[tuple[int, int, int]]


def drawn_events(drawn: random.Random) -> Drawn:
    """Switches that follow each other on two processors, and anything else at any time."""
    threads = [IDLE, SENDER, RECEIVER, HOG]
    switches, wakings = [], []
    on = {0: IDLE, 1: IDLE}
    for ts in range(10, 1000, 7):
        cpu = drawn.randrange(2)
        free = [each for each in threads if each == IDLE or each not in on.values()]
        come = drawn.choice(free)
        switches.append((ts, cpu, on[cpu], drawn.choice([SLEEPS, PREEMPTED, 256]), come))
        on[cpu] = come
        flags = drawn.choice([0, 8, IN_SOFTIRQ])
        wakings.append((ts + 3, cpu, drawn.choice(threads), drawn.choice(threads[1:]), flags))
    timers = [(drawn.randrange(2), ts, ts + drawn.randrange(1, 9)) for ts in range(0, 999, 31)]
    raises = [
        (ts, drawn.randrange(2), drawn.choice(threads), drawn.choice([0, 8, IN_SOFTIRQ]))
        for ts in range(1, 999, drawn.randrange(5, 50))
    ]
    served = [(drawn.randrange(2), ts, ts + drawn.randrange(1, 30)) for ts in range(0, 999, 31)]
    return Drawn(switches, wakings, timers, raises, served)


@pytest.mark.parametrize("seed", range(60))
def test_parts_follow_each_other_without_a_gap(seed: int) -> None:
    """Whatever the events say, also where some of them are missing."""
    drawn = random.Random(seed)
    events = drawn_events(drawn)
    kept = [each for each in events.switches if drawn.random() < 0.9]
    others = events.wakings, events.timers, events.raises, events.served
    records = [(ts + drawn.randrange(-3, 4), prev) for ts, _, prev, *_ in kept]
    records = [each for each in records if drawn.random() < 0.3]
    scheduling = Kernel(kept, *others, throttled=records).scheduling()
    begin = drawn.randrange(1, 900)
    end = begin + drawn.randrange(1, 300)
    came = drawn.randrange(begin - 20, end + 20)
    on_link = passage(came, came + drawn.randrange(100), drawn.randrange(50))
    on_link = replace(on_link, tid=HOG)
    for found in (
        split(scheduling, SENDER, begin, RECEIVER, end),
        split(scheduling, RECEIVER, begin, RECEIVER, end),
        split(scheduling, None, begin, RECEIVER, end),
        over_link(scheduling, SENDER, begin, on_link, RECEIVER, end),
    ):
        assert found[0].start == begin and found[-1].end == end
        assert all(part.end > part.start for part in found), [p for p in found if p.end <= p.start]
        assert all(a.end == b.start for a, b in zip(found, found[1:], strict=False))
        for sleep in (part for part in found if part.name == "blocked" and part.by is not None):
            of_it = during_sleep(scheduling, sleep)
            assert (of_it[0].start, of_it[-1].end) == (sleep.start, sleep.end)
            assert all(a.end == b.start for a, b in zip(of_it, of_it[1:], strict=False))


@pytest.mark.parametrize("kind", ["sched", "irq", "softirq"])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_in_spite_of_lost_events_is_what_they_would_have_told(
    seed: int, kind: str
) -> None:
    """All else is unknown; what has nothing to do with the time of the loss is told."""
    drawn = random.Random(seed)
    events = drawn_events(drawn)
    lost = drawn.randrange(100, 900)
    until = lost + drawn.randrange(1, 60)

    def scheduling(*given: Any, gap: bool) -> Scheduling:
        kernel = Kernel(*given)
        if gap:
            kernel.kernel_gaps = {(1, "_kernel"): {kind: [KernelGap(3 * lost, 3 * until, 1)]}}
        return kernel.scheduling()

    def is_lost(at: int) -> bool:
        """Whether an event is lost, of which those in the gap may be."""
        return lost < at < until and drawn.random() < 0.5

    fewer = {
        "sched": lambda: {
            "switches": [each for each in events.switches if not is_lost(each[0])],
            "wakings": [each for each in events.wakings if not is_lost(each[0])],
        },
        "irq": lambda: {
            "timers": [
                (cpu, *(None if is_lost(at) else at for at in times))
                for cpu, *times in events.timers
            ]
        },
        "softirq": lambda: {
            "raises": [each for each in events.raises if not is_lost(each[0])],
            "served": [
                (cpu, *(None if is_lost(at) else at for at in times))
                for cpu, *times in events.served
            ],
        },
    }[kind]()
    given = {name: getattr(events, name) for name in Drawn.__annotations__}
    full = scheduling(*given.values(), gap=False)
    less = scheduling(*(given | fewer).values(), gap=True)
    far = same = 0
    for _ in range(60):
        begin = drawn.randrange(max(lost - 250, 1), until + 50)
        end = begin + drawn.randrange(1, 300)
        sender = drawn.choice([SENDER, RECEIVER, None])
        whole, told = (split(each, sender, begin, RECEIVER, end) for each in (full, less))
        assert told[0].start == begin and told[-1].end == end
        by_instant = {at: part for part in whole for at in range(part.start, part.end)}
        for part in told:
            for at in range(part.start, part.end) if part.name != "unknown" else ():
                other = by_instant[at]
                assert (part.name, part.tid, part.by) == (other.name, other.tid, other.by), part
        far += lost > end + 30
        same += lost > end + 30 and told == whole
    assert same >= 0.8 * far


def test_every_part_has_a_colour() -> None:
    assert set(COLOURS) == set(PARTS)
