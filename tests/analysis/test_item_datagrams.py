"""The records of a channel's datagrams, as they are found for an item."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from synthetic_run import Row, SyntheticRun
from test_remote_items import FRAMES

from loopscope.analysis.item_datagrams import ItemDatagrams
from loopscope.analysis.ledger import Sending
from loopscope.analysis.places import Place
from loopscope.analysis.scheduling import Scheduling
from loopscope.experiment import Experiment, PathEvent
from loopscope.timeline import open_run

SENT = PathEvent("_channels-h1", "h1", "frames", "sent")
RECEIVED = PathEvent("_channels-h2", "h2", "frames", "received")
GOT = PathEvent("tracker", "h2", "frames", "got")


@dataclasses.dataclass
class OneChannel(SyntheticRun):
    lifespan: int | None = None

    def experiment(self) -> Experiment:
        channel = dataclasses.replace(FRAMES, lifespan=self.lifespan)
        return dataclasses.replace(super().experiment(), channels=(channel,))


class Kernel:
    """Its clock is 5 ns ahead of the counter's."""

    def times_of(self, counters: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return counters + 5


def row(item: int, ts: int, part: int, thread: int = 11, repeat: int = 1) -> Row:
    own = (("part", part), ("parts", 2), ("bytes", 1448 - 500 * part))
    return Row(
        "_channels-h1", "frames:datagram", item, ts, repeat=repeat, fields=own, thread=thread
    )


def sendings(
    root: Path, rows: list[Row], item: int, hop: tuple[PathEvent, PathEvent], **options: Any
) -> tuple[Sending, ...] | None:
    """Those of an item in the first repeat, with instants of the counter."""
    # A channel's events are there, if none of its datagrams.
    others = [Row("_channels-h1", "frames:sent", item, 1, fields=(("bytes", 8),), thread=11)]
    run = open_run(OneChannel(root, [*others, *rows], **options).write())
    kernel = cast("Scheduling", Kernel())
    return ItemDatagrams(run).of(hop, 1, Place("h1", 11, 0, None, item), kernel)


ROWS = [
    row(5, 1_000, 0),
    row(6, 2_000, 0),
    row(5, 3_000, 1, thread=12),
    row(5, 4_000, 1),
    row(5, 5_000, 0, thread=12),
]


def test_an_items_datagrams_are_those_of_all_threads_by_time(tmp_path: Path) -> None:
    second = [row(5, 1_500, 0, repeat=2)]
    found = sendings(tmp_path, [*ROWS, *second], 5, (SENT, RECEIVED), repeats=2)
    assert found is not None
    start = found[0].at - 1_000
    places = [(each.tid, each.at - start, each.until and each.until - start) for each in found]
    # Each thread's next one, of whatever item.
    assert places == [
        (11, 1_000, 2_000), (12, 3_000, 5_000), (11, 4_000, None), (12, 5_000, None),
    ]  # fmt: skip
    parts = [(each.part, each.parts, each.bytes) for each in found]
    assert parts == [(0, 2, 1448), (1, 2, 948), (1, 2, 948), (0, 2, 1448)]


def test_only_items_on_their_way_between_services_have_datagrams(tmp_path: Path) -> None:
    for place, hop in enumerate(((SENT, GOT), (RECEIVED, GOT))):
        assert sendings(tmp_path / str(place), ROWS, 5, hop) is None


def test_where_a_record_is_missing_no_datagram_is_known(tmp_path: Path) -> None:
    drops = {("_channels-h1", "frames:datagram"): 1}
    assert sendings(tmp_path, ROWS, 5, (SENT, RECEIVED), drops=drops) == ()


@pytest.mark.parametrize(("lifespan", "expected"), [(None, None), (10**8, ())])
def test_what_was_not_recorded_of_a_channel_with_a_lifespan_is_not_known(
    tmp_path: Path, lifespan: int | None, expected: tuple[Sending, ...] | None
) -> None:
    """Items of other channels go over TCP, which has no such records."""
    assert sendings(tmp_path, [], 5, (SENT, RECEIVED), lifespan=lifespan) == expected
