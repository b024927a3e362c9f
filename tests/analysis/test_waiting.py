"""Interrupts while a thread waits for a processor, against a schedule known at each instant."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from kernel_tables import IN_SOFTIRQ, KSOFTIRQD, PREEMPTED, SLEEPS, Kernel
from test_causes import NoFaults, causes
from test_why import HOG, IDLE, RECEIVER, SENDER, briefly

from loopscope.analysis.cause_words import text_of
from loopscope.analysis.critical_path import Part, split
from loopscope.analysis.page_faults import PageFaults
from loopscope.analysis.scheduling import UNTOLD

BEGIN, LENGTH = 2, 1200
OTHERS = [IDLE, HOG, KSOFTIRQD]
Span = tuple[int, int, int]
"""Processor, start and end of an interrupt."""
Did = tuple[str, int | None, int | None, str]
"""What a part says: its name, processor, thread and interrupt."""


def spans(drawn: random.Random, most: int) -> list[Span]:
    """Interrupts of one kind, on either processor one after the other."""
    found = []
    for cpu in (0, 1):
        at = drawn.randrange(1, 20)
        while at < LENGTH:
            end = at + drawn.randrange(1, most)
            found.append((cpu, at, end))
            at = end + drawn.randrange(1, 60)
    return sorted(found, key=lambda each: each[1])


class Schedule:
    """A receiver on two processors, by chance, and what it did in each ns."""

    def __init__(self, seed: int, *, irq: bool, softirq: bool) -> None:
        self.drawn = random.Random(seed)
        self.timers = spans(self.drawn, 12) if irq else []
        self.served = spans(self.drawn, 40) if softirq else []
        self.switches: list[tuple[int, int, int, int, int]] = []
        self.wakings: list[tuple[int, int, int, int, int]] = []
        self._on = {0: IDLE, 1: IDLE}
        self._asleep = False
        self._switch(0, 0, PREEMPTED, RECEIVER)
        self._switch(1, 1, PREEMPTED, HOG)
        states = [self._state(at) for at in range(BEGIN, LENGTH)]
        if self._asleep:
            self.wakings.append((LENGTH, 0, SENDER, RECEIVER, 0))
        if RECEIVER not in self._on.values():
            self._switch(LENGTH + 1, 0, PREEMPTED, RECEIVER)
            states.append((0, dict(self._on)))
        self.did = list(self._told(states))

    def _state(self, at: int) -> tuple[int | None, dict[int, int]]:
        """The receiver's processor, -1 while it sleeps, and what each processor has."""
        cpu = self.drawn.randrange(2)
        if self._asleep and self.drawn.random() < 0.03:
            self.wakings.append((at, cpu, SENDER, RECEIVER, 0))
            self._asleep = False
        elif self.drawn.random() < 0.06:
            free = [each for each in OTHERS if each == IDLE or each not in self._on.values()]
            if not self._asleep and RECEIVER not in self._on.values():
                free.append(RECEIVER)
            state = self.drawn.choice([SLEEPS, PREEMPTED])
            self._asleep |= self._on[cpu] == RECEIVER and state == SLEEPS
            self._switch(at, cpu, state, self.drawn.choice(free))
        own = [each for each, tid in self._on.items() if tid == RECEIVER]
        return own[0] if own else (-1 if self._asleep else None), dict(self._on)

    def _switch(self, at: int, cpu: int, state: int, come: int) -> None:
        self.switches.append((at, cpu, self._on[cpu], state, come))
        self._on[cpu] = come

    def _told(self, states: Sequence[tuple[int | None, dict[int, int]]]) -> Iterator[Did]:
        for place, (cpu, on) in enumerate(states[: LENGTH - BEGIN]):
            if cpu == -1:
                yield "blocked", None, SENDER, ""
                continue
            by = None
            if cpu is None:
                # It waits for the processor to which it comes next.
                cpu = next(own for own, _ in states[place:] if own not in (None, -1))
                by = on[cpu]
            yield self._on_processor(BEGIN + place, cpu, by)

    def _on_processor(self, at: int, cpu: int, by: int | None) -> Did:
        of_kinds = ("interrupt", "local_timer", self.timers), ("softirq", "NET_RX", self.served)
        for kind, name, every in of_kinds:
            if any(of == cpu and start <= at < end for of, start, end in every):
                return kind, cpu, by, name
        return {None: "running", IDLE: "wake-up"}.get(by, "runnable"), cpu, by, ""


def by_instant(parts: Sequence[Part]) -> list[Did]:
    return [
        (part.name, part.cpu, part.by, part.what)
        for part in parts
        for _ in range(part.start, part.end)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_each_instant_is_told_as_it_was(seed: int) -> None:
    """Where a kind of interrupt was not recorded, its time is that of the thread it is in."""
    for irq, softirq in [(True, True), (True, False), (False, True), (False, False)]:
        schedule = Schedule(seed, irq=irq, softirq=softirq)
        kernel = Kernel(
            schedule.switches, schedule.wakings, schedule.timers, served=schedule.served
        )
        scheduling = kernel.scheduling()
        # A hop does not end while its thread sleeps.
        ends = [at for at, did in enumerate(schedule.did, BEGIN + 1) if did[0] != "blocked"]
        for _ in range(20):
            end = schedule.drawn.choice(ends)
            begin = schedule.drawn.randrange(BEGIN, end)
            found = split(scheduling, RECEIVER, begin, RECEIVER, end)
            assert all(part.end > part.start for part in found)
            assert by_instant(found) == schedule.did[begin - BEGIN : end - BEGIN]


def test_schedules_have_interrupts_of_both_kinds_behind_a_thread_and_on_an_idle_processor() -> None:
    found = {each for seed in range(10) for each in Schedule(seed, irq=True, softirq=True).did}
    waited = {(name, by) for name, _, by, _ in found if name in ("interrupt", "softirq")}
    assert waited == {(kind, by) for kind in ("interrupt", "softirq") for by in (None, *OTHERS)}


def waiting(*served: Span, behind: int = IDLE) -> Kernel:
    """A receiver that is woken at 100, on a processor that it has from 3000 on."""
    return Kernel(
        switches=[
            (10, 0, IDLE, PREEMPTED, SENDER),
            (20, 1, RECEIVER, SLEEPS, behind),
            (3000, 1, behind, PREEMPTED, RECEIVER),
            (9000, 1, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(100, 0, SENDER, RECEIVER, 0)],
        served=served,
    )


@pytest.mark.parametrize(
    ("behind", "name", "waited", "within"),
    [
        (IDLE, "wake-up", "waited for idle cpu1 to wake up", ""),
        (HOG, "runnable", "waited on cpu1 behind t30", ""),
        (KSOFTIRQD, "runnable", "waited on cpu1 behind t40", ", in t40"),
    ],
)
def test_a_soft_interrupt_that_keeps_a_thread_from_a_processor(
    behind: int, name: str, waited: str, within: str
) -> None:
    """It is said of which processor, and of which thread if that does nothing else."""
    kernel = waiting((0, 500, 2800), (1, 900, 2900), behind=behind)
    found = split(kernel.scheduling(), SENDER, 50, RECEIVER, 3100)
    told = causes(kernel, PageFaults(NoFaults(), 1, "_kernel"))
    assert [(part.name, part.end - part.start, text_of(told.of(part))) for part in found] == [
        ("running", 50, "t10 on cpu0"),
        (name, 800, f"t20 {waited}"),
        ("softirq", 2000, f"t20 waited while cpu1 served NET_RX{within}"),
        (name, 100, f"t20 {waited}"),
        ("running", 100, "t20 on cpu1"),
    ]


def test_a_soft_interrupt_that_goes_on_after_it_has_woken_a_thread() -> None:
    """Until the waking it brings the message, from then on it keeps the thread."""
    kernel = Kernel(
        switches=[
            (20, 1, RECEIVER, SLEEPS, IDLE),
            (3000, 1, IDLE, PREEMPTED, RECEIVER),
            (9000, 1, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(300, 1, IDLE, RECEIVER, IN_SOFTIRQ)],
        raises=[(50, 1, IDLE, 8)],
        served=[(1, 60, 2800)],
    )
    found = split(kernel.scheduling(), None, 60, RECEIVER, 3100)
    assert briefly(found) == [
        ("softirq", 60, 300, IDLE, None),
        ("softirq", 300, 2800, RECEIVER, IDLE),
        ("wake-up", 2800, 3000, RECEIVER, IDLE),
        ("running", 3000, 3100, RECEIVER, None),
    ]
    assert [text_of(causes(kernel).of(part)) for part in found[:2]] == [
        "NET_RX on cpu1, in t0",
        "t20 waited while cpu1 served NET_RX",
    ]


def test_a_soft_interrupt_on_a_processor_of_which_the_end_of_idling_is_not_told() -> None:
    kernel = Kernel(
        switches=[
            (20, 1, RECEIVER, SLEEPS, IDLE),
            (500, 1, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(300, 0, SENDER, RECEIVER, 0)],
        served=[(1, 330, 350)],
    )
    found = split(kernel.scheduling(), HOG, 310, RECEIVER, 400)
    assert [(part.name, part.start, part.end, part.what) for part in found] == [
        ("wake-up", 310, 330, UNTOLD),
        ("softirq", 330, 350, "NET_RX"),
        ("wake-up", 350, 400, UNTOLD),
    ]
