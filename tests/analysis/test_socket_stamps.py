"""The stamps of messages that their programs recorded, found again by the messages' events."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from loopscope.analysis.socket_stamps import Came, Left, SocketStamps

COMING = ("tid", "id", "ts", "ago_ns", "within_ns")
LEAVING = ("tid", "id", "after_ns", "within_ns", "ts", "since_ns")


class Recorded:
    """A run with a table of stamps of host h2."""

    def __init__(self, *rows: tuple[int, ...], names: tuple[str, ...], without: str) -> None:
        every = [{"repeat": 1, "host": "h2", **dict(zip(names, row, strict=True))} for row in rows]
        table = pa.Table.from_pylist(every)
        self._table = table.drop_columns([without]) if without else table
        self.tables = ["socket.came" if names == COMING else "socket.left"]

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        return duckdb.connect().from_arrow(self._table)


def stamps(
    *rows: tuple[int, ...], names: tuple[str, ...] = COMING, without: str = ""
) -> SocketStamps:
    run: Any = Recorded(*rows, names=names, without=without)
    return SocketStamps(run)


def test_an_event_has_the_stamp_that_follows_it_of_when_it_came() -> None:
    found = stamps((7, 1, 1_200, 900, 40), (7, 2, 5_100, 300, 20), (8, 1, 1_300, 10, 5))
    # The clock may have been slewed meanwhile, by 500 ppm.
    assert found.came(1, "h2", 7, 1, 1_000) == Came(900, 41)
    assert found.came(1, "h2", 7, 2, 5_000) == Came(300, 21)
    assert found.came(1, "h2", 8, 1, 1_000) == Came(10, 6)
    assert found.came(1, "h2", 7, 1, 1_000_000) is None
    for other in ((2, "h2", 7, 1), (1, "h1", 7, 1), (1, "h2", 9, 1), (1, "h2", 7, 3)):
        assert found.came(*other, 1_000) is None
    assert found.came(1, "h2", None, 1, 1_000) is None


def test_a_stamp_of_the_answer_is_not_the_requests() -> None:
    """A thread sends message 1 at 1 us, and has read its answer 20 us later."""
    for ago in (200, 15_000, 19_500):
        assert stamps((7, 1, 21_000, ago, 50)).came(1, "h2", 7, 1, 1_000) is None
    # A slow program that records the stamp 20 us after the event: the message had waited longer.
    assert stamps((7, 1, 21_000, 30_000, 50)).came(1, "h2", 7, 1, 1_000) == Came(30_000, 65)


@pytest.mark.parametrize("without", ["ago_ns", "within_ns", "id"])
def test_another_event_of_the_name_is_no_stamp(without: str) -> None:
    assert stamps((7, 1, 1_200, 900, 40), without=without).came(1, "h2", 7, 1, 1_000) is None


def test_an_event_has_the_stamps_of_when_it_left_however_late_they_are_recorded() -> None:
    """A program may see a stamp at its next message; it says how long the event is over then."""
    rows = (7, 1, 4_000, 40, 900_000, 899_000), (7, 2, 6_000, 20, 5_030_000, 10_000)
    found = stamps(*rows, names=LEAVING)
    # The clock may have been slewed meanwhile, by 500 ppm.
    assert found.left(1, "h2", 7, 1, 1_000, 400_000) == Left(4_000, 4_000, 42)
    assert found.left(1, "h2", 7, 2, 5_020_000, 5_027_000) == Left(6_000, 6_000, 23)
    # It was not received before it left.
    assert found.left(1, "h2", 7, 2, 5_020_000, 5_025_000) is None
    # What was recorded long after or before is of another message with the id.
    assert found.left(1, "h2", 7, 2, 1_000, 9_000_000) is None
    assert found.left(1, "h2", 7, 2, 8_000_000, 9_000_000) is None
    for other in ((2, "h2", 7, 1), (1, "h1", 7, 1), (1, "h2", 9, 1), (1, "h2", 7, 3)):
        assert found.left(*other, 1_000, 400_000) is None
    assert found.left(1, "h2", None, 1, 1_000, 400_000) is None


def test_of_several_receivers_it_is_not_known_whose_stamp_it_is() -> None:
    """Message 1 goes to three sockets, and again to one 5 ms later."""
    rows = [(7, 1, each, 30, 9_000 + each, 8_000 + each) for each in (2_000, 3_000, 4_500)]
    found = stamps(*rows, (7, 1, 2_500, 10, 5_004_000, 3_000), names=LEAVING)
    assert found.left(1, "h2", 7, 1, 1_000, 90_000) == Left(2_000, 4_500, 33)
    assert found.left(1, "h2", 7, 1, 1_000, 5_000) == Left(2_000, 3_000, 32)
    assert found.left(1, "h2", 7, 1, 5_001_000, 7_000_000) == Left(2_500, 2_500, 12)


@pytest.mark.parametrize("without", ["after_ns", "within_ns", "since_ns"])
def test_another_event_of_the_name_is_none_of_when_it_left(without: str) -> None:
    found = stamps((7, 1, 4_000, 40, 900_000, 899_000), names=LEAVING, without=without)
    assert found.left(1, "h2", 7, 1, 1_000, 400_000) is None
