"""The times of packets against those of their messages, counted again in plain Python."""

from __future__ import annotations

import json
import random
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import SECOND, Host, Row, SyntheticRun, path
from test_ranking import kernel_table
from test_tcp_ledger import BASES
from test_tcp_ledger import Ledger as TcpEvents
from test_udp_ledger import FAR, NEAR, OTHER
from test_udp_ledger import Ledger as UdpEvents
from typer.testing import CliRunner

from loopscope.analysis.datagrams import between_hosts, datagrams, followed, pair
from loopscope.analysis.ledger import Hop, Packets, Traffic
from loopscope.analysis.messages import Messages, read_messages
from loopscope.analysis.recorded_kernels import NothingRecordedError
from loopscope.analysis.tcp_ledger import TcpLedger
from loopscope.cli import app
from loopscope.experiment import PathEdge, PathEvent
from loopscope.report.figure_source import FigureSource
from loopscope.report.samples import FigureError
from loopscope.timeline import open_run

SENDER, RECEIVER = 10, 20
US, MS = 1_000, 1_000_000
SIZE = 3_000
PER_MESSAGE = 6
"""Segments of 500 bytes."""

One = tuple[int, int, int]
"""A packet: time, place of its first byte, and after its last."""


def packets(rows: list[One]) -> Packets:
    columns = np.array(sorted(rows), np.int64).reshape(-1, 3).T
    return Packets(columns[0], np.full(len(rows), 7), columns[1], columns[2])


def by_bytes(left: list[One], came: list[One], apart: int) -> tuple[list[int], Counter[str]]:
    """The times of packets and the counts, by a look at each byte."""
    begins = {first for _, first, _ in left}
    times: list[int] = []
    counts: Counter[str] = Counter()
    had: set[int] = set()
    for ts, first, end in sorted(came):
        pieces: list[list[int]] = []
        for byte in range(first, end):
            if byte == first or byte in begins:
                pieces.append([])
            pieces[-1].append(byte)
        for piece in pieces:
            if piece[0] in had:
                counts["came_again"] += 1
            else:
                may = [at for at, a, b in left if a <= piece[0] < b and at <= ts + apart]
                counts["packets"] += 1
                counts["bytes"] += len(piece)
                counts["no_departure"] += not may
                counts["ambiguous"] += len(may) > 1
                times += [ts - may[0]] if len(may) == 1 else []
            had.update(piece)
    gone: set[int] = set()
    for _, first, end in sorted(left):
        counts["left_again"] += first in gone
        counts["no_arrival"] += first not in had
        gone.update(range(first, end))
    return times, +counts


PIECE = st.tuples(st.integers(0, 30), st.integers(0, 24), st.integers(1, 12))
SOME = st.lists(PIECE, max_size=8, unique_by=lambda each: each[0])


@settings(max_examples=500, deadline=None)
@given(SOME, SOME, st.integers(0, 5))
def test_the_pairs_are_those_that_a_look_at_each_byte_finds(
    left: list[One], came: list[One], apart: int
) -> None:
    of_left, of_came = ([(ts, a, a + n) for ts, a, n in rows] for rows in (left, came))
    found = pair(Traffic(packets(of_left), packets(of_came)), apart)
    times, counts = by_bytes(of_left, of_came, apart)
    assert found.length.tolist() == times
    assert +found.counts == counts
    assert (found.start_err + found.end_err).tolist() == [14] * len(times)


@BASES
def test_a_device_that_cuts_and_one_that_puts_together(base: int) -> None:
    """What is counted are the smaller packets, on either side; the one sent again has no time."""
    ledger = TcpEvents(base)
    ledger.send(2_000, 0, 500)
    ledger.out(3_000, 0, 200)
    ledger.out(3_100, 200, 100)
    ledger.out(3_200, 300, 100)
    ledger.out(3_300, 400, 100)
    ledger.arrive(5_000, 0, 100)
    ledger.arrive(5_200, 100, 100)
    ledger.arrive(6_000, 200, 200)
    ledger.out(7_000, 400, 100)
    ledger.arrive(8_000, 400, 100, upto=500)
    ledger.read(9_000, 500)
    made = TcpLedger(ledger, 1, "_kernel")  # type: ignore[arg-type]
    traffic = made.traffic(Hop(SENDER, RECEIVER, 1_000, None, 500 * MS), made)
    assert traffic is not None
    found = pair(traffic, 0)
    assert found.length.tolist() == [2_000, 2_200, 2_900, 2_800]
    assert found.counts == Counter(packets=5, bytes=500, left_again=1, ambiguous=1)
    # The last one comes before it is sent again.
    early = traffic._replace(came=traffic.came._replace(ts=traffic.came.ts - 2_500))
    assert pair(early, 600).length.tolist() == [-500, -300, 400, 300, 2_200]
    # Where the clocks cannot be so far apart, what came before it left is something else.
    assert pair(early, 200).counts["no_departure"] == 2


def test_bytes_of_the_next_message_do_not_count() -> None:
    ledger = TcpEvents()
    ledger.send(2_000, 0, 100)
    ledger.send(2_500, 100, 50)
    ledger.out(3_000, 0, 150)
    ledger.arrive(4_000, 0, 150, upto=150)
    ledger.read(5_000, 150)
    made = TcpLedger(ledger, 1, "_kernel")  # type: ignore[arg-type]
    traffic = made.traffic(Hop(SENDER, RECEIVER, 1_000, 2_400, 50_000), made)
    assert traffic is not None
    assert pair(traffic, 0).counts == Counter(packets=1, bytes=100)


def test_all_datagrams_of_a_message_count_and_the_one_that_was_lost() -> None:
    ledger = UdpEvents()
    for number in range(4):
        ledger.sent(2_000 + 1_000 * number, number)
        if number != 1:
            ledger.arrived(20_000 + 1_500 * number, number)
            ledger.read(30_000 + 1_000 * number)
    # It goes elsewhere, and the next message.
    ledger.sent(6_500, 9, target="10.77.0.3:5000")
    ledger.sent(60_000, 10)
    made = ledger.made()
    traffic = made.traffic(Hop(SENDER, RECEIVER, 1_000, 59_000, 50_000), made)
    assert traffic is not None
    assert traffic.left.first.tolist() == [0, 100, 200, 300]
    found = pair(traffic, 0)
    assert found.length.tolist() == [17_500, 18_500, 19_000]
    assert found.counts == Counter(packets=3, bytes=300, no_arrival=1)
    # It is not known which of two that are the same it was.
    ledger.sent(5_700, 2)
    twice = ledger.made()
    assert twice.traffic(Hop(SENDER, RECEIVER, 1_000, 59_000, 50_000), twice) is None


def test_a_fragment_that_overtakes_another_one() -> None:
    ledger = UdpEvents()
    parts: list[dict[str, Any]] = [
        {"bytes": 1_472, "fragments_follow": 1},
        {"bytes": 28, "fragment_offset": 1_480, "source": "10.77.0.1:0", "target": "10.77.0.2:0"},
    ]
    parts = [{"length": 1_500, "fragment_id": 9} | part for part in parts]
    for number, part in enumerate(parts):
        ledger.packet("datagram_queued", 2_000 + number, SENDER, NEAR, 7, **part)
        ledger.packet("datagram_out", 2_100 + number, SENDER, NEAR, 7, **part)
        ledger.packet("datagram_in", 4_000 - 500 * number, OTHER, FAR, 7, **part)
    ledger.ready(4_100)
    ledger.read(9_000)
    made = ledger.made()
    traffic = made.traffic(Hop(SENDER, RECEIVER, 1_000, None, 50_000), made)
    assert traffic is not None
    found = pair(traffic, 0)
    assert found.length.tolist() == [3_500 - 2_101, 4_000 - 2_100]
    assert found.counts == Counter(packets=2, bytes=1_500)


class Planted:
    """A run with messages over TCP, and the times that were planted.

    The two hosts have one kernel or two.
    """

    def __init__(
        self, root: Path, messages: int = 20, *, kernels: int = 1, branches: bool = False
    ) -> None:
        chance = random.Random(5)
        self.packets: list[int] = []
        self.messages: list[int] = []
        self.again = self.ambiguous = 0
        rows: list[Row] = []
        tables: dict[str, list[dict[str, Any]]] = {}

        def add(table: str, ts: int, tid: int, far: bool, **fields: Any) -> None:
            ends = ("10.77.0.1:4000", "10.77.0.2:5000")
            names = ("source", "target")
            if table.startswith("tcp"):
                names, ends = ("local", "remote"), ends[::-1] if far else ends
            common = {"ts": ts, "counter": ts, "tid": tid, "netns": 1 + far, "err_ns": 40}
            common["host"] = "_kernel" if kernels == 1 else f"h{1 + far}"
            tables.setdefault(table, []).append(
                common | dict(zip(names, ends, strict=True)) | fields
            )

        for number in range(messages):
            at, seq = 5 * SECOND + 50 * MS * number, SIZE * number
            rows.append(Row("source", "msg:sent", number, at, 5 * US, thread=SENDER))
            add("tcp_send", at + 10 * US, SENDER, False, seq=seq, bytes=SIZE)
            last = 0
            for place in range(PER_MESSAGE):
                segment = {"seq": seq + 500 * place, "bytes": 500, "tcp_flags": 0}
                left = at + (20 + 100 * place) * US
                came = max(left + 2 * MS + chance.randrange(100 * US), last + 1)
                add("segment_out", left, SENDER, False, **segment)
                # One is sent again before it came, another one just after.
                before, after = number % 5 == 3 and place == 2, number % 5 == 1 and place == 4
                if before or after:
                    again = left + 5 * US if before else came + US
                    add("segment_out", again, SENDER, False, **segment)
                    self.again += 1
                # The clocks of two kernels leave open whether the other one came.
                if before or (after and kernels == 2):
                    self.ambiguous += 1
                else:
                    self.packets.append(came - left)
                add("segment_in", came, 0, True, **segment)
                last = came
            add("tcp_ready", last + US, 0, True, rcv_nxt=seq + SIZE)
            add("tcp_read", last + 30 * US, RECEIVER, True, copied_seq=seq + SIZE)
            end = last + chance.randrange(40 * US, 900 * US)
            received = Row("sink", "msg:received", number, end, 5 * US, "h2", thread=RECEIVER)
            rows.append(received)
            self.messages.append(end - at)
        # The sender knows nothing of the last message's thread, and one is lost.
        rows[-2] = Row("source", "msg:sent", messages - 1, rows[-2].ts, thread=99)
        self.messages.pop()
        self.packets = self.packets[:-PER_MESSAGE]
        rows.append(Row("source", "msg:sent", messages, 8 * SECOND, thread=SENDER))
        state = ("snd_una", "snd_wnd", "snd_cwnd", "packets_out", "sacked_out", "mss", "nagle_off")
        add("tcp_receive", SECOND, 0, False, ack=0, **dict.fromkeys(state, 0))
        tables["tcp_receive"][0] |= {"congestion_state": 0, "pacing": 0}
        events = (
            PathEvent("source", "h1", "msg", "sent"),
            PathEvent("sink", "h2", "msg", "received"),
        )
        hosts = [Host("h1", reference=True, max_err_ns=0), Host("h2", max_err_ns=100)]
        hosts.append(Host("_kernel", drift_ppm=0.0, apart_ns=55))
        of_list = path("msg", "id", events)
        of_edges = replace(of_list, keys=("id", "id"), edges=(PathEdge(0, 1, "key", "id"),))
        paths = [of_edges if branches else of_list]
        self.run = SyntheticRun(root, rows, hosts, paths=paths).write()
        folder = self.run / "base/1/timeline/kernel"
        names = {"prev_comm": "a", "next_comm": "b", "prev_state": 0, "prev_tid": 0, "cpu": 0}
        waking = {"ts": 0, "counter": 0, "common_flags": 0, "cpu": 0, "tid": 0, "task": 1}
        of_all = {"_kernel"} if kernels == 1 else {"h1", "h2"}
        switches = [
            {"host": host, "ts": ts, "counter": ts, "tid": 0, "next_tid": 1, **names}
            for host in of_all
            for ts in (0, 9 * SECOND)
        ]
        kernel_table(folder, "sched_switch", switches)
        kernel_table(folder, "sched_waking", [{"host": host, **waking} for host in of_all])
        for name, of in tables.items():
            kernel_table(folder, name, of)

    @property
    def read(self) -> Messages:
        run = open_run(self.run)
        assert run.specification is not None
        return read_messages(run, run.specification.paths[0])[0]


@pytest.mark.parametrize("kernels", [1, 2])
def test_mean_and_deviation_are_those_that_were_planted(tmp_path: Path, kernels: int) -> None:
    planted = Planted(tmp_path / "run", kernels=kernels)
    found = datagrams(open_run(planted.run), planted.read)
    (hop,) = found.hops
    assert hop.packets.count == len(planted.packets) == 19 * PER_MESSAGE - planted.ambiguous
    for of, times in ((hop.packets, planted.packets), (hop.messages, planted.messages)):
        assert of.mean_ns == pytest.approx(statistics.fmean(times), abs=0.06)
        assert of.deviation_ns == pytest.approx(statistics.pstdev(times), abs=0.06)
    assert hop.ratio == pytest.approx(
        statistics.fmean(planted.packets) / statistics.fmean(planted.messages)
    )
    assert (hop.sent, hop.received, hop.messages.count, found.loop.count) == (21, 20, 19, 20)
    assert hop.not_followed == {"its packets are not known": 1}
    assert (hop.left_again, hop.ambiguous) == (8, 4 * kernels)
    assert (planted.again, planted.ambiguous) == (8, 4 * kernels)
    assert hop.bytes == 19 * SIZE
    assert hop.packets_per_message == PER_MESSAGE
    assert hop.packets.count + hop.ambiguous + hop.no_departure == 19 * PER_MESSAGE
    # Each stamp is known to within 40 ns. Two of one kernel are as far apart as its counters.
    assert hop.packets.mean_err_ns == {1: 55 + 1, 2: 40 + 40}[kernels]
    assert hop.messages.mean_err_ns == 10 * US
    assert (hop.no_arrival, hop.no_departure, hop.came_again) == (0, 0, 0)


def test_each_packet_has_its_message(tmp_path: Path) -> None:
    planted = Planted(tmp_path / "run")
    messages = planted.read
    (hop,) = between_hosts(messages.path)
    found = followed(open_run(planted.run), messages, hop)
    assert found.packets.length.tolist() == planted.packets
    own = Counter(found.packets.id.tolist())
    assert own == {number: PER_MESSAGE - (number % 5 == 3) for number in range(19)}
    assert list(found.not_followed) == [19]


@pytest.mark.parametrize("branches", [False, True])
def test_figures_and_why_have_the_same_packets(tmp_path: Path, branches: bool) -> None:
    planted = Planted(tmp_path / "run", branches=branches)
    source = FigureSource(planted.run)
    assert "msg.packets" in source.subjects
    sampled = source.samples("msg[source/msg:sent -> sink/msg:received].packets")
    assert sampled.table["value"].to_pylist() == planted.packets
    assert {name: len(each) for name, each in sampled.without.items()} == {"without packets": 1}
    with pytest.raises(FigureError, match=r"a hop between two hosts; there is: msg\.packets"):
        source.samples("msg[sink/msg:received -> source/msg:sent].packets")
    done = CliRunner().invoke(app, ["why", str(planted.run), "--datagrams", "--json"])
    (hop,) = json.loads(done.stdout)["hops"]
    assert hop["packets"]["mean_ns"] == pytest.approx(statistics.fmean(planted.packets), abs=0.06)


def test_a_run_without_packets_says_what_to_record(tmp_path: Path) -> None:
    planted = Planted(tmp_path / "run", messages=3)
    words = ["why", str(planted.run), "--datagrams"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["point"], document["path"], document["error"]) == ("base", "msg", None)
    assert document["hops"][0]["packets"]["count"] == 2 * PER_MESSAGE
    assert "packet / message" in CliRunner().invoke(app, words).stdout
    assert CliRunner().invoke(app, [*words, "--rank"]).exit_code == 2
    table = planted.run / "base/1/timeline/kernel/segment_out"
    for file in table.iterdir():
        file.unlink()
    table.rmdir()
    with pytest.raises(NothingRecordedError):
        datagrams(open_run(planted.run), planted.read)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "record both with `kernel: [sched:*, tcp:*]`" in done.output
