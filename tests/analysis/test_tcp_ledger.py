"""What TCP did with a message, by events of its sockets and segments."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from loopscope.analysis.ledger import TCP, Carried, Handed, Held, Hop, Mark, Packet
from loopscope.analysis.network_path import over_network
from loopscope.analysis.scheduling import Scheduling
from loopscope.analysis.tcp_ledger import TcpLedger

SENDER, RECEIVER, OTHER, IDLE = 10, 20, 30, 0
HERE, THERE = "10.77.0.1:4000", "10.77.0.2:5000"
MS = 1_000_000
WINDOW, CONGESTION, MSS = 65_000, 10, 1448
LOSS, RECOVERY = 4, 3
SYN = 2


class Ledger:
    """Events of class tcp of two sockets, as a run offers them; sequence numbers are of `base`."""

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._con = duckdb.connect()
        names = "tcp_send tcp_read tcp_ready tcp_receive tcp_resend segment_out segment_in"
        self._names = [f"kernel.{name}" for name in names.split()]
        self.tables = self._names

    def _add(self, name: str, ts: int, tid: int, near: str, far: str, **columns: int) -> None:
        if name.startswith("segment"):
            ends = {"source": near, "target": far}
        else:
            ends = {"local": near, "remote": far}
        of_base = ("seq", "ack", "rcv_nxt", "copied_seq", "snd_una")
        wrapped = {
            key: (value + self.base) % 2**32 if key in of_base else value
            for key, value in columns.items()
        }
        netns = 1 if HERE in (near if name != "segment_in" else far,) else 2
        common = {"repeat": 1, "host": "_kernel", "ts": ts, "counter": 3 * ts, "tid": tid}
        self._rows.setdefault(f"kernel.{name}", []).append(
            common | {"netns": netns, **ends, **wrapped}
        )

    def send(self, ts: int, seq: int, count: int, tid: int = SENDER) -> None:
        self._add("tcp_send", ts, tid, HERE, THERE, seq=seq, bytes=count)

    def out(self, ts: int, seq: int, count: int, tid: int = SENDER, flags: int = 0) -> None:
        self._add("segment_out", ts, tid, HERE, THERE, seq=seq, bytes=count, tcp_flags=flags)

    def told(self, ts: int, seq: int, count: int) -> None:
        """The kernel tells of a message of a program that records nothing."""
        self._add("tcp_message", ts, SENDER, HERE, THERE, seq=seq, bytes=count)
        self.tables = [*self._names, "kernel.tcp_message"]

    def queued(self, ts: int, seq: int, count: int, tid: int = SENDER) -> None:
        self._add("segment_queued", ts, tid, HERE, THERE, seq=seq, bytes=count)
        self.tables = [*self._names, "kernel.segment_queued"]

    def arrive(self, ts: int, seq: int, count: int, upto: int | None = None) -> None:
        """A segment comes; after it the socket has all bytes until `upto`, None: it waits."""
        self._add("segment_in", ts, OTHER, HERE, THERE, seq=seq, bytes=count)
        if upto is not None:
            self._add("tcp_ready", ts + 500, OTHER, THERE, HERE, rcv_nxt=upto)

    def read(self, ts: int, upto: int, tid: int = RECEIVER) -> None:
        self._add("tcp_read", ts, tid, THERE, HERE, copied_seq=upto)

    def acknowledged(self, ts: int, ack: int, **was: int) -> None:
        """An acknowledgement comes; `was` is what the sender's socket was like before it."""
        self._add("segment_out", ts - 1_000, RECEIVER, THERE, HERE, seq=0, bytes=0)
        state = {
            "snd_una": 0,
            "snd_wnd": WINDOW,
            "snd_cwnd": CONGESTION,
            "packets_out": 1,
            "sacked_out": 0,
            "mss": MSS,
            "nagle_off": 0,
            "congestion_state": 0,
            "pacing": 0,
        }
        self._add("tcp_receive", ts, OTHER, HERE, THERE, ack=ack, **state | was)

    def resend(self, ts: int, seq: int, state: int) -> None:
        zero = dict.fromkeys(("snd_una", "snd_wnd", "snd_cwnd", "packets_out", "sacked_out"), 0)
        more = {"mss": MSS, "nagle_off": 0, "congestion_state": state, "pacing": 0}
        self._add("tcp_resend", ts, IDLE, HERE, THERE, seq=seq, **zero, **more)

    def drop(
        self, ts: int, seq: int, count: int, reason: str, *, at_receiver: bool = False
    ) -> None:
        """A segment on its way from HERE to THERE is dropped."""
        row = {"repeat": 1, "host": "_kernel", "ts": ts, "counter": 3 * ts, "tid": IDLE}
        row |= {"netns": 1 + at_receiver, "source": HERE, "target": THERE, "protocol": 6}
        row |= {"seq": (seq + self.base) % 2**32, "bytes": count}
        row |= {"reason": reason, "function": "f"}
        self._rows.setdefault("kernel.packet_drop", []).append(row)
        self.tables = [*self._names, "kernel.packet_drop"]

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        columns = (
            "repeat host ts err_ns counter tid netns local remote source target seq bytes ack "
            "rcv_nxt copied_seq snd_una snd_wnd snd_cwnd packets_out sacked_out mss nagle_off "
            "congestion_state pacing tcp_flags protocol reason function"
        ).split()
        texts = ("host", "local", "remote", "source", "target", "reason", "function")
        empty = {name: "" if name in texts else 0 for name in columns}
        found = [empty | row for row in self._rows.get(name, ())]
        table = pa.Table.from_pylist(found or [empty])
        return self._con.from_arrow(table if found else table.slice(0, 0))

    def carried(
        self, begin: int = 1_000, until: int | None = None, end: int = 500 * MS
    ) -> Carried | None:
        ledger = TcpLedger(self, 1, "_kernel")  # type: ignore[arg-type]
        return ledger.carried(Hop(SENDER, RECEIVER, begin, until, end), ledger)


BASES = pytest.mark.parametrize("base", [0, 3_000_000_000, 2**32 - 50, 2**31 - 60])


@BASES
def test_a_message_that_goes_at_once_is_not_held(base: int) -> None:
    ledger = Ledger(base)
    ledger.send(2_000, 0, 100)
    ledger.out(3_000, 0, 100)
    ledger.arrive(4_000, 0, 100, upto=100)
    ledger.read(9_000, 100)
    whole = Mark(TCP, 4000, 5000, base, 100)
    last = whole._replace(bytes=1)
    found = Carried("TCP", 2_000, 3_000, SENDER, 4_000, 4_500, (), last, marks=(whole,))
    assert ledger.carried() == found


@BASES
def test_two_writes_meet_nagle_and_a_delayed_acknowledgement(base: int) -> None:
    """The second small segment waits for the first one's acknowledgement (RFC 896)."""
    ledger = Ledger(base)
    ledger.send(2_000, 0, 4)
    ledger.out(3_000, 0, 4)
    ledger.arrive(4_000, 0, 4, upto=4)
    ledger.send(5_000, 4, 100)
    ledger.acknowledged(40 * MS + 5_000, 4)
    ledger.out(40 * MS + 6_000, 4, 100, tid=IDLE)
    ledger.arrive(40 * MS + 7_000, 4, 100, upto=104)
    ledger.read(40 * MS + 9_000, 104)
    found = ledger.carried()
    assert found is not None
    assert (found.given, found.sent, found.by) == (5_000, 40 * MS + 6_000, IDLE)
    why = (
        "Nagle's algorithm, until what was sent before was acknowledged, which the receiver delayed"
    )
    assert found.held == (Held(5_000, 40 * MS + 6_000, why),)


@BASES
def test_nagle_alone_is_told_from_a_delayed_acknowledgement(base: int) -> None:
    ledger = Ledger(base)
    ledger.send(2_000, 0, 4)
    ledger.out(3_000, 0, 4)
    ledger.arrive(19 * MS, 0, 4, upto=4)
    ledger.send(5_000, 4, 100)
    ledger.acknowledged(20 * MS, 4)
    ledger.out(20 * MS + 1_000, 4, 100, tid=OTHER)
    ledger.arrive(39 * MS, 4, 100, upto=104)
    ledger.read(40 * MS, 104)
    found = ledger.carried()
    assert found is not None
    assert [each.why for each in found.held] == [
        "Nagle's algorithm, until what was sent before was acknowledged"
    ]


@pytest.mark.parametrize(
    ("was", "why"),
    [
        ({"packets_out": 10}, "its congestion window was full"),
        ({"packets_out": 9, "mss": 999}, "its congestion window was full"),
        ({"pacing": 1, "nagle_off": 1}, "its pacing, or the queue of its device"),
        ({"pacing": 2, "nagle_off": 1}, "why is not told"),
        ({"packets_out": 12, "sacked_out": 2}, "its congestion window was full"),
        ({"snd_wnd": 3_999}, "the receiver's window was full"),
        ({"snd_wnd": 4_000, "nagle_off": 2}, "the program had set TCP_CORK"),
        ({"nagle_off": 1}, "why is not told"),
        ({"packets_out": 0}, "why is not told"),
        ({"packets_out": 9, "nagle_off": 1}, "why is not told"),
    ],
)
@pytest.mark.parametrize("queued", [False, True])
@BASES
def test_what_the_socket_was_like_says_why_it_waited(
    base: int, queued: bool, was: dict[str, int], why: str
) -> None:
    ledger = Ledger(base)
    ledger.send(2_000, 0, 4_000)
    if queued:
        ledger.queued(2_400, 0, 3_000)
        ledger.queued(9 * MS + 1_000, 3_000, 1_000, tid=OTHER)
        why = why.removesuffix(", or the queue of its device")
    ledger.out(2_500, 0, 3_000)
    ledger.arrive(2_700, 0, 3_000, upto=3_000)
    ledger.acknowledged(9 * MS, 3_000, **was)
    ledger.out(9 * MS + 1_000, 3_000, 1_000, tid=OTHER)
    ledger.arrive(9 * MS + 2_000, 3_000, 1_000, upto=4_000)
    ledger.read(9 * MS + 4_000, 4_000)
    found = ledger.carried()
    assert found is not None and [each.why for each in found.held] == [why]
    assert (found.given, found.sent, found.came) == (2_000, 9 * MS + 1_000, 9 * MS + 2_000)


@pytest.mark.parametrize(
    ("pacing", "text"),
    [
        (0, "in the queue of its device"),
        (1, "in the queue of its device"),
        (2, "in the queue of its device, which paces it"),
    ],
)
@BASES
def test_what_was_in_the_queue_of_its_device_is_told_from_what_tcp_kept(
    base: int, pacing: int, text: str
) -> None:
    """One packet in two segments waits in the queue, the next one in TCP first."""
    ledger = Ledger(base)
    ledger.send(2_000, 0, 3_000)
    ledger.queued(2_500, 0, 2_000)
    ledger.out(4 * MS, 0, 1_000, tid=OTHER)
    ledger.out(4 * MS + 500, 1_000, 1_000, tid=OTHER)
    ledger.acknowledged(6 * MS, 2_000, packets_out=CONGESTION, pacing=pacing)
    ledger.queued(6 * MS + 1_000, 2_000, 1_000, tid=OTHER)
    ledger.out(8 * MS, 2_000, 1_000, tid=IDLE)
    ledger.arrive(8 * MS + 500, 2_000, 1_000, upto=3_000)
    ledger.read(9 * MS, 3_000)
    found = ledger.carried()
    # Nothing had come that would say that the queue paces the first.
    first = "in the queue of its device"
    assert found is not None and found.held == (
        Held(2_500, 4 * MS, first),
        Held(4 * MS, 4 * MS + 500, first),
        Held(4 * MS + 500, 6 * MS + 1_000, "its congestion window was full"),
        Held(6 * MS + 1_000, 8 * MS, text),
    )


@BASES
def test_what_the_receiver_had_already_kept_nothing_when_it_was_sent_again(base: int) -> None:
    """A probe while the receiver's window is full."""
    ledger = Ledger(base)
    ledger.send(2_000, 0, 4_000)
    ledger.out(2_500, 0, 3_000)
    ledger.arrive(2_700, 0, 3_000, upto=3_000)
    ledger.out(3 * MS, 2_000, 1_000, tid=IDLE)
    ledger.arrive(3 * MS + 500, 2_000, 1_000)
    ledger.acknowledged(9 * MS, 3_000, snd_wnd=3_500)
    ledger.out(9 * MS + 1_000, 3_000, 1_000, tid=OTHER)
    ledger.arrive(9 * MS + 2_000, 3_000, 1_000, upto=4_000)
    ledger.read(9 * MS + 4_000, 4_000)
    found = ledger.carried()
    assert found is not None
    assert found.held == (Held(2_500, 9 * MS + 1_000, "the receiver's window was full"),)


@BASES
def test_a_thread_that_sends_on_what_it_left_in_the_queue(base: int) -> None:
    """It queued another segment meanwhile, so the first was not passed on at once."""
    ledger = Ledger(base)
    ledger.send(2_000, 0, 100)
    ledger.queued(2_500, 0, 100)
    ledger.queued(3 * MS, 100, 100)
    ledger.out(3 * MS + 500, 0, 100)
    ledger.out(3 * MS + 600, 100, 100)
    ledger.arrive(3 * MS + 700, 0, 100, upto=100)
    ledger.read(4 * MS, 100)
    found = ledger.carried(until=3 * MS - 1)
    assert found is not None
    assert found.held == (Held(2_500, 3 * MS + 500, "in the queue of its device"),)


@pytest.mark.parametrize(
    ("state", "name"),
    [(LOSS, "retransmission time-out"), (RECOVERY, "fast retransmission"), (0, "tail loss probe")],
)
@BASES
def test_a_segment_that_was_lost_is_sent_again(base: int, state: int, name: str) -> None:
    ledger = Ledger(base)
    ledger.send(2_000, 0, 100)
    ledger.out(3_000, 0, 100)
    ledger.resend(204 * MS + 3_500, 0, state)
    ledger.out(204 * MS + 3_000, 0, 100, tid=IDLE)
    ledger.arrive(205 * MS, 0, 100, upto=100)
    ledger.read(205 * MS + 9_000, 100)
    found = ledger.carried()
    assert found is not None
    assert found.held == (Held(3_000, 204 * MS + 3_000, f"sent again ({name})"),)
    assert (found.sent, found.came) == (204 * MS + 3_000, 205 * MS)


@BASES
def test_the_segments_of_a_message(base: int) -> None:
    """Two calls, a segment that has bytes of the message before, and one that is sent again."""
    ledger = Ledger(base)
    ledger.send(500, 0, 50)
    # A call that copies piece by piece.
    ledger.send(2_000, 50, 100)
    ledger.send(2_500, 90, 60)
    ledger.out(3_000, 0, 100)
    ledger.send(4_000, 150, 100)
    ledger.out(5_000, 100, 150)
    ledger.arrive(6_000, 100, 150)
    ledger.out(9_000, 0, 100, tid=IDLE)
    ledger.arrive(9_500, 0, 100, upto=250)
    # The next message.
    ledger.out(9_700, 250, 100)
    ledger.arrive(9_800, 250, 100, upto=350)
    ledger.read(8_000, 20)
    ledger.read(15_000, 180)
    ledger.read(20_000, 330)
    made = TcpLedger(ledger, 1, "_kernel")  # type: ignore[arg-type]
    found = made.carried(Hop(SENDER, RECEIVER, 1_000, 5_500, 500 * MS), made, packets=True)
    assert found is not None and found.traffic is not None
    assert found.traffic.listed() == (
        Packet(3_000, False, 0, 50, False),
        Packet(5_000, False, 50, 150, False),
        Packet(6_000, True, 50, 150, False),
        Packet(9_000, False, 0, 50, True),
        Packet(9_500, True, 0, 50, False),
    )
    assert found.traffic.calls == (
        Handed(2_000, False, 0, 100),
        Handed(4_000, False, 100, 100),
        Handed(15_000, True, 0, 130),
        Handed(20_000, True, 130, 70),
    )
    # The connection's first segment was not recorded.
    assert found.traffic.stream_place is None


@BASES
def test_messages_of_one_call_are_told_apart_by_the_kernels_events_of_them(base: int) -> None:
    """Three messages in a call, the last of which goes on in another one."""
    ledger = Ledger(base)
    lengths = (30, 1_000, 3_000)
    places = list(accumulate(lengths, initial=0))
    for number, count in enumerate(lengths):
        ledger.told(2_000 + number, places[number], count)
    ledger.send(2_100, 0, 2_000)
    ledger.send(9_000, 2_000, 2_030)
    ledger.out(3_000, 0, 1_000)
    ledger.out(3_100, 1_000, 1_000)
    ledger.out(9_500, 2_000, 2_030)
    ledger.arrive(4_000, 0, 1_000, upto=1_000)
    ledger.arrive(4_600, 1_000, 1_000, upto=2_000)
    ledger.arrive(10_000, 2_000, 2_030, upto=4_030)
    ledger.read(5_000, 30)
    ledger.read(6_000, 1_030)
    ledger.read(11_000, 4_030)
    made = TcpLedger(ledger, 1, "_kernel")  # type: ignore[arg-type]
    found = []
    for number, end in enumerate((5_000, 6_000, 11_000)):
        hop = Hop(SENDER, RECEIVER, 2_000 + number, 2_001 + number, end)
        carried = made.carried(hop, made, packets=True)
        assert carried is not None and carried.traffic is not None
        assert carried.marks[0].bytes == lengths[number]
        read = [(call.ts, call.bytes) for call in carried.traffic.calls if call.came]
        assert read == [(end, lengths[number])]
        written = [(call.ts, call.bytes) for call in carried.traffic.calls if not call.came]
        found.append((carried.given, carried.sent, carried.came, written))
    assert found == [
        (2_100, 3_000, 4_000, [(2_100, 30)]),
        (2_100, 3_100, 4_600, [(2_100, 1_000)]),
        (9_000, 9_500, 10_000, [(2_100, 970), (9_000, 2_030)]),
    ]


@pytest.mark.parametrize("base", [7, 2**32 - 2_000])
def test_the_place_of_a_message_in_its_stream(base: int) -> None:
    """In streams of more bytes than there are sequence numbers."""
    draw = random.Random(1)
    ledger = Ledger(base)
    # Port and addresses may have been another connection's before.
    ledger.out(100, 77_777, 0, flags=SYN)
    ledger.out(200, 77_778, 500)
    ledger.out(300, -1, 0, flags=SYN)
    place, at = 0, 1_000
    wanted = {}
    for number in range(60):
        # Most segments of a fast connection's are left out here.
        skipped, count = draw.randrange(100, 2**30), draw.randrange(1, 1_000)
        ledger.out(at, place, skipped, tid=OTHER)
        place += skipped
        wanted[at] = place
        ledger.send(at + 100, place, count)
        ledger.out(at + 200, place, count)
        ledger.arrive(at + 300, place, count, upto=place + count)
        ledger.read(at + 900, place + count)
        # Some earlier ones are sent again.
        if number % 3 == 0:
            ledger.out(at + 1_500, max(place - 700, 0), 100, tid=IDLE)
        place += count
        at += 2_000
    assert place > 3 * 2**32
    made = TcpLedger(ledger, 1, "_kernel")  # type: ignore[arg-type]
    for begin, expected in wanted.items():
        hop = Hop(SENDER, RECEIVER, begin, begin + 1_900, begin + 950)
        traffic = made.traffic(hop, made)
        assert traffic is not None and traffic.stream_place == expected


@BASES
@pytest.mark.parametrize(
    ("at_receiver", "reason", "said"),
    [
        (False, "QDISC_DROP", "; its host dropped it: the queue of its device had no room"),
        (True, "NETFILTER_DROP", "; the receiver's host dropped it: a rule of the firewall"),
        # It had the segment before.
        (True, "TCP_OLD_DATA", ""),
    ],
)
def test_who_dropped_what_is_sent_again(
    base: int, at_receiver: bool, reason: str, said: str
) -> None:
    ledger = Ledger(base)
    ledger.send(2_000, 0, 100)
    ledger.out(3_000, 0, 100)
    # Before it was sent, and of other bytes.
    ledger.drop(2_000, 0, 100, "SOCKET_FILTER")
    ledger.drop(4_000, 100, 100, "SOCKET_FILTER")
    ledger.drop(5_000, 0, 100, reason, at_receiver=at_receiver)
    ledger.resend(204 * MS + 3_500, 0, LOSS)
    ledger.out(204 * MS + 3_000, 0, 100, tid=IDLE)
    ledger.arrive(205 * MS, 0, 100, upto=100)
    ledger.read(205 * MS + 9_000, 100)
    found = ledger.carried()
    assert found is not None
    (held,) = found.held
    said += f" ({reason}, f)" if said else ""
    assert held.why == f"sent again (retransmission time-out){said}"


@BASES
def test_a_message_waits_behind_lost_bytes_of_an_earlier_one(base: int) -> None:
    ledger = Ledger(base)
    ledger.send(2_000, 0, 100)
    ledger.out(3_000, 0, 100)
    ledger.send(5 * MS, 100, 100)
    ledger.out(5 * MS + 1_000, 100, 100)
    ledger.arrive(5 * MS + 2_000, 100, 100)
    ledger.resend(30 * MS, 0, RECOVERY)
    ledger.out(30 * MS + 1_000, 0, 100, tid=OTHER)
    ledger.arrive(30 * MS + 2_000, 0, 100, upto=200)
    ledger.read(31 * MS, 200)
    found = ledger.carried(begin=4 * MS)
    assert found is not None
    assert [each.why for each in found.held] == [
        "behind bytes before it, which were sent again (fast retransmission)"
    ]


def test_the_bytes_of_the_next_message_are_not_this_ones() -> None:
    ledger = Ledger()
    ledger.send(2_000, 0, 100)
    ledger.out(3_000, 0, 100)
    ledger.arrive(4_000, 0, 100, upto=100)
    ledger.send(20_000, 100, 100)
    ledger.out(21_000, 100, 100)
    ledger.arrive(22_000, 100, 100, upto=200)
    ledger.read(30_000, 200)
    first = ledger.carried(until=19_000)
    assert first is not None and first.sent == 3_000
    second = ledger.carried(begin=19_000)
    assert second is not None and second.sent == 21_000


def test_what_others_sent_or_nobody_read_is_not_known() -> None:
    ledger = Ledger()
    assert ledger.carried() is None
    ledger.send(2_000, 0, 100, tid=OTHER)
    ledger.out(3_000, 0, 100)
    ledger.arrive(4_000, 0, 100, upto=100)
    ledger.read(9_000, 100)
    assert ledger.carried() is None
    ledger.send(2_000, 0, 100)
    assert ledger.carried() is not None
    assert ledger.carried(end=8_000) is None
    assert ledger.carried(begin=9_500) is None
    # Half of it: the receiver has not read all that was written.
    half = Ledger()
    half.send(2_000, 0, 100)
    half.out(3_000, 0, 100)
    half.arrive(4_000, 0, 50, upto=50)
    half.read(9_000, 50)
    assert half.carried() is None


def test_the_parts_of_a_held_message_add_up() -> None:
    """Whatever the clocks' error does to the order of what TCP did."""

    class Nothing:
        tables = ()

        def sleeps_after(self, tid: int, at: int) -> None:
            del tid, at

        woken_after = sleeps_after
        before = sleeps_after

        def lost(self, kind: str, start: int, end: int) -> bool:
            del kind, start, end
            return False

    scheduling: Scheduling = Nothing()  # type: ignore[assignment]
    for given, sent, came, ready in [
        (10, 40, 50, 60),
        (5, 200, 300, 400),
        (0, 0, 0, 0),
        (90, 8, 3, 1),
    ]:
        held = (Held(given, (given + sent) // 2, "why"), Held((given + sent) // 2, sent, "else"))
        last = Mark(TCP, 4000, 5000, 0, 1)
        carried = Carried("TCP", given, sent, OTHER, came, ready, held, last)
        parts = over_network(scheduling, SENDER, 10, carried, RECEIVER, 100, "the link")
        assert sum(part.end - part.start for part in parts) == 90
        ends = [10, *(part.end for part in parts)]
        assert [part.start for part in parts] == ends[:-1] and ends[-1] == 100
