"""What counts of connections say of an interval."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from loopscope.analysis.counted_tcp import Connections, Kept

MS = 1_000_000
SENDER, RECEIVER, OTHER = 10, 20, 30
NEAR, FAR = "10.77.0.1:4000", "10.77.0.2:5000"


class Kernel:
    """Looks at connections, as a run offers them."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.tables = ["kernel.tcp_info"]
        self._con = duckdb.connect()
        self._table = pa.Table.from_pylist(list(rows))

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        assert name in self.tables
        return self._con.from_arrow(self._table)


def look(at_ms: float, local: str = NEAR, remote: str = FAR, **counts: int) -> dict[str, Any]:
    of = {"root": SENDER if local.startswith("10.77.0.1:") else RECEIVER, "took_ns": 1_000}
    zero = {
        "total_retrans": 0,
        "rwnd_limited_us": 0,
        "busy_us": 2_000,
        "bytes_acked": 0,
        "packets_out": 0,
        "rtt_us": 20_000,
    }
    ts = round(at_ms * MS)
    common = {"repeat": 1, "host": "h", "ts": ts, "counter": ts, "local": local, "remote": remote}
    return common | of | zero | counts


def kept(*rows: dict[str, Any], begin_ms: float = 100, end_ms: float = 400) -> Kept | None:
    run: Any = Kernel(*rows)
    far: Any = Kernel(look(0, FAR, NEAR), look(0, "10.77.0.2:5001", "10.77.0.1:4001"))
    near, there = Connections(run, 1, "h"), Connections(far, 1, "h")
    return near.kept(SENDER, there, RECEIVER, round(begin_ms * MS), round(end_ms * MS))


def test_a_full_window_counts_as_far_as_it_was_surely_in_the_interval() -> None:
    looks = [look(at, rwnd_limited_us=1_000 * max(0, at - 90)) for at in range(90, 300, 10)]
    # One tick, of 2 ms, may be too much.
    full = "the receiver's window was full"
    assert kept(*looks) == Kept(188 * MS, full)
    assert kept(*looks, begin_ms=105, end_ms=205) == Kept(88 * MS, full)
    # There is nothing between two looks.
    assert kept(*looks, begin_ms=101, end_ms=111) is None


def test_what_was_sent_again_was_kept_since_nothing_was_acknowledged() -> None:
    looks = [
        look(50, bytes_acked=1_000),
        look(110, bytes_acked=1_000, packets_out=1),
        look(300, bytes_acked=1_000, packets_out=1),
        look(310, bytes_acked=1_000, packets_out=1, total_retrans=1),
        look(320, bytes_acked=1_000, packets_out=1, total_retrans=1),
        look(330, bytes_acked=2_000, total_retrans=1),
    ]
    assert kept(*looks) == Kept(210 * MS - 1_000, "sent again")
    # It was not: an acknowledgement is late.
    for row in looks:
        row["total_retrans"] = 0
    assert kept(*looks) is None


def test_what_is_sent_again_and_acknowledged_between_two_looks_was_kept() -> None:
    def looks(rtt_us: int, **last: int) -> list[dict[str, Any]]:
        before = {"bytes_acked": 1_000, "packets_out": 1, "rtt_us": rtt_us}
        return [*(look(at, **before) for at in (110, 200, 300)), look(330, rtt_us=rtt_us, **last)]

    after = {"bytes_acked": 2_000, "total_retrans": 1}
    assert kept(*looks(20_000, **after)) == Kept(190 * MS - 1_000, "sent again")
    # More was sent at once.
    again = Kept(190 * MS - 1_000, "sent again")
    assert kept(*looks(20_000, **after, packets_out=3)) == again
    # The way takes that long.
    assert kept(*looks(100_000, **after)) is None
    assert kept(*looks(20_000, bytes_acked=2_000)) is None


def test_the_look_after_the_message_has_come_may_be_the_first_that_tells_of_it() -> None:
    looks = [
        look(50, bytes_acked=1_000),
        look(110, bytes_acked=1_000, packets_out=1),
        look(310, bytes_acked=1_000, packets_out=1),
        look(320, bytes_acked=1_000, packets_out=1, total_retrans=1),
        look(330, bytes_acked=2_000, total_retrans=1),
    ]
    assert kept(*looks, end_ms=315) == Kept(200 * MS - 1_000, "sent again")
    # Both at once.
    assert kept(*looks[:3], looks[4], end_ms=315) == Kept(200 * MS - 1_000, "sent again")
    # By then nothing was under way, or the way takes that long.
    assert kept(*looks[:2], look(310, bytes_acked=2_000), *looks[3:], end_ms=315) is None
    looks[2]["rtt_us"] = 150_000
    assert kept(*looks, end_ms=315) is None


def test_what_is_acknowledged_meanwhile_is_not_kept() -> None:
    looks = [
        look(at, bytes_acked=at, packets_out=5, total_retrans=at // 100) for at in range(0, 400, 10)
    ]
    assert kept(*looks) is None


def test_of_several_connections_it_is_not_known_which() -> None:
    full = [look(at, rwnd_limited_us=1_000 * at) for at in (110, 200)]
    assert kept(*full) is not None
    second = [look(at, "10.77.0.1:4001", "10.77.0.2:5001") for at in (110, 200)]
    assert kept(*full, *second) is None
    # One to another program is none of them.
    other = [look(at, "10.77.0.1:4002", "10.77.0.2:5002") for at in (110, 200)]
    assert kept(*full, *other) is not None
    assert kept(look(0)) is None
