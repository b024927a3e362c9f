"""The datagrams that carry items of channels between hosts, as their services record them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.ledger import Sending
from loopscope.analysis.missing_events import missing_events
from loopscope.timeline.relation import literal

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.places import Place
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.experiment.measures import PathEvent
    from loopscope.timeline import Run

_EVENT = "datagram"
_NONE = -1


class _Recorded(NamedTuple):
    """What a service recorded of a channel in a repeat: a row for each datagram, by item."""

    id: npt.NDArray[np.int64]
    columns: tuple[list[int], ...]
    """``tid``, when it was sent, when the thread's next one was, ``part``, ``parts``, ``bytes``."""


class ItemDatagrams:
    """Those of a run, each table read once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        experiment = run.specification
        channels = () if experiment is None else experiment.channels
        self._channels = {each.name for each in channels if each.lifespan is not None}
        self._read: dict[tuple[int, str, str], _Recorded | None] = {}

    def of(
        self,
        hop: tuple[PathEvent, PathEvent],
        repeat: int,
        place: Place,
        kernel: Scheduling,
    ) -> tuple[Sending, ...] | None:
        """The datagrams of an item on a hop that begins at a place; see `Hop.sendings`.

        They are not known where records of datagrams are missing.
        """
        first, last = hop
        entities = (first.group, "sent"), (first.group, "received")
        if tuple((each.group, each.name) for each in hop) != entities:
            return None
        table = f"{first.group}.{_EVENT}"
        if table not in self._run.tables:
            return () if first.group in self._channels else None
        key = repeat, first.component, first.group
        if key not in self._read:
            self._read[key] = self._recorded(*key, kernel)
        recorded = self._read[key]
        if recorded is None:
            return ()
        rows = slice(
            int(recorded.id.searchsorted(place.id, side="left")),
            int(recorded.id.searchsorted(place.id, side="right")),
        )
        of_item = zip(*(column[rows] for column in recorded.columns), strict=True)
        return tuple(
            Sending(tid, at, None if until == _NONE else until, *part)
            for tid, at, until, *part in of_item
        )

    def _recorded(
        self, repeat: int, component: str, group: str, kernel: Scheduling
    ) -> _Recorded | None:
        if missing_events(self._run, component, f"{group}:{_EVENT}"):
            return None
        after = "lead(counter) OVER (PARTITION BY tid ORDER BY counter)"
        names = ("id", "tid", "counter", "after", "part", "parts", "bytes")
        rows = self._run.relation(f"{group}.{_EVENT}").filter(
            f"repeat = {repeat} AND process = {literal(component)}"
        )
        found = rows.project(
            f"id, tid, counter, coalesce({after}, {_NONE}) AS after, part, parts, bytes"
        )
        table = found.order("id, counter").to_arrow_table()
        id, tid, counter, until, *parts = (
            table[name].to_numpy().astype(np.int64) for name in names
        )
        times = np.where(until == _NONE, _NONE, kernel.times_of(until))
        columns = (tid, kernel.times_of(counter), times, *parts)
        return _Recorded(id, tuple(column.tolist() for column in columns))
