"""When messages came to the sockets of programs that record it.

A program that has the kernel stamp what it receives (SO_TIMESTAMPNS) records `socket:came` after
the event of the message, in the same thread and with the same id: ``ago_ns`` before that event its
last packet came, give or take ``within_ns``. loopscope's programs do it where the kernel's events
are not recorded (`crates/workload/src/stamped.rs`).
"""

from __future__ import annotations

from bisect import bisect_left
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from loopscope.analysis.patterns import SLEW_PPM

if TYPE_CHECKING:
    from loopscope.timeline import Run

TABLE = "socket.came"
_COLUMNS = {"repeat", "host", "tid", "id", "ts", "ago_ns", "within_ns"}
_FOLLOWS_NS = 2_000
"""A program that does nothing in between records the stamp so soon after its event."""


class Came(NamedTuple):
    """By how much before its event a message came, and the maximum error of that, ns."""

    ago: int
    err: int


class SocketStamps:
    """The stamps of a run's messages."""

    def __init__(self, run: Run) -> None:
        """Raises `RunError` where the table cannot be read."""
        self._found: dict[tuple[int, str, int, Any], list[tuple[int, Came]]] = {}
        rows = run.relation(TABLE) if TABLE in run.tables else None
        # A program may have an event of this name that is none of these.
        if rows is None or not set(rows.columns) >= _COLUMNS:
            return
        names = "repeat, host, tid, id, ts, ago_ns::BIGINT, within_ns::BIGINT"
        for *of_event, ts, ago, within in rows.order("ts").project(names).fetchall():
            came = Came(ago, within + ceil(abs(ago) * SLEW_PPM / 1e6))
            self._found.setdefault(tuple(of_event), []).append((ts, came))

    def of(self, repeat: int, host: str, tid: int | None, id: Any, ts: int) -> Came | None:
        """The stamp of the message whose event a thread recorded at ``ts``; None: there is none."""
        found = [] if tid is None else self._found.get((repeat, host, tid, id), [])
        place = bisect_left(found, (ts,))
        if place == len(found):
            return None
        at, came = found[place]
        # What follows later may be of another message with the id, such as the answer to one that
        # was sent at the event. Such a one came after the event.
        return came if at - ts <= max(2 * came.err + _FOLLOWS_NS, came.ago) else None
