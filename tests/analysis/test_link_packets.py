"""Packets on emulated links by their headers, against plain Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from links_run import segment, write_account, write_events
from synthetic_run import SECOND, Host, SyntheticRun

from loopscope.analysis.hop_decomposition import Passage
from loopscope.analysis.ledger import TCP, UDP, Carried, Mark
from loopscope.analysis.link_packets import LinkPackets, OnLink
from loopscope.timeline import open_run

NAMES = ["h1", "h2", "h3"]
LINK = ("h1", "h2")
ERR = 50
PORTS = (4000, 5000)
AGO = 300
"""How long after the kernel a router sees a packet, and after it has given it away."""


class Sent(NamedTuple):
    """A packet on a link, and what its headers say."""

    to: int
    came: int
    left: int | None
    protocol: int
    mark: int
    bytes: int
    ports: tuple[int, int] = PORTS
    fragment: int = 0


def packets_of(tmp_path: Path, sent: Sequence[Sent], *, headers: bool = True) -> LinkPackets:
    """Those of a run whose router told of some packets."""
    hosts = [Host(name, name == "h1", 0, 0.0) for name in (*NAMES, "_router")]
    root = SyntheticRun(tmp_path, [], hosts, []).write()
    write_account(root, NAMES, {(NAMES[0], to): [segment({}, 1)] for to in NAMES[1:]})
    passed = [
        (0, each.to, number, 7, each.came, [] if each.left is None else [each.left])
        for number, each in enumerate(sent)
    ]
    # With what the kernel may slew its clock meanwhile the error is ERR.
    write_events(root, passed, err=ERR - 1, ago=AGO)
    if headers:
        n = len(sent)
        columns = {
            "ts": pa.array([each.came for each in sent], pa.int64()),
            "err_ns": pa.array([ERR] * n, pa.int64()),
            "counter": pa.array([each.came for each in sent], pa.uint64()),
            "tid": pa.array([7] * n, pa.int64()),
            "id": pa.array(range(n), pa.int64()),
            "from": pa.array([0] * n, pa.uint16()),
            "to": pa.array([each.to for each in sent], pa.uint16()),
            "protocol": pa.array([each.protocol for each in sent], pa.uint8()),
            "source": pa.array([each.ports[0] for each in sent], pa.uint16()),
            "target": pa.array([each.ports[1] for each in sent], pa.uint16()),
            "mark": pa.array([each.mark for each in sent], pa.uint64()),
            "bytes": pa.array([each.bytes for each in sent], pa.uint32()),
            "fragment": pa.array([each.fragment for each in sent], pa.uint32()),
        }
        text = pa.dictionary(pa.int32(), pa.string())
        columns |= {
            name: pa.array([value] * n, text)
            for name, value in (("host", "_router"), ("process", "_links"))
        }
        folder = root / "base" / "1" / "timeline" / "link" / "packet"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
    return LinkPackets(open_run(root))


def passage(came: int, left: int, losses: int = 0) -> Passage:
    """The passage of a packet that the router sent on in time."""
    return Passage(LINK, came, left, 0, 7, losses, came + AGO, left + AGO)


def carried(last: Mark, *marks: Mark) -> Carried:
    """A message's way through the hosts' network code, of which the marks count here."""
    return Carried("TCP", 0, 0, 1, 0, 0, (), last, marks=marks)


@pytest.mark.parametrize("seed", range(5))
def test_every_packet_with_bytes_of_a_message_is_found(tmp_path: Path, seed: int) -> None:
    """A connection whose numbers wrap among others, with losses and what is sent again."""
    draw = random.Random(seed)
    base = 2**32 - 20_000
    sent = []
    at, upto = SECOND, 0
    for _ in range(300):
        at += draw.randrange(1_000, 50_000)
        count = draw.choice((0, 1, 700, 1448))
        first = draw.randrange(upto + 1) if draw.random() < 0.2 else upto
        upto = max(upto, first + count)
        left = None if draw.random() < 0.1 else at + draw.randrange(10_000, 900_000)
        sent.append(Sent(1, at, left, TCP, (base + first) % 2**32, count))
        if draw.random() < 0.3:
            # The same numbers to another host, on another port, or by UDP.
            more = ({"to": 2}, {"ports": (4001, 5000)}, {"protocol": UDP})
            sent.append(sent[-1]._replace(came=at + 10, **draw.choice(more)))
    own = [each for each in sent if (each.to, each.ports, each.protocol) == (1, PORTS, TCP)]
    packets = packets_of(tmp_path, sent)
    known = 0
    for _ in range(100):
        first = draw.randrange(upto)
        count = draw.randrange(1, 5_000)
        mark = Mark(TCP, *PORTS, (base + first) % 2**32, count, place=100)
        since, until = sorted(draw.randrange(SECOND, at) for _ in range(2))
        wanted = []
        for each in own:
            begin = (each.mark - base) % 2**32 - first
            least, most = max(begin, 0), min(begin + each.bytes, count)
            if least < most and since <= each.came <= until:
                wanted.append(OnLink(each.came, each.left, 100 + least, most - least))
        assert [*packets.listed(1, LINK, [mark], since, until)] == wanted
        # The way of the message is that of the last one that was through in time.
        last = mark._replace(mark=(mark.mark + count - 1) % 2**32, bytes=1)
        place = count - 1
        covering = [each for each in wanted if each.first <= 100 + place < each.first + each.bytes]
        through = [each for each in covering if each.left is not None and each.left - ERR <= until]
        found = packets.passage(1, LINK, carried(last, mark), since, until)
        if not through:
            assert found is None
            continue
        came, left = through[-1][:2]
        lost = sum(each.left is None and each.came <= came for each in wanted)
        assert left is not None
        assert found == passage(came, left, lost)
        known += 1
    assert known > 10


def test_a_datagram_is_known_by_its_content(tmp_path: Path) -> None:
    first = Sent(1, SECOND, SECOND + 500, UDP, 2**63 + 5, 100)
    other, again = first._replace(came=SECOND + 100, mark=6), first._replace(came=SECOND + 1_000)
    packets = packets_of(tmp_path, [first, other, again])
    mark = Mark(UDP, *PORTS, 5 - 2**63, 100)
    found = packets.passage(1, LINK, carried(mark), SECOND - 10, SECOND + 600)
    assert found == passage(SECOND, SECOND + 500)
    # Two that are the same leave open which one it was.
    assert packets.passage(1, LINK, carried(mark), SECOND - 10, SECOND + 9_000) is None
    for wrong in (mark._replace(bytes=99), mark._replace(mark=7), mark._replace(target=5001)):
        assert packets.passage(1, LINK, carried(wrong), SECOND - 10, SECOND + 600) is None
    assert packets.passage(2, LINK, carried(mark), SECOND - 10, SECOND + 600) is None
    assert packets.passage(1, ("h1", "h3"), carried(mark), SECOND - 10, SECOND + 600) is None


def test_the_fragment_that_comes_last_makes_a_datagram_whole(tmp_path: Path) -> None:
    number = 99 << 16
    sent = [
        Sent(1, SECOND, SECOND + 500, UDP, 5, 1472, fragment=number),
        Sent(1, SECOND + 10, None, UDP, 0, 1480, (0, 0), number + 1480),
        Sent(1, SECOND + 20, SECOND + 520, UDP, 0, 40, (0, 0), number + 2960),
        Sent(1, SECOND + 30, SECOND + 530, UDP, 0, 40, (0, 0), (98 << 16) + 2960),
    ]
    packets = packets_of(tmp_path, sent)
    mark = Mark(UDP, *PORTS, 5, 1472, 99, 200)
    assert [*packets.listed(1, LINK, [mark], SECOND, SECOND + 600)] == [
        OnLink(SECOND, SECOND + 500, 200, 1472),
        OnLink(SECOND + 10, None, 1672, 1480),
        OnLink(SECOND + 20, SECOND + 520, 3152, 40),
    ]
    found = packets.passage(1, LINK, carried(mark), SECOND, SECOND + 600)
    assert found == passage(SECOND + 20, SECOND + 520, losses=1)


def test_of_a_run_without_headers_nothing_is_known(tmp_path: Path) -> None:
    packets = packets_of(tmp_path, [Sent(1, SECOND, SECOND + 5, TCP, 5, 100)], headers=False)
    mark = Mark(TCP, *PORTS, 5, 100)
    assert packets.passage(1, LINK, carried(mark, mark), SECOND, SECOND + 600) is None
    assert not [*packets.listed(1, LINK, [mark], SECOND, SECOND + 600)]
