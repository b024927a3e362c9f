"""The way of datagrams, and who dropped them, by events of their packets and sockets."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopscope.analysis.ledger import UDP, Carried, Handed, Held, Hop, Mark, Packet, Traffic
from loopscope.analysis.udp_ledger import IN_QUEUE, Drop, UdpLedger

SENDER, RECEIVER, OTHER, IDLE = 10, 20, 30, 0
HERE, THERE = "10.77.0.1:4000", "10.77.0.2:5000"
NEAR, FAR = 1, 2
SOCKET, ANOTHER = 0xFFFF_8880_0000_1000, 0xFFFF_8880_0000_2000
MS = 1_000_000


class Ledger:
    """Events of classes udp and drop of a kernel, as a run offers them."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._con = duckdb.connect()
        names = "datagram_queued datagram_out datagram_in datagram_ready datagram_read packet_drop"
        self.tables = [f"kernel.{name}" for name in names.split()]
        self.kernel_gaps: dict[tuple[int, str], dict[str, list[Any]]] = {
            (1, "_kernel"): {"udp": [], "drop": []}
        }

    def _add(self, name: str, ts: int, **columns: Any) -> None:
        common = {"repeat": 1, "host": "_kernel", "ts": ts, "counter": 3 * ts}
        self._rows.setdefault(f"kernel.{name}", []).append(common | columns)

    def packet(self, name: str, ts: int, tid: int, netns: int, content: int, **more: Any) -> None:
        packet = {
            "source": HERE,
            "target": THERE,
            "length": 100,
            "bytes": 100,
            "hash": (1 << 63) + content,
            "hashed": 32,
            "fragment_id": 0,
            "fragment_offset": 0,
            "fragments_follow": 0,
        }
        self._add(name, ts, tid=tid, netns=netns, **packet | more)

    def sent(self, ts: int, content: int, tid: int = SENDER, **more: Any) -> None:
        """A thread's datagram goes out of its device at once."""
        self.packet("datagram_queued", ts, tid, NEAR, content, **more)
        self.packet("datagram_out", ts + 500, tid, NEAR, content, **more)

    def arrived(self, ts: int, content: int, socket: int = SOCKET, **more: Any) -> None:
        self.packet("datagram_in", ts, OTHER, FAR, content, **more)
        port = int(more.get("target", THERE).rpartition(":")[2])
        self.ready(ts + 300, socket, port)

    def ready(self, ts: int, socket: int = SOCKET, port: int = 5000) -> None:
        local = f"0.0.0.0:{port}"
        self._add("datagram_ready", ts, tid=OTHER, netns=FAR, socket=socket, local=local)

    def read(self, ts: int, tid: int = RECEIVER, socket: int = SOCKET) -> None:
        self._add("datagram_read", ts, tid=tid, netns=FAR, socket=socket)

    def dropped(self, ts: int, netns: int, content: int, reason: str, **more: Any) -> None:
        texts = {"reason": reason, "function": "a_function"}
        self.packet("packet_drop", ts, OTHER, netns, content, **texts, **more)

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        texts = ("host", "source", "target", "local", "reason", "function")
        numbers = (
            "repeat ts err_ns counter tid netns bytes length hash hashed fragment_id "
            "fragment_offset fragments_follow socket"
        ).split()
        types = dict.fromkeys(texts, pa.string()) | dict.fromkeys(numbers, pa.int64())
        types |= {"hash": pa.uint64(), "socket": pa.uint64()}
        empty = dict.fromkeys(texts, "") | dict.fromkeys(numbers, 0)
        rows = [empty | row for row in self._rows.get(name, ())]
        return self._con.from_arrow(pa.Table.from_pylist(rows, pa.schema(types)))

    def made(self) -> UdpLedger:
        return UdpLedger(self, 1, "_kernel")  # type: ignore[arg-type]

    def carried(
        self, begin: int = 1_000, until: int | None = None, end: int = 500 * MS
    ) -> Carried | None:
        ledger = self.made()
        return ledger.carried(Hop(SENDER, RECEIVER, begin, until, end), ledger)

    def traffic(self) -> Traffic:
        ledger = self.made()
        found = ledger.carried(Hop(SENDER, RECEIVER, 1_000, None, 500 * MS), ledger, packets=True)
        assert found is not None and found.traffic is not None
        return found.traffic

    def lost(self, begin: int = 1_000, until: int | None = None) -> Drop | None:
        ledger = self.made()
        return ledger.dropped(SENDER, begin, until, ledger)


def mark(content: int) -> Mark:
    """What a datagram is known by."""
    return Mark(UDP, 4000, 5000, content - (1 << 63), 100)


def test_a_datagram_that_goes_at_once_is_not_held() -> None:
    ledger = Ledger()
    ledger.sent(2_000, 7)
    # A machine between the two sends it on.
    ledger.packet("datagram_out", 3_500, OTHER, 9, 7)
    ledger.arrived(4_000, 7)
    ledger.read(9_000)
    assert ledger.carried() == Carried("UDP", 2_000, 2_500, SENDER, 4_000, 4_300, (), mark(7))


def test_a_full_queue_of_the_device_holds_it() -> None:
    ledger = Ledger()
    ledger.packet("datagram_queued", 2_000, SENDER, NEAR, 7)
    ledger.packet("datagram_out", 9 * MS, IDLE, NEAR, 7)
    ledger.arrived(10 * MS, 7)
    ledger.read(11 * MS)
    held = (Held(2_000, 9 * MS, IN_QUEUE),)
    instants = 2_000, 9 * MS, IDLE, 10 * MS, 10 * MS + 300
    assert ledger.carried() == Carried("UDP", *instants, held, mark(7))


def test_the_packets_of_a_datagram() -> None:
    ledger = Ledger()
    # Another datagram of the flow goes out before it, which waits for its turn.
    ledger.packet("datagram_queued", 2_000, SENDER, NEAR, 7)
    ledger.packet("datagram_out", 2_500, IDLE, NEAR, 8)
    ledger.packet("datagram_out", 3_000, IDLE, NEAR, 7)
    ledger.packet("datagram_out", 3_500, OTHER, 9, 7)
    ledger.arrived(4_000, 7)
    ledger.read(9_000)
    assert ledger.traffic().listed() == (
        Packet(3_000, False, 0, 100, False),
        Packet(4_000, True, 0, 100, False),
    )


def test_the_packets_of_a_datagram_in_fragments() -> None:
    ledger = Ledger()
    parts: list[dict[str, Any]] = [
        {"bytes": 1472, "fragments_follow": 1},
        {"bytes": 28, "fragment_offset": 1480, "source": "10.77.0.1:0", "target": "10.77.0.2:0"},
    ]
    for number, part in enumerate(parts):
        part = {"length": 1500, "fragment_id": 9} | part
        ledger.packet("datagram_queued", 2_000 + 400 * number, SENDER, NEAR, 7, **part)
        ledger.packet("datagram_out", 2_100 + 400 * number, SENDER, NEAR, 7, **part)
        ledger.packet("datagram_in", 3_000 + 400 * number, OTHER, FAR, 7, **part)
    ledger.ready(4_000)
    ledger.read(9_000)
    assert ledger.traffic().calls == (
        Handed(2_000, False, 0, 1500),
        Handed(9_000, True, 0, 1500),
    )
    assert ledger.traffic().listed() == (
        Packet(2_100, False, 0, 1472, False),
        Packet(2_500, False, 1472, 28, False),
        Packet(3_000, True, 0, 1472, False),
        Packet(3_400, True, 1472, 28, False),
    )


def test_of_several_datagrams_the_last_counts() -> None:
    ledger = Ledger()
    for number in range(5):
        ledger.sent(2_000 + 1_000 * number, number)
        ledger.arrived(20_000 + 1_000 * number, number)
        ledger.read(40_000 + 1_000 * number)
    # Those of the next message are not this one's.
    ledger.sent(60_000, 5)
    found = ledger.carried(until=59_000)
    assert found is not None and (found.given, found.came) == (6_000, 24_000)


def test_a_fragment_that_comes_last_makes_it_whole() -> None:
    ledger = Ledger()
    parts = [(0, 1, 7), (1_480, 1, 0), (2_960, 0, 0)]
    for number, (offset, follow, content) in enumerate(parts):
        ends = {} if offset == 0 else {"source": "10.77.0.1:0", "target": "10.77.0.2:0"}
        part = {"fragment_id": 99, "fragment_offset": offset, "fragments_follow": follow} | ends
        part["length"] = 4_000 if offset == 0 else 0
        ledger.sent(2_000 + 1_000 * number, content, **part)
        ledger.packet("datagram_in", 10_000 + 1_000 * number, OTHER, FAR, content, **part)
    # Another datagram of the same machines.
    ledger.packet("datagram_in", 14_000, OTHER, FAR, 0, **part | {"fragment_id": 98})
    ledger.ready(15_000)
    ledger.read(18_000)
    found = ledger.carried()
    last = mark(7)._replace(fragment=99)
    assert found == Carried("UDP", 2_000, 4_500, SENDER, 12_000, 15_000, (), last)


def test_each_member_of_a_group_has_its_socket() -> None:
    group = {"target": "239.77.1.1:5000"}
    ledger = Ledger()
    ledger.sent(2_000, 7, **group)
    ledger.arrived(4_000, 7, ANOTHER, **group)
    ledger.ready(4_800)
    ledger.read(8_000, OTHER, ANOTHER)
    assert ledger.carried() is None
    ledger.read(9_000)
    found = ledger.carried()
    assert found is not None and (found.came, found.ready) == (4_000, 4_800)


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ({}, False),
        ({"fragment_id": 5}, True),
        ({"length": 99}, True),
        ({"source": "10.77.0.1:4001"}, True),
    ],
)
def test_datagrams_that_are_the_same_are_not_told_apart(more: dict[str, Any], known: bool) -> None:
    ledger = Ledger()
    ledger.sent(2_000, 7, fragment_id=4 if "fragment_id" in more else 0)
    ledger.arrived(4_000, 7, fragment_id=4 if "fragment_id" in more else 0)
    ledger.read(9_000)
    ledger.sent(50 * MS, 7, **more)
    assert (ledger.carried(until=10_000) is not None) == known


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([0, 32, 32])), min_size=1
    )
)
@settings(max_examples=60, deadline=None)
def test_a_datagram_is_known_if_none_is_like_it(sent: list[tuple[int, int, int]]) -> None:
    """A number or content that is not there may be any."""
    ledger = Ledger()
    for place, (content, number, hashed) in enumerate(sent):
        more = {"fragment_id": number, "hashed": hashed}
        ledger.sent(2_000 + 50_000 * place, content, **more)
        ledger.arrived(12_000 + 50_000 * place, content, **more)
        ledger.read(20_000 + 50_000 * place)
    made = ledger.made()
    for place, (content, number, hashed) in enumerate(sent):
        alike = [
            other
            for other, of, seen in sent
            if (other == content or not (seen and hashed)) and (of == number or not (of and number))
        ]
        begin = 1_000 + 50_000 * place
        hop = Hop(SENDER, RECEIVER, begin, begin + 10_000, begin + 30_000)
        found = made.carried(hop, made)
        assert (found is not None) == (len(alike) == 1)
        assert (made.traffic(hop, made) is not None) == (len(alike) == 1)


def test_content_in_other_pages_is_not_looked_at() -> None:
    ledger = Ledger()
    ledger.sent(2_000, 7)
    ledger.arrived(4_000, 0, hashed=0)
    ledger.read(9_000)
    assert ledger.carried() is not None
    other = Ledger()
    other.sent(2_000, 7)
    other.arrived(4_000, 8)
    other.read(9_000)
    assert other.carried() is None


def test_what_nobody_read_or_others_sent_is_not_known() -> None:
    ledger = Ledger()
    assert ledger.carried() is None
    ledger.sent(2_000, 7, OTHER)
    ledger.arrived(4_000, 7)
    ledger.read(9_000)
    assert ledger.carried() is None
    mine = Ledger()
    mine.sent(2_000, 7)
    mine.arrived(4_000, 7)
    assert mine.carried() is None
    mine.read(9_000)
    assert mine.carried(end=8_000) is None
    assert mine.carried(begin=3_000) is None
    assert mine.carried() is not None


def test_the_other_kernels_clock_may_be_behind() -> None:
    here, there = Ledger(), Ledger()
    here.sent(20_000, 7)
    there.arrived(19_000, 7)
    there.read(19_900)
    near, far = here.made(), there.made()
    hop = Hop(SENDER, RECEIVER, 15_000, None, 19_950)
    assert near.carried(hop, far) is None
    found = near.carried(hop._replace(apart=2_000), far)
    assert found is not None and (found.sent, found.came) == (20_500, 19_000)


def test_who_dropped_it_and_why() -> None:
    ledger = Ledger()
    ledger.sent(2_000, 7)
    assert ledger.lost() is None
    ledger.dropped(3_000, FAR, 8, "ANOTHERS")
    assert ledger.lost() is None
    ledger.dropped(4_000, FAR, 7, "SOCKET_RCVBUFF")
    assert ledger.lost() == Drop(False, "SOCKET_RCVBUFF", "a_function")
    assert ledger.lost(begin=3_000) is None
    at_sender = Ledger()
    at_sender.packet("datagram_queued", 2_000, SENDER, NEAR, 7)
    at_sender.dropped(2_500, NEAR, 7, "QDISC_DROP")
    assert at_sender.lost() == Drop(True, "QDISC_DROP", "a_function")
    # It is not known which of two that are the same was dropped.
    at_sender.packet("datagram_queued", 90_000, SENDER, NEAR, 7)
    assert at_sender.lost(until=80_000) is None
