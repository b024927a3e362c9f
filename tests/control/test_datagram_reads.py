"""The datagrams that reads of sockets had, against a kernel that is played by chance."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from loopscope.control.datagram_reads import Arrival, Dropped, Read, Ready, reads_of_datagrams

PORT, NETNS = 7001, 5


@dataclass
class Kernel:
    """Processors that put datagrams into sockets, batch by batch, and threads that read them."""

    drawn: random.Random
    arrivals: list[Arrival] = field(default_factory=list)
    readies: list[Ready] = field(default_factory=list)
    drops: list[Dropped] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    queues: dict[int, deque[Arrival]] = field(default_factory=dict)
    truth: list[Arrival] = field(default_factory=list)
    """What each read had."""
    at: int = 0

    def now(self) -> int:
        self.at += 1
        return self.at

    def arrive(self, cpu: int, number: int, *, to_group: bool) -> Arrival:
        length, content = self.drawn.choice([(8, 1), (8, 2), (30, 1)])
        place = cpu, NETNS, PORT, length, content
        arrival = Arrival(self.now(), *place, to_group, number)
        self.arrivals.append(arrival)
        return arrival

    def deliver(self, cpu: int, arrival: Arrival, socket: int, room: int) -> None:
        if not socket:
            place = cpu, NETNS, PORT, 0, arrival.length, arrival.content
            self.drops.append(Dropped(self.now(), *place))
            return
        queue = self.queues.setdefault(socket, deque())
        if len(queue) < room:
            queue.append(arrival)
            if len(queue) == 1 and self.drawn.random() < 0.2:
                # A thread that does not sleep takes it before the kernel tells of it.
                self.read(socket)
            self.readies.append(Ready(self.now(), cpu, NETNS, PORT, socket))
        else:
            of = socket, arrival.length, arrival.content
            self.drops.append(Dropped(self.now(), cpu, NETNS, PORT, *of))

    def read(self, socket: int) -> None:
        if queue := self.queues.get(socket):
            arrival = queue.popleft()
            self.truth.append(arrival)
            self.reads.append(Read(self.now(), socket, arrival.length, len(self.reads)))

    def found(self) -> list[Arrival | None]:
        given = self.arrivals, self.readies, self.reads, self.drops
        pairs = sorted(reads_of_datagrams(*given), key=lambda pair: pair[0].counter)
        assert [read.what for read, _ in pairs] == list(range(len(self.reads)))
        return [arrival for _, arrival in pairs]


@pytest.mark.parametrize("seed", range(200))
def test_each_read_has_the_datagram_that_was_first_in_its_queue(seed: int) -> None:
    """With two processors, batches, members of a group, several sockets of a port, and drops."""
    kernel = Kernel(random.Random(seed))
    drawn = kernel.drawn
    groups, several = drawn.random() < 0.5, drawn.randint(1, 3)
    longest, room = drawn.choice([1, 4]), drawn.choice([1, 3, 1000])
    number = 0
    sockets: list[int] = []
    batches: dict[int, deque[tuple[Arrival, int]]] = {0: deque(), 1: deque()}
    for step in range(2_000):
        cpu = drawn.randrange(2)
        if step > 300 * len(sockets) + 100 and not any(batches.values()):
            sockets += [len(sockets) + 1] if len(sockets) < several else []
        if batches[cpu]:
            # A processor goes on with its batch; others and readers do what they do meanwhile.
            arrival, socket = batches[cpu].popleft()
            kernel.deliver(cpu, arrival, socket, room)
        elif drawn.random() < 0.5:
            for _ in range(drawn.randint(1, longest)):
                number += 1
                to_group = groups and drawn.random() < 0.5
                arrival = kernel.arrive(cpu, number, to_group=to_group)
                # Without a socket the kernel drops it.
                members = sockets or [0]
                chosen = members if to_group else [drawn.choice(members)]
                batches[cpu] += [(arrival, socket) for socket in chosen]
        elif sockets:
            kernel.read(drawn.choice(sockets))
    assert len(kernel.truth) > 100
    assert kernel.found() == kernel.truth


@pytest.mark.parametrize("seed", range(50))
def test_a_processor_puts_datagrams_of_others_into_a_queue(seed: int) -> None:
    """It tells of them after its own, in the order in which they came; the others of none."""
    kernel = Kernel(random.Random(seed))
    drawn = kernel.drawn
    number = 0
    for _ in range(1_000):
        first, *others = drawn.sample(range(4), drawn.randint(1, 4))
        came = []
        for cpu in (first, *others):
            number += 1
            came.append(kernel.arrive(cpu, number, to_group=False))
        for arrival in came:
            kernel.deliver(first, arrival, 1, 1000)
        for _ in range(drawn.randint(0, 8)):
            kernel.read(1)
    assert len(kernel.truth) > 1_000
    assert kernel.found() == kernel.truth


def test_what_is_not_told_is_not_known() -> None:
    kernel = Kernel(random.Random(1))
    # A datagram of which no packet was seen, one whose read is of another length, and no datagram.
    kernel.readies.append(Ready(1, 0, NETNS, PORT, 3))
    kernel.reads.append(Read(2, 3, 8, 0))
    kernel.arrivals.append(Arrival(3, 0, NETNS, PORT, 8, 1, False))
    kernel.readies.append(Ready(4, 0, NETNS, PORT, 3))
    kernel.reads += [Read(5, 3, 30, 1), Read(6, 3, 8, 2)]
    assert kernel.found() == [None, None, None]
    # What came to another port or network is none of it.
    for other in ({"port": 7}, {"netns": 6}):
        arrival = Arrival(3, 0, NETNS, PORT, 8, 1, False)._replace(**other)
        given = [arrival], [Ready(4, 0, NETNS, PORT, 3)], [Read(5, 3, 8)], []
        assert [found for _, found in reads_of_datagrams(*given)] == [None]


def test_a_read_of_what_came_before_it_was_recorded_is_no_early_one() -> None:
    """It is before the arrival of which the kernel tells next."""
    arrival = Arrival(3, 0, NETNS, PORT, 8, 1, False)
    given = [arrival], [Ready(4, 0, NETNS, PORT, 3)], [Read(2, 3, 8, "old"), Read(5, 3, 8)], []
    assert dict(reads_of_datagrams(*given)) == {given[2][0]: None, given[2][1]: arrival}
