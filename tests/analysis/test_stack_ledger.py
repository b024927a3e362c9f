"""What the user-mode stack did with a message, by events of accelerated programs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kernel_tables import IN_SOFTIRQ, PREEMPTED, SLEEPS, Kernel
from stack_tables import HELPER, HERE, MS, OTHER, RECEIVER, SENDER, THERE, StackRun
from test_tcp_ledger import Ledger as KernelEvents

from loopscope.analysis.hop_decomposition import Passage
from loopscope.analysis.ledger import (
    TCP,
    Carried,
    Handed,
    Held,
    Hop,
    Mark,
    Packet,
    Taker,
)
from loopscope.analysis.network_path import (
    between_kernels,
    is_passage_of,
    over_link,
    over_network,
)
from loopscope.analysis.scheduling import IDLE
from loopscope.analysis.tcp_ledger import TcpLedger

NAGLE = "Nagle's algorithm, until what was sent before was acknowledged"
NAME = "user-mode TCP"
BASES = pytest.mark.parametrize("base", [2**31 - 60, 2**32 - 50])


@BASES
def test_a_message_that_goes_at_once_is_not_held(base: int) -> None:
    run = StackRun(base)
    near, far = run.pair()
    near.write(2_000, 100)
    near.out(3_000, 0, 100)
    far.came(4_000, 0, 100)
    far.take(9_000, 100)
    whole = Mark(TCP, 4000, 5000, base, 100)
    last, taker = whole._replace(bytes=1), Taker(RECEIVER, None)
    assert run.carried() == Carried(
        NAME, 2_000, 3_000, SENDER, 4_000, 4_000, (), last, (whole,), taker=taker
    )


@BASES
def test_several_writes_in_a_segment_and_a_write_in_several(base: int) -> None:
    run = StackRun(base)
    near, far = run.pair()
    near.write(500, 50)
    near.write(2_000, 60)
    near.write(2_500, 40)
    # The message before is in it as well.
    near.out(3_000, 0, 150)
    far.came(4_000, 0, 150)
    far.take(4_500, 50)
    far.take(5_000, 100)
    near.write(10_000, 3_000)
    # One train, which the network cuts, and of which the parts overtake each other.
    near.out(11_000, 150, 3_000, cut=1_000)
    far.came(12_000, 150, 1_000)
    far.came(12_100, 2_150, 1_000, tid=HELPER)
    far.came(12_700, 1_150, 1_000, tid=HELPER)
    far.call("woken", 11_500, HELPER)
    far.take(14_000, 3_000)
    first = run.carried(until=9_000, end=6_000, packets=True)
    assert first is not None and first.traffic is not None
    assert (first.given, first.sent, first.came, first.held) == (2_500, 3_000, 4_000, ())
    assert first.marks[0] == Mark(TCP, 4000, 5000, (base + 50) % 2**32, 100)
    assert first.traffic.listed() == (
        Packet(3_000, False, 0, 100, False),
        Packet(4_000, True, 0, 100, False),
    )
    assert first.traffic.calls == (
        Handed(2_000, False, 0, 60),
        Handed(2_500, False, 60, 40),
        Handed(5_000, True, 0, 100),
    )
    second = run.carried(begin=9_000, packets=True)
    assert second is not None and second.traffic is not None
    # It was whole when the one in the middle came.
    assert (second.sent, second.came, second.ready) == (11_000, 12_700, 12_700)
    assert second.taker == Taker(HELPER, 11_500)
    assert [packet[1:4] for packet in second.traffic.listed()] == [
        (False, 0, 3_000),
        (True, 0, 1_000),
        (True, 2_000, 1_000),
        (True, 1_000, 1_000),
    ]


@pytest.mark.parametrize("late", ["", "receiver", "sender"])
@BASES
def test_nagles_algorithm_and_who_made_it_long(base: int, late: str) -> None:
    """The second small segment waits for the first one's acknowledgement (RFC 896)."""
    run = StackRun(base)
    near, far = run.pair()
    near.write(2_000, 4)
    near.out(3_000, 0, 4)
    near.write(5_000, 100)
    near.call("wait", 6_000)
    came = {"": 19 * MS, "receiver": 4_000, "sender": 4_000}[late]
    far.came(came, 0, 4)
    far.out({"": 24 * MS, "receiver": 39 * MS, "sender": 5_000}[late], 0, 0, RECEIVER)
    near.acknowledged(40 * MS, 4, HELPER)
    near.out(40 * MS + 1_000, 4, 100, HELPER)
    far.came(41 * MS, 4, 100)
    far.take(42 * MS, 104)
    text = {
        "": NAGLE,
        "receiver": f"{NAGLE}, which the receiver delayed",
        "sender": f"{NAGLE}; its program took the acknowledgement late",
    }[late]
    if late == "":
        # Neither is most of it.
        near.acknowledged(30 * MS, 0, HELPER)
    found = run.carried()
    assert found is not None and found.held == (Held(5_000, 40 * MS + 1_000, text),)
    assert (found.given, found.by) == (5_000, HELPER)


@BASES
def test_a_segment_that_more_bytes_made_full_enough(base: int) -> None:
    """No acknowledgement had come: the program's next call sends it with its own bytes."""
    run = StackRun(base)
    near, far = run.pair()
    near.write(2_000, 4)
    near.out(3_000, 0, 4)
    near.write(5_000, 100)
    near.write(9 * MS, 2_000)
    near.out(9 * MS + 500, 4, 1_448)
    far.came(10 * MS, 0, 4)
    far.came(10 * MS + 10, 4, 1_448)
    far.take(11 * MS, 1_000)
    found = run.carried(until=6_000)
    why = "Nagle's algorithm, until the program wrote more"
    assert found is not None and found.held == (Held(5_000, 9 * MS + 500, why),)


@BASES
def test_a_program_without_nagle_is_not_said_to_have_waited_for_it(base: int) -> None:
    """With TCP_NODELAY no small segment waits for an acknowledgement."""
    run = StackRun(base)
    near, far = run.pair()
    for number in range(3):
        near.write(100 + 10 * number, 10)
        near.out(105 + 10 * number, 10 * number, 10)
    near.write(2_000, 100)
    near.call("wait", 2_500)
    near.acknowledged(9 * MS, 30)
    near.out(9 * MS + 100, 30, 100)
    far.came(9 * MS + 500, 0, 30)
    far.came(10 * MS, 30, 100)
    far.take(11 * MS, 130)
    found = run.carried()
    assert found is not None
    why = "its congestion window or the receiver's window was full"
    assert found.held == (Held(2_000, 9 * MS + 100, why),)


@pytest.mark.parametrize(
    ("ack", "windows", "timer", "why"),
    [
        (3_000, (0, 10), "", "the receiver's window was full"),
        (0, (10, 20), "", "the receiver's window was full"),
        (0, (10, 10), "", "why is not told"),
        (3_000, (10, 10), "", "its congestion window or the receiver's window was full"),
        (None, (10, 10), "persist", "the receiver's window was full"),
        (None, (10, 10), "keep_alive", "why is not told"),
    ],
)
@BASES
def test_what_came_says_why_the_rest_waited(
    base: int, ack: int | None, windows: tuple[int, int], timer: str, why: str
) -> None:
    run = StackRun(base)
    near, far = run.pair()
    near.acknowledged(1_500, 0, window=windows[0])
    near.write(2_000, 4_000)
    near.out(2_500, 0, 3_000, cut=1_000)
    far.came(2_700, 0, 3_000)
    near.call("wait", 3_000)
    if ack is not None:
        near.acknowledged(9 * MS, ack, window=windows[1])
    if timer:
        near.timer(9 * MS, timer)
    near.out(9 * MS + 1_000, 3_000, 1_000)
    far.came(9 * MS + 2_000, 3_000, 1_000)
    far.take(9 * MS + 4_000, 4_000)
    found = run.carried()
    assert found is not None
    assert found.held == (Held(2_500, 9 * MS + 1_000, why),)


@pytest.mark.parametrize(
    ("timers", "acknowledged", "text"),
    [
        (["retransmission"], False, " (retransmission time-out)"),
        (["tail_loss_probe"], False, " (tail loss probe)"),
        (["tail_loss_probe"], True, " (fast retransmission)"),
        (["tail_loss_probe", "retransmission"], True, " (retransmission time-out)"),
        (["reordering"], True, " (fast retransmission)"),
        ([], True, " (fast retransmission)"),
        ([], False, ""),
    ],
)
@BASES
def test_a_segment_that_was_lost_is_sent_again(
    base: int, timers: list[str], acknowledged: bool, text: str
) -> None:
    run = StackRun(base)
    near, far = run.pair()
    near.timer(1_500, "retransmission")
    near.write(2_000, 100)
    near.out(3_000, 0, 100)
    for number, name in enumerate(timers):
        near.timer(100 * MS + number, name)
    if acknowledged:
        near.acknowledged(150 * MS, 0)
    near.out(204 * MS, 0, 100, HELPER, again=1)
    far.came(205 * MS, 0, 100)
    # Once more, for nothing.
    near.out(206 * MS, 0, 100, HELPER, again=1)
    far.came(207 * MS, 0, 100)
    far.take(208 * MS, 100)
    found = run.carried()
    assert found is not None and found.held == (Held(3_000, 204 * MS, f"sent again{text}"),)
    assert (found.sent, found.came) == (204 * MS, 205 * MS)


@BASES
def test_a_message_waits_behind_lost_bytes_of_an_earlier_one(base: int) -> None:
    run = StackRun(base)
    near, far = run.pair()
    near.write(2_000, 100)
    near.out(3_000, 0, 100)
    near.write(5 * MS, 100)
    near.out(5 * MS + 1_000, 100, 100)
    far.came(5 * MS + 2_000, 100, 100)
    near.timer(30 * MS, "retransmission")
    near.out(30 * MS + 1_000, 0, 100, HELPER, again=1)
    far.came(30 * MS + 2_000, 0, 100)
    far.take(31 * MS, 200)
    found = run.carried(begin=4 * MS)
    assert found is not None
    assert [each.why for each in found.held] == [
        "behind bytes before it, which were sent again (retransmission time-out)"
    ]
    assert found.ready == 30 * MS + 2_000


@BASES
def test_connections_and_threads_of_one_process_are_told_apart(base: int) -> None:
    """Two connections at a time, and one that later has the address of the first."""
    run = StackRun(base)
    first, second = run.pair(), run.pair("10.77.0.1:4001", "10.77.0.2:5001", number=2)
    # Another program's connections have the same numbers.
    run.end("h1", "other").taken("10.77.0.1:4002", "10.77.0.9:5000").write(2_000, 100)
    for number, (near, far) in enumerate((first, second)):
        near.write(2_000 + number, 100, tid=SENDER)
        near.write(2_100 + number, 30, tid=OTHER)
        near.out(3_000 + number, 0, 130)
        far.came(4_000 + number, 0, 130)
        far.take(5_000 + number, 130, tid=RECEIVER + number)
    for number in (0, 1):
        found = run.carried(receiver=RECEIVER + number)
        assert found is not None and found.came == 4_000 + number
        assert found.marks == (Mark(TCP, 4000 + number, 5000 + number, base, 100),)
        theirs = run.carried(sender=OTHER, receiver=RECEIVER + number)
        assert theirs is not None and theirs.marks[0].bytes == 30
    later = run.end("h1", "source", 3), run.end("h2", "sink", 3)
    for end, ends in zip(later, ((HERE, THERE), (THERE, HERE)), strict=True):
        end.base = (base + 77_777) % 2**32
        end.taken(*ends, ts=50 * MS)
    later[0].write(60 * MS, 8)
    later[0].out(60 * MS + 1, 0, 8)
    later[1].came(60 * MS + 2, 0, 8)
    later[1].take(60 * MS + 3, 8)
    found = run.carried(begin=55 * MS)
    assert found is not None and (found.sent, found.came) == (60 * MS + 1, 60 * MS + 2)


def lossy(*lost: tuple[str, int]) -> Carried | None:
    """A message of two writes, two segments and two reads, without some events."""
    run = StackRun()
    near, far = run.pair()
    near.write(500, 10)
    near.out(600, 0, 10)
    far.came(700, 0, 10)
    far.take(800, 10)
    near.write(2_000, 100)
    near.out(2_100, 10, 100)
    near.write(3_000, 100)
    near.out(3_100, 110, 100)
    far.came(4_000, 10, 100)
    far.came(4_100, 110, 100)
    far.take(5_000, 100)
    far.take(5_100, 100)
    near.write(8_000, 10)
    near.out(8_100, 210, 10)
    far.came(8_200, 210, 10)
    far.take(8_300, 10)
    for name, ts in lost:
        rows = run.rows[f"stack.{name}"]
        run.rows[f"stack.{name}"] = [row for row in rows if row["counter"] != 3 * ts]
        assert len(run.rows[f"stack.{name}"]) == len(rows) - 1
    return run.carried(until=7_000, end=7_500)


def test_what_a_lost_event_leaves_open_is_not_known() -> None:
    assert lossy() is not None
    # Those of other messages do not matter.
    assert lossy(("segment_received", 700)) == lossy() == lossy(("segment_received", 8_200))
    for event in [
        ("write", 2_000),
        ("write", 3_000),
        ("segment_sent", 3_100),
        ("segment_received", 4_100),
        ("read", 5_100),
        ("taken", 1),
    ]:
        if event[0] != "taken":
            assert lossy(event) is None, event
    run = StackRun()
    near, far = run.pair()
    near.write(2_000, 100)
    near.out(9_000, 0, 100, again=1)
    far.came(9_500, 0, 100)
    far.take(9_900, 100)
    assert run.carried() is None
    # Nobody read it, or somebody else, or it was before.
    assert run.carried(end=9_800) is None
    assert run.carried(receiver=OTHER) is None and run.carried(sender=OTHER) is None


@pytest.mark.parametrize("seed", range(6))
def test_any_message_against_what_its_bytes_did(seed: int) -> None:
    """Every byte is followed by itself through random writes, segments, losses and reads."""
    draw = random.Random(seed)
    run = StackRun(draw.choice([0, 2**32 - 3_000, 2**31 - 2_000]))
    near, far = run.pair()
    ts, stream = 1_000, 0
    wanted: list[tuple[int, int, int, dict[str, int]]] = []
    for _ in range(30):
        begin, first = ts, stream
        ts += draw.randrange(1, 100)
        for _ in range(draw.randrange(1, 4)):
            count = draw.randrange(1, 900)
            given = ts
            near.write(ts, count)
            stream += count
            ts += draw.randrange(1, 50)
        # Segments, with bytes of this message alone, since the last one waits for its answer.
        cuts = sorted(draw.sample(range(first + 1, stream), min(3, stream - first - 1)))
        parts = list(zip([first, *cuts], [*cuts, stream], strict=True))
        arrivals, last_sent = [], {}
        for part in parts:
            near.out(ts, part[0], part[1] - part[0], tid=draw.choice([SENDER, HELPER]))
            last_sent[part] = ts
            if draw.random() < 0.7:
                arrivals.append((ts + draw.randrange(500, 900), part))
            ts += draw.randrange(1, 20)
        ts += 1_000
        for part in parts:
            if not any(part == each for _, each in arrivals):
                near.out(ts, part[0], part[1] - part[0], HELPER, again=1)
                last_sent[part] = ts
                arrivals.append((ts + draw.randrange(500, 900), part))
                ts += 1
        ts += 1_000
        have: set[int] = set()
        whole, by = None, None
        for at, part in sorted(arrivals):
            thread = draw.choice([RECEIVER, HELPER])
            far.came(at, part[0], part[1] - part[0], thread)
            have |= set(range(*part))
            if whole is None and have >= set(range(first, stream)):
                whole, by = (at, part), thread
        assert whole is not None and by is not None
        while far.read < stream:
            far.take(ts, min(draw.randrange(1, 1_500), stream - far.read))
            ts += 5
        expected = {"given": given, "came": whole[0], "sent": last_sent[whole[1]], "taker": by}
        wanted.append((begin, first, stream - first, {**expected, "end": ts}))
        ts += 100
    for number, (begin, first, length, expected) in enumerate(wanted):
        until = wanted[number + 1][0] if number + 1 < len(wanted) else None
        found = run.carried(begin, until, expected.pop("end"))
        assert found is not None and found.taker is not None
        got = {"given": found.given, "came": found.came, "sent": found.sent}
        assert got | {"taker": found.taker.tid} == expected
        assert found.marks[0].mark == (run.base + first) % 2**32
        assert found.marks[0].bytes == length


def kernels(ends: str) -> Any:
    """The events of the kernel's TCP of one end, and nothing of the other."""
    events = KernelEvents()
    if ends == "sender":
        events.send(2_000, 0, 4)
        events.out(3_000, 0, 4)
        events.send(5_000, 4, 100)
        events.acknowledged(40 * MS, 4)
        events.out(40 * MS + 1_000, 4, 100, tid=OTHER)
    else:
        events.arrive(4_000, 0, 4, upto=4)
        events.arrive(41 * MS, 4, 100, upto=104)
        events.read(42 * MS, 104)
    return TcpLedger(events, 1, "_kernel")  # type: ignore[arg-type]


def test_one_end_may_be_the_kernels() -> None:
    run = StackRun()
    near, far = run.pair()
    near.write(2_000, 4)
    near.out(3_000, 0, 4)
    near.write(5_000, 100)
    near.call("wait", 6_000)
    near.acknowledged(40 * MS, 4)
    near.out(40 * MS + 1_000, 4, 100)
    far.came(4_000, 0, 4)
    far.came(41 * MS, 4, 100)
    far.take(42 * MS, 104)
    hop = Hop(SENDER, RECEIVER, 1_000, None, 500 * MS)
    by_kernel = run.ledger("h1").carried(hop, kernels("receiver"))
    assert by_kernel is not None and by_kernel.taker is None and by_kernel.protocol == NAME
    assert by_kernel.held == (Held(5_000, 40 * MS + 1_000, NAGLE),)
    assert (by_kernel.came, by_kernel.ready) == (41 * MS, 41 * MS + 500)
    by_stack = kernels("sender").carried(hop, run.ledger("h2"))
    assert by_stack is not None and by_stack.taker == Taker(RECEIVER, None)
    assert by_stack.protocol == "TCP" and by_stack.came == 41 * MS
    assert [each.why.partition(",")[0] for each in by_stack.held] == ["Nagle's algorithm"]


def carried(sent: int, came: int, taker: Taker, *held: Held) -> Carried:
    return Carried(NAME, 110, sent, SENDER, came, came, held, Mark(TCP, 1, 2, 0, 1), taker=taker)


def parts(kernel: Kernel, way: Carried, end: int) -> list[tuple[str, int, int, int | None]]:
    found = over_network(kernel.scheduling(), SENDER, 100, way, RECEIVER, end)
    assert [part.start for part in found] == [100, *(part.end for part in found[:-1])]
    assert found[-1].end == end
    return [(part.name, part.start, part.end, part.tid) for part in found]


BOTH_RUN = [(10, 0, IDLE, PREEMPTED, SENDER), (20, 1, IDLE, PREEMPTED, RECEIVER)]
AT_LAST = [(5_000, 0, SENDER, SLEEPS, IDLE), (5_000, 1, RECEIVER, SLEEPS, IDLE)]


def test_a_receiver_that_looks_all_the_time_has_not_kept_the_message() -> None:
    way = carried(150, 400, Taker(RECEIVER, 50))
    assert parts(Kernel([*BOTH_RUN, *AT_LAST]), way, 450) == [
        ("running", 100, 150, SENDER),
        ("network", 150, 400, None),
        ("running", 400, 450, RECEIVER),
    ]
    # Another thread has its processor for a while.
    hog = [(200, 1, RECEIVER, PREEMPTED, OTHER), (390, 1, OTHER, PREEMPTED, RECEIVER)]
    found = parts(Kernel([*BOTH_RUN, *hog, *AT_LAST]), way, 450)
    assert [part[0] for part in found[1:-1]] == ["network", "runnable", "network"]
    assert found[2] == ("runnable", 200, 390, RECEIVER)
    # It slept in the stack, and came back from that after it had its processor again.
    of_sleep = carried(150, 400, Taker(RECEIVER, 395))
    found = parts(Kernel([*BOTH_RUN, *hog, *AT_LAST]), of_sleep, 450)
    assert found[1:] == [
        ("network", 150, 200, None),
        ("runnable", 200, 390, RECEIVER),
        ("running", 390, 400, RECEIVER),
        ("running", 400, 450, RECEIVER),
    ]


def test_a_thread_that_is_woken_takes_the_segment_and_wakes_the_reader() -> None:
    """The message is on its way until the helper is woken, and with it until the reader is."""
    switches = [
        (10, 0, IDLE, PREEMPTED, SENDER),
        (20, 1, IDLE, PREEMPTED, HELPER),
        (30, 1, HELPER, SLEEPS, RECEIVER),
        (60, 1, RECEIVER, SLEEPS, IDLE),
        (300, 1, IDLE, PREEMPTED, HELPER),
        (420, 1, HELPER, SLEEPS, RECEIVER),
        *AT_LAST,
    ]
    wakings = [(250, 0, SENDER, HELPER, IN_SOFTIRQ), (410, 1, HELPER, RECEIVER, 0)]
    way = carried(200, 400, Taker(HELPER, 310), Held(120, 200, "why"))
    expected = [
        ("running", 100, 120, SENDER),
        ("held", 120, 200, None),
        ("network", 200, 250, None),
        ("wake-up", 250, 300, HELPER),
        ("running", 300, 400, HELPER),
        ("running", 400, 410, HELPER),
        ("runnable", 410, 420, RECEIVER),
        ("running", 420, 450, RECEIVER),
    ]
    kernel = Kernel(switches, wakings)
    assert parts(kernel, way, 450) == expected
    # Between two machines it is on the wire instead.
    other = Kernel(switches, wakings).scheduling()
    near, far = between_kernels(kernel.scheduling(), SENDER, 100, way, other, RECEIVER, 450)
    named = [(part.name, part.start, part.end, part.tid) for part in (*near, *far)]
    assert named == [(name.replace("network", "wire"), *more) for name, *more in expected]


def test_a_message_over_an_emulated_link() -> None:
    """What follows the link is the way to the receiver's thread, which slept in the stack."""
    sleeps = [
        (10, 0, IDLE, PREEMPTED, SENDER),
        (20, 1, IDLE, PREEMPTED, RECEIVER),
        (30, 1, RECEIVER, SLEEPS, IDLE),
        (390, 1, IDLE, PREEMPTED, RECEIVER),
        *AT_LAST,
    ]
    kernel = Kernel(sleeps, [(360, 0, OTHER, RECEIVER, IN_SOFTIRQ)]).scheduling()
    way = carried(150, 400, Taker(RECEIVER, 395))
    link = Passage(("h1", "h2"), 170, 330, 0, OTHER, 0, 170, 345)
    found = over_link(kernel, SENDER, 100, link, RECEIVER, 450, way)
    assert [(part.name, part.start, part.end) for part in found if part.name != "send"] == [
        ("running", 100, 170),
        ("link", 170, 330),
        ("network", 345, 360),
        ("wake-up", 360, 390),
        ("running", 390, 400),
        ("running", 400, 450),
    ]
    assert sum(part.end - part.start for part in found) == 350
    assert is_passage_of(way, link, 172, 2)
    # Another packet with the message's number: it had left before, or came later.
    assert not is_passage_of(way, link, 173, 2)
    assert not is_passage_of(carried(150, 327, Taker(RECEIVER, None)), link, 150, 2)
