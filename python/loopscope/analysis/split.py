"""Where a hop's time goes: before the emulated link, on it, after it.

The router's events carry the message's number and the link, so each message of a hop is looked for
among the packets that its link carried while the message was on its way. Where there are several,
none is taken: other programs number their messages too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import ibis
import numpy as np
import pyarrow as pa

from loopscope.analysis.links import ROUTER, ports
from loopscope.analysis.patterns import SLEW_PPM
from loopscope.analysis.results import SPLIT_TIMES, LinkResult, PartResult, SplitResult
from loopscope.analysis.statistic import Sample

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.messages import Messages
    from loopscope.analysis.statistic import Bracket, Nanoseconds
    from loopscope.timeline import Run

ENQUEUED, DEPARTED = "link.enqueued", "link.departed"
KEY = "id"
"""The field by which the router's events and a program's are of one message."""


class LinkEvents:
    """What the router told of packets."""

    def __init__(self, run: Run, links: Sequence[LinkResult]) -> None:
        self._links = {(each.sender, each.receiver) for each in links}
        self._packets: ibis.Table | None = None
        if self._links and ENQUEUED in run.tables and DEPARTED in run.tables:
            self._packets = _packets(run)
            rows = run.hosts.select("repeat", "host", "drift_ppm").to_pyarrow().to_pylist()
            self._drift = {row["repeat"]: row["drift_ppm"] for row in rows if row["host"] == ROUTER}

    def splits(self, messages: Messages, first: int, last: int) -> tuple[SplitResult, ...]:
        """Of the messages between two events, for each emulated link that they went over."""
        if self._packets is None or messages.path.key != KEY:
            return ()
        both = messages.seen[first] & messages.seen[last]
        found = []
        for link in sorted(self._links):
            rows = (messages.on(first, link[0]) & messages.on(last, link[1]))[both]
            if rows.any():
                found.append(self._split(messages, first, last, link, rows))
        return tuple(found)

    def _split(
        self,
        messages: Messages,
        first: int,
        last: int,
        link: tuple[str, str],
        rows: npt.NDArray[np.bool_],
    ) -> SplitResult:
        """`rows` are those of the messages at both ends that went over this link."""
        both = messages.seen[first] & messages.seen[last]
        intervals = messages.intervals(first, last)
        start, end = messages.ts[first][both][rows], messages.ts[last][both][rows]
        start_err, end_err = messages.err[first][both][rows], messages.err[last][both][rows]
        length, repeat = intervals.length[rows], intervals.repeat[rows]
        hop = {"row": np.arange(len(length)), "repeat": repeat, "id": intervals.id[rows]}
        hop |= {"not_before": start - start_err, "not_after": end + end_err}
        assert self._packets is not None
        carried = self._packets.filter(
            self._packets.sender == link[0], self._packets.receiver == link[1]
        )
        on_the_way = _candidates(ibis.memtable(pa.table(hop)), carried).to_pyarrow()
        column = {name: on_the_way[name].to_numpy() for name in on_the_way.column_names}
        once = column["packets"] == 1
        row = column["row"][once]
        came, came_err, left, left_err = (
            column[name][once] for name in ("came", "came_err", "left", "left_err")
        )
        emulated, after = left - came, end[row] - left
        return SplitResult(
            sender=link[0],
            receiver=link[1],
            matched=len(row),
            unseen=len(length) - len(once),
            ambiguous=int((~once).sum()),
            # Where the cost of recording is subtracted, it was the sender's.
            before=_part(length[row] - emulated - after, start_err[row] + came_err),
            emulated=_part(emulated, self._on_router(repeat[row], emulated, came_err + left_err)),
            after=_part(after, left_err + end_err[row]),
        )

    def _on_router(
        self, repeat: npt.NDArray[np.int32], length: Nanoseconds, err: Nanoseconds
    ) -> Nanoseconds:
        """Half-widths of intervals on the router: its rate's, where those are less."""
        drift = np.array([self._drift.get(each) or np.nan for each in repeat.tolist()], float)
        wander = np.ceil(2e-6 * drift * length) + 1
        narrow = wander < err
        err[narrow] = wander[narrow].astype(np.int64)
        return err


def _packets(run: Run) -> ibis.Table:
    """One row for each packet that went through a link: when the kernel saw it come, and when the
    first of its copies was given to the device. The router writes both down a little later."""
    key = ["repeat", "from", "to", "number"]
    enqueued, departed = _back(run.table(ENQUEUED)), _back(run.table(DEPARTED))
    left = departed.group_by(key).agg(
        left=departed.at.min(), left_err=departed.at_err.argmin(departed.at)
    )
    came = enqueued.select(*key, "id", came="at", came_err="at_err")
    names = _names(ports(run))
    packets = came.join(left, key)
    for end, port in (("sender", "from"), ("receiver", "to")):
        named = names.rename({port: "port", end: "name"})
        packets = packets.join(named, ["repeat", port])
    columns = ["repeat", "sender", "receiver", "id", "came", "came_err", "left", "left_err"]
    return packets.select(columns)


def _back(events: ibis.Table) -> ibis.Table:
    """With the instant that an event is of, and how far the kernel may slew its clock meanwhile."""
    slew = (events.ago_ns * (SLEW_PPM / 1e6)).ceil().cast("int64")
    return events.mutate(at=events.ts - events.ago_ns, at_err=events.err_ns + slew)


def _names(hosts: Mapping[int, list[str]]) -> ibis.Table:
    rows = [
        {"repeat": repeat, "port": port, "name": name}
        for repeat, names in hosts.items()
        for port, name in enumerate(names)
    ]
    return ibis.memtable(
        pa.table(
            {
                "repeat": pa.array([row["repeat"] for row in rows], pa.int32()),
                "port": pa.array([row["port"] for row in rows], pa.uint16()),
                "name": pa.array([row["name"] for row in rows], pa.string()),
            }
        )
    )


def _candidates(hop: ibis.Table, carried: ibis.Table) -> ibis.Table:
    """By row of `hop`, where there is any: how many packets it may have been, and the first."""
    joined = hop.join(carried, ["repeat", "id"])
    joined = joined.filter(
        joined.came >= joined.not_before - joined.came_err,
        joined.left <= joined.not_after + joined.left_err,
    )
    by_row = joined.group_by("row").agg(
        packets=joined.count(),
        came=joined.came.min(),
        came_err=joined.came_err.argmin(joined.came),
        left=joined.left.min(),
        left_err=joined.left_err.argmin(joined.left),
    )
    return by_row.order_by("row")


def _part(length: Nanoseconds, err: Nanoseconds) -> PartResult:
    sample = Sample(length, err)
    times = {name: _printed(sample.bracket(name)) for name in SPLIT_TIMES}
    return PartResult(times, sample.largest_half_width)


def _printed(bracket: Bracket | None) -> int | float | None:
    if bracket is None:
        return None
    return bracket.value if isinstance(bracket.value, int) else float(round(bracket.value, 1))
