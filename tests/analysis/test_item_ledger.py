"""The way of items that go in several datagrams, of which some are lost and sent again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_udp_ledger import ANOTHER, FAR, IDLE, MS, NEAR, RECEIVER, SENDER, Ledger, mark

from loopscope.analysis.item_ledger import AGAIN, FULL_WINDOW, carried, dropped, traffic
from loopscope.analysis.ledger import IN_QUEUE, Carried, Held, Hop, Packet, Sending, Traffic
from loopscope.analysis.udp_ledger import Drop

RESENDER = 11
END = 500 * MS
LONG, SHORT = 1448, 900


class Items:
    """Datagrams of items, as their threads record them before the kernel has them."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._contents = itertools.count(1)
        self._sendings: list[tuple[int, int, int, int, int, int]] = []

    def sends(
        self, ts: int, item: int, part: int, parts: int = 3, tid: int = SENDER, goes: bool = True
    ) -> int:
        """A thread is about to send a datagram, and 1 us later it does; its content."""
        content = next(self._contents)
        size = LONG if part + 1 < parts else SHORT
        self._sendings.append((item, tid, ts, part, parts, size))
        if goes:
            self.ledger.sent(ts + 1_000, content, tid, length=size, bytes=size)
        return content

    def comes(self, ts: int, content: int, part: int, parts: int = 3, read: bool = True) -> None:
        size = LONG if part + 1 < parts else SHORT
        self.ledger.arrived(ts, content, length=size, bytes=size)
        if read:
            self.ledger.read(ts + 400)

    def hop(self, item: int, begin: int = 0, until: int | None = None, end: int = END) -> Hop:
        """An item's, whose first datagram was sent at ``begin`` or later."""
        rows = sorted(self._sendings, key=lambda each: each[2])
        found = []
        for its, tid, at, *part in rows:
            later = [ts for _, other, ts, *_ in rows if other == tid and ts > at]
            if its == item:
                found.append(Sending(tid, at, min(later, default=None), *part))
        return Hop(SENDER, RECEIVER, begin, until, end, sendings=tuple(found))

    def carried(self, hop: Hop) -> Carried | None:
        ledger = self.ledger.made()
        return carried(hop, ledger, ledger, packets=False)

    def traffic(self, hop: Hop) -> Traffic | None:
        ledger = self.ledger.made()
        return traffic(hop, ledger, ledger)


def went(found: Carried | None) -> tuple[int, int, int, tuple[Held, ...]]:
    """The content that made an item whole, when it left and came, and what had held it."""
    assert found is not None
    return found.last.mark + (1 << 63), found.sent, found.came, found.held


def test_an_item_is_whole_with_the_part_that_comes_last_whichever_that_is() -> None:
    items = Items()
    first, second, third = (items.sends(10_000 * (1 + part), 5, part) for part in range(3))
    items.comes(8 * MS, second, 1)
    items.comes(5 * MS, third, 2)
    items.comes(4 * MS, first, 0)
    found = items.carried(items.hop(5))
    assert went(found) == (second, 21_500, 8 * MS, ())
    assert found is not None and found.ready == 8 * MS + 300 and found.by == SENDER


def test_two_items_on_their_way_at_a_time_have_their_own_datagrams() -> None:
    items = Items()
    of_5 = [items.sends(10_000 * (1 + part), 5, part) for part in range(3)]
    of_6 = [items.sends(10_000 * (4 + part), 6, part) for part in range(3)]
    # The later item overtakes the other one, whose last datagram is late.
    for part, content in enumerate(of_6):
        items.comes((4 + part) * MS, content, part)
    for part, content in enumerate(of_5):
        items.comes((8 + part) * MS, content, part)
    assert went(items.carried(items.hop(5)))[::2] == (of_5[2], 10 * MS)
    assert went(items.carried(items.hop(6, begin=40_000, end=7 * MS)))[::2] == (of_6[2], 6 * MS)


def test_what_was_lost_held_the_item_until_it_was_sent_again() -> None:
    items = Items()
    contents = [items.sends(10_000 * (1 + part), 5, part) for part in range(3)]
    for part in (0, 2):
        items.comes(4 * MS, contents[part], part)
    # In between, the thread sends another item, and what is sent again comes from a further one.
    other = items.sends(6 * MS, 6, 0, 1)
    items.comes(10 * MS, other, 0, 1)
    again = items.sends(20 * MS, 5, 1, tid=RESENDER)
    items.comes(24 * MS, again, 1)
    found = items.carried(items.hop(5, until=6 * MS - 1_000))
    held = (Held(21_000, 20 * MS + 1_000, AGAIN),)
    assert went(found) == (again, 20 * MS + 1_500, 24 * MS, held)
    assert found is not None and found.given == 21_000 and found.by == RESENDER
    # By these the loss is looked for on emulated links.
    lost, came = (mark(each)._replace(bytes=LONG) for each in (contents[1], again))
    assert found.marks == (lost, came) and found.last == came


def test_what_was_sent_again_for_nothing_did_not_hold_the_item() -> None:
    items = Items()
    contents = [items.sends(10_000 * (1 + part), 5, part) for part in range(3)]
    for part, content in enumerate(contents):
        items.comes((4 + part) * MS, content, part)
    again = items.sends(20 * MS, 5, 0, tid=RESENDER)
    items.comes(24 * MS, again, 0)
    assert went(items.carried(items.hop(5))) == (contents[2], 31_500, 6 * MS, ())


@pytest.mark.parametrize("at_once", [0, 1])
def test_a_part_that_waited_for_the_window_did_so_since_the_thread_had_no_more_room(
    at_once: int,
) -> None:
    items = Items()
    begun = [items.sends(10_000 * (1 + part), 5, part) for part in range(at_once)]
    rest = [
        items.sends(20 * MS + 5_000 * part, 5, part, tid=RESENDER) for part in range(at_once, 3)
    ]
    for part, content in enumerate([*begun, *rest]):
        items.comes((24 + part) * MS, content, part)
    held = (Held(11_000 if at_once else 7_000, 20 * MS + 11_000, FULL_WINDOW),)
    found = items.carried(items.hop(5, begin=7_000))
    assert went(found) == (rest[-1], 20 * MS + 11_500, 26 * MS, held)


@pytest.mark.parametrize("until", [19 * MS, None])
def test_a_part_that_the_thread_sends_with_a_later_item_had_waited(until: int | None) -> None:
    items = Items()
    contents = [items.sends(ts, 5, part) for part, ts in enumerate((10_000, 20_000, 20 * MS))]
    for part, content in enumerate(contents):
        items.comes((24 + part) * MS, content, part)
    held = (Held(21_000, 20 * MS + 1_000, FULL_WINDOW),) if until else ()
    assert went(items.carried(items.hop(5, until=until)))[3] == held


def test_a_part_may_wait_be_lost_and_wait_in_a_queue() -> None:
    items = Items()
    lost = items.sends(20 * MS, 5, 0, 1, tid=RESENDER)
    items.sends(40 * MS, 5, 0, 1, tid=RESENDER, goes=False)
    size = {"length": SHORT, "bytes": SHORT}
    items.ledger.packet("datagram_queued", 41 * MS, RESENDER, NEAR, 77, **size)
    items.ledger.packet("datagram_out", 42 * MS, IDLE, NEAR, 77, **size)
    items.comes(50 * MS, 77, 0, 1)
    assert lost != 77
    held = (
        Held(5_000, 20 * MS + 1_000, FULL_WINDOW),
        Held(20 * MS + 1_000, 41 * MS, AGAIN),
        Held(41 * MS, 42 * MS, IN_QUEUE),
    )
    assert went(items.carried(items.hop(5, begin=5_000))) == (77, 42 * MS, 50 * MS, held)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_socket_without_room_drops_what_had_come(recorded: bool) -> None:
    """Without the kernel's word it is not known which of two datagrams was in the item."""
    items = Items()
    if not recorded:
        del items.ledger.kernel_gaps[1, "_kernel"]["drop"]
    dropped = items.sends(10_000, 5, 0, 1)
    items.comes(4 * MS, dropped, 0, 1)
    again = items.sends(20 * MS, 5, 0, 1)
    items.comes(24 * MS, again, 0, 1)
    if recorded:
        why = {"length": SHORT, "bytes": SHORT}
        items.ledger.dropped(4 * MS + 100, 2, dropped, "SOCKET_RCVBUFF", **why)
        held = (Held(11_000, 20 * MS + 1_000, AGAIN),)
        assert went(items.carried(items.hop(5))) == (again, 20 * MS + 1_500, 24 * MS, held)
    else:
        assert items.carried(items.hop(5)) is None and items.traffic(items.hop(5)) is None


def test_an_item_is_not_known_where_one_of_its_datagrams_is_not() -> None:
    def sent(part_of_two: bool = True, twice: bool = False, kept: bool = False) -> Items:
        items = Items()
        contents = [items.sends(10_000, 5, 0, 2), items.sends(20_000, 5, 1, 2, goes=not kept)]
        if twice:
            # Another datagram of the thread, of which nothing was recorded.
            items.ledger.sent(25_000, 99, length=SHORT, bytes=SHORT)
        items.comes(4 * MS, contents[0], 0, 2)
        if part_of_two and not kept:
            items.comes(5 * MS, contents[1], 1, 2)
        return items

    whole = sent()
    # What the thread sends on in an interrupt has another length.
    whole.ledger.sent(25_000, 98, length=60, bytes=60)
    assert went(whole.carried(whole.hop(5)))[2] == 5 * MS
    for items in (sent(part_of_two=False), sent(twice=True), sent(kept=True)):
        assert items.carried(items.hop(5)) is None
        assert items.traffic(items.hop(5)) is None
    # All of its records are missing.
    assert whole.carried(whole.hop(6)) is None
    assert whole.hop(6).sendings == ()


def test_datagrams_to_another_host_are_none_of_the_hops() -> None:
    items = Items()
    far = {"source": "10.77.0.1:4001", "target": "10.77.0.3:6000", "length": SHORT, "bytes": SHORT}
    elsewhere = items.sends(10_000, 5, 0, 1, tid=RESENDER, goes=False)
    items.ledger.sent(11_000, elsewhere, RESENDER, **far)
    here = items.sends(20_000, 5, 0, 1)
    items.comes(4 * MS, here, 0, 1)
    items.ledger.arrived(9 * MS, elsewhere, ANOTHER, **far)
    items.ledger.read(9 * MS + 400, 21, ANOTHER)
    # It is not one that was sent again.
    assert went(items.carried(items.hop(5))) == (here, 21_500, 4 * MS, ())
    found = items.traffic(items.hop(5))
    assert found is not None and [each.ts for each in found.listed()] == [21_500, 4 * MS]


def test_what_the_kernel_dropped_of_a_lost_item_is_one_of_its_own_datagrams() -> None:
    items = Items()
    own, others = items.sends(10_000, 5, 0, 1), items.sends(20_000, 6, 0, 1)
    size = {"length": SHORT, "bytes": SHORT}
    items.ledger.dropped(4 * MS, FAR, others, "SOCKET_RCVBUFF", **size)
    ledger = items.ledger.made()
    sendings = items.hop(5).sendings, items.hop(6).sendings
    full = Drop(False, "SOCKET_RCVBUFF", "a_function")
    assert [dropped(each, ledger, ledger) for each in sendings] == [None, full]
    items.ledger.dropped(3 * MS, NEAR, own, "QDISC_DROP", **size)
    ledger = items.ledger.made()
    assert dropped(sendings[0], ledger, ledger) == Drop(True, "QDISC_DROP", "a_function")
    # A second host gets the item, too, and it is not known which of both lost it.
    items.sends(30_000, 5, 0, 1, goes=False)
    items.ledger.sent(31_000, 97, target="10.77.0.3:6000", **size)
    ledger = items.ledger.made()
    assert dropped(items.hop(5).sendings, ledger, ledger) is None


def test_the_packets_of_an_item_have_their_places_in_it() -> None:
    items = Items()
    contents = [items.sends(10_000 * (1 + part), 5, part) for part in range(3)]
    items.comes(5 * MS, contents[0], 0)
    items.comes(4 * MS, contents[2], 2)
    again = items.sends(20 * MS, 5, 1, tid=RESENDER)
    items.comes(24 * MS, again, 1)
    found = items.traffic(items.hop(5))
    assert found is not None
    assert found.listed() == (
        Packet(11_500, False, 0, LONG, False),
        Packet(21_500, False, LONG, LONG, False),
        Packet(31_500, False, 2 * LONG, SHORT, False),
        Packet(4 * MS, True, 2 * LONG, SHORT, False),
        Packet(5 * MS, True, 0, LONG, False),
        Packet(20 * MS + 1_500, False, LONG, LONG, True),
        Packet(24 * MS, True, LONG, LONG, False),
    )
    assert [each.ts for each in found.calls if each.came] == [24 * MS + 400]
    assert {each.place for each in found.marks} == {0, LONG, 2 * LONG}


SENDINGS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 60), st.booleans()),
    min_size=3,
    max_size=20,
)


@settings(max_examples=40, deadline=None)
@given(plan=SENDINGS, by=st.lists(st.sampled_from([SENDER, RESENDER]), min_size=20, max_size=20))
def test_each_item_is_whole_with_the_last_of_the_first_arrivals_of_its_parts(
    plan: Sequence[tuple[int, int, int, bool]], by: Sequence[int]
) -> None:
    """Datagrams of three items in any order, by two threads, with losses and overtaking."""
    items = Items()
    firsts: dict[int, dict[int, tuple[int, int]]] = {}
    for turn, (item, part, takes, is_lost) in enumerate(plan):
        content = items.sends(MS * (1 + turn), item, part, tid=by[turn])
        if not is_lost:
            came = MS * (1 + turn + takes) + 10_000 * turn
            items.comes(came, content, part)
            of_item = firsts.setdefault(item, {})
            of_item[part] = min((came, content), of_item.get(part, (came, content)))
    for item, parts in firsts.items():
        found = items.carried(items.hop(item))
        if len(parts) < 3:
            assert found is None
        else:
            came, content = max(parts.values())
            assert went(found)[::2] == (content, came)


@pytest.mark.parametrize("behind", [-40_000, 40_000])
def test_the_clocks_of_two_kernels_may_be_apart(behind: int) -> None:
    """By a clock that is behind, a datagram comes before it was sent."""
    items, far = Items(), Ledger()
    contents = [items.sends(100_000 * (1 + part), 5, part, 2) for part in range(2)]
    again = items.sends(400_000, 5, 1, 2, tid=RESENDER)
    for content, ts, size in ((contents[0], 105_000, LONG), (again, 405_000, SHORT)):
        far.arrived(ts - behind, content, length=size, bytes=size)
        far.read(ts - behind + 400)
    hop = items.hop(5, end=406_000 - behind)._replace(apart=50_000)
    held = (Held(201_000, 401_000, AGAIN),)
    found = carried(hop, items.ledger.made(), far.made(), packets=False)
    assert went(found) == (again, 401_500, 405_000 - behind, held)
