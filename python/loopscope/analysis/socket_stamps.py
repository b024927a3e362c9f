"""When messages left the sockets of programs that record it, and came to them.

A program that has the kernel stamp what it receives (SO_TIMESTAMPNS) records `socket:came` after
the event of the message, in the same thread and with the same id: ``ago_ns`` before that event its
last packet came, give or take ``within_ns``. One that has it stamp what it sends (SO_TIMESTAMPING)
records `socket:left` about ``since_ns`` after that event: ``after_ns`` after it the last packet was
handed to a device. loopscope's programs do it where the kernel's events are not recorded
(`crates/workload/src/stamped.rs`, `departures.rs`).
"""

from __future__ import annotations

from bisect import bisect_left
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from loopscope.analysis.patterns import SLEW_PPM

if TYPE_CHECKING:
    from loopscope.timeline import Run

CAME, LEFT = "socket.came", "socket.left"
_FOLLOWS_NS = 2_000
"""A program that does nothing in between records the stamp so soon after its event."""
_SINCE_NS = 1_000_000
"""How long a program may be kept between reading ``since_ns`` and recording it, and by how much the
kernel may slew its clock in that time: in 2 s."""


class Came(NamedTuple):
    """By how much before its event a message came, and the maximum error of that, ns."""

    ago: int
    err: int


class Left(NamedTuple):
    """By how much after its event a message left, by its stamps, and the maximum error, ns.

    One that went to several sockets has a stamp of each: the receiver's is one of them.
    """

    least: int
    most: int
    err: int


_Stamp = tuple[int, int, int]
"""When the event of `socket:left`, or the record of `socket:came`, was recorded; how far the stamp
is from the message's event; and the maximum error of that, ns."""
_OfEvent = tuple[int, str, int, Any]
"""Repeat, host, thread and id."""


class SocketStamps:
    """The stamps of a run's messages."""

    def __init__(self, run: Run) -> None:
        """Raises `RunError` where a table cannot be read."""
        self._came = _read(run, CAME, "ago_ns", "ts")
        self._left = _read(run, LEFT, "after_ns", "ts - since_ns")

    def came(self, repeat: int, host: str, tid: int | None, id: Any, ts: int) -> Came | None:
        """The stamp of the message whose event a thread recorded at ``ts``; None: there is none."""
        found = [] if tid is None else self._came.get((repeat, host, tid, id), [])
        place = bisect_left(found, (ts,))
        if place == len(found):
            return None
        at, *stamp = found[place]
        came = Came(*stamp)
        # What follows later may be of another message with the id, such as the answer to one that
        # was sent at the event. Such a one came after the event.
        return came if at - ts <= max(2 * came.err + _FOLLOWS_NS, came.ago) else None

    def left(
        self, repeat: int, host: str, tid: int | None, id: Any, ts: int, end: int
    ) -> Left | None:
        """The stamps of the message whose event a thread recorded at ``ts``; None: there are none.

        Those alone of when it may have left to be received at ``end``.
        """
        found = [] if tid is None else self._left.get((repeat, host, tid, id), [])
        after = [
            (after, err)
            for at, after, err in found
            if abs(at - ts) <= err + _SINCE_NS and -err <= after <= end - ts + err
        ]
        if not after:
            return None
        least, most = min(after), max(after)
        return Left(least[0], most[0], max(err for _, err in after))


def _read(run: Run, table: str, field: str, at: str) -> dict[_OfEvent, list[_Stamp]]:
    """The stamps of a table by their events, in the order in which they were recorded."""
    stamps: dict[_OfEvent, list[_Stamp]] = {}
    rows = run.relation(table) if table in run.tables else None
    # A program may have an event of this name that is none of these.
    columns = {"repeat", "host", "tid", "id", "ts", field, "within_ns", *at.split(" - ")}
    if rows is None or not set(rows.columns) >= columns:
        return stamps
    names = f"repeat, host, tid, id, ({at})::BIGINT, {field}::BIGINT, within_ns::BIGINT"
    for repeat, host, tid, id, when, away, within in rows.order("ts").project(names).fetchall():
        err = within + ceil(abs(away) * SLEW_PPM / 1e6)
        stamps.setdefault((repeat, host, tid, id), []).append((when, away, err))
    return stamps
