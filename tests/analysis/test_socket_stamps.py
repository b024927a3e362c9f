"""The stamps of messages that their programs recorded, found again by the messages' events."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from loopscope.analysis.socket_stamps import Came, SocketStamps

Row = tuple[int, int, int, int, int]
"""Thread, id, ts, ago and within, ns."""


class Recorded:
    """A run with a table of stamps of host h2."""

    def __init__(self, *rows: Row, without: str = "") -> None:
        names = ("tid", "id", "ts", "ago_ns", "within_ns")
        every = [{"repeat": 1, "host": "h2", **dict(zip(names, row, strict=True))} for row in rows]
        table = pa.Table.from_pylist(every)
        self._table = table.drop_columns([without]) if without else table
        self.tables = ["socket.came"]

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        return duckdb.connect().from_arrow(self._table)


def stamps(*rows: Row, without: str = "") -> SocketStamps:
    run: Any = Recorded(*rows, without=without)
    return SocketStamps(run)


def test_an_event_has_the_stamp_that_follows_it() -> None:
    found = stamps((7, 1, 1_200, 900, 40), (7, 2, 5_100, 300, 20), (8, 1, 1_300, 10, 5))
    # The clock may have been slewed meanwhile, by 500 ppm.
    assert found.of(1, "h2", 7, 1, 1_000) == Came(900, 41)
    assert found.of(1, "h2", 7, 2, 5_000) == Came(300, 21)
    assert found.of(1, "h2", 8, 1, 1_000) == Came(10, 6)
    assert found.of(1, "h2", 7, 1, 1_000_000) is None
    for other in ((2, "h2", 7, 1), (1, "h1", 7, 1), (1, "h2", 9, 1), (1, "h2", 7, 3)):
        assert found.of(*other, 1_000) is None
    assert found.of(1, "h2", None, 1, 1_000) is None


def test_a_stamp_of_the_answer_is_not_the_requests() -> None:
    """A thread sends message 1 at 1 us, and has read its answer 20 us later."""
    for ago in (200, 15_000, 19_500):
        assert stamps((7, 1, 21_000, ago, 50)).of(1, "h2", 7, 1, 1_000) is None
    # A slow program that records the stamp 20 us after the event: the message had waited longer.
    assert stamps((7, 1, 21_000, 30_000, 50)).of(1, "h2", 7, 1, 1_000) == Came(30_000, 65)


@pytest.mark.parametrize("without", ["ago_ns", "within_ns", "id"])
def test_another_event_of_the_name_is_no_stamp(without: str) -> None:
    assert stamps((7, 1, 1_200, 900, 40), without=without).of(1, "h2", 7, 1, 1_000) is None
