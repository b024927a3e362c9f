"""The messages that one event of a path was seen with in one repeat, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.timeline import UnknownTableError
from loopscope.timeline.relation import literal

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.keys import Keys
    from loopscope.experiment import PathEvent
    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]
    Places = npt.NDArray[np.intp]

NOWHERE = -1
"""Stands for the place of a message that is not there."""


@dataclass(frozen=True)
class Column:
    """A field's values; where they are not `known` they are 0."""

    values: Integers
    known: npt.NDArray[np.bool_]


class Occurrences:
    """One entry per number, its first occurrence, in order of time (then of the number)."""

    def __init__(
        self,
        id: Integers,
        ts: Nanoseconds,
        err: Nanoseconds,
        host: npt.NDArray[np.int16],
        fields: Mapping[str, Column] | None = None,
        of_one_thread: bool = False,
    ) -> None:
        """Takes occurrences in any order.

        Where stamps tie, the least certain one counts, so that the result does not depend on that
        order.
        """
        self.of_one_thread = of_one_thread
        """Whether one thread recorded all of them, with its host's counter."""
        in_order: Places | None = None
        self._ids = id
        if not _increases(id):
            in_order = np.argsort(id, kind="stable")
            self._ids = id[in_order]
        times = np.broadcast_to(np.int32(1), len(id))
        if not _increases(self._ids):
            in_order = np.lexsort((host, -err, ts, id))
            found = id[in_order]
            starts = np.flatnonzero(np.r_[True, found[1:] != found[:-1]])
            times = np.diff(np.r_[starts, len(id)]).astype(np.int32)
            in_order, self._ids = in_order[starts], found[starts]
        first = ts if in_order is None else ts[in_order]
        self._place: Places | None = None
        if (first[1:] < first[:-1]).any():
            by_time = np.argsort(first, kind="stable")
            self._place = np.empty_like(by_time)
            self._place[by_time] = np.arange(len(by_time))
            in_order = by_time if in_order is None else in_order[by_time]
            times = times[by_time]
        self.times = times
        """Number of occurrences of each."""

        def ordered(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return values if in_order is None else values[in_order]

        self.id: Integers = ordered(id)
        self.ts: Nanoseconds = ordered(ts)
        self.err: Nanoseconds = ordered(err)
        self.host: npt.NDArray[np.int16] = ordered(host)
        self.fields = {
            name: Column(ordered(column.values), ordered(column.known))
            for name, column in (fields or {}).items()
        }

    @staticmethod
    def none(fields: Iterable[str] = ()) -> Occurrences:
        nothing = np.empty(0, np.int64)
        columns = {name: Column(nothing, nothing.astype(np.bool_)) for name in fields}
        return Occurrences(nothing, nothing, nothing, nothing.astype(np.int16), columns)

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, ids: Integers) -> Places:
        """Where messages with these numbers are, `NOWHERE` for those that are not."""
        if not len(self):
            return np.full(len(ids), NOWHERE)
        if np.array_equal(ids, self._ids):
            return np.arange(len(ids)) if self._place is None else self._place
        near = np.minimum(np.searchsorted(self._ids, ids), len(self) - 1)
        place = near if self._place is None else self._place[near]
        return np.where(self._ids[near] == ids, place, NOWHERE)


def read_occurrences(
    run: Run,
    repeat: int,
    event: PathEvent,
    key: tuple[str, Keys] | None,
    hosts: Mapping[str, int],
    fields: Mapping[str, Keys] | None = None,
) -> Occurrences | None:
    """None where no such event was recorded in any repeat.

    `key` are the fields that number messages, with the numbers of their values; None: every
    occurrence is a message, numbered from 0 by time. `hosts` are the codes of hosts; of stamps that
    are not of the host's counter, as many more. `fields` hold the numbers of other messages.
    """
    try:
        table = run.relation(event.table)
    except UnknownTableError:
        return None
    fields = fields or {}
    here = table.filter(f"repeat = {repeat} AND process = {literal(event.component)}")
    if key is not None:
        here = key[1].numbered(run, here, key[0], "_id")
    for number, (name, keys) in enumerate(fields.items()):
        here = keys.numbered(run, here, name, f"_field_{number}", required=False)
    if key is None and any(keys.values is not None for keys in fields.values()):
        # They are numbered in their order, which a join does not keep.
        here = here.order("ts, counter, id")
    threads = "min(pid) = max(pid) AND min(tid) = max(tid) AND count(counter) = count(*)"
    at = here.aggregate(f"host, count(counter), count(*), {threads}").fetchall()
    chosen = ["ts", "err_ns AS err"]
    if key is not None:
        chosen.append("_id AS id")
    of_one = len(at) <= 1 and all(counted in (0, n) for _, counted, n, _ in at)
    if not of_one:
        # Text costs more than all the rest, and a component has one host.
        codes = " ".join(f"WHEN {literal(host)} THEN {hosts[host]}" for host, *_ in at)
        # What no counter stamped is as if of another host: its clock has a rate of its own.
        other = f"CASE WHEN counter IS NULL THEN {len(hosts)} ELSE 0 END"
        chosen.append(f"(CASE host {codes} END + {other})::SMALLINT AS host")
    names = {name: f"_field_{number}" for number, name in enumerate(fields)}
    rows = here.project(", ".join([*chosen, *names.values()])).to_arrow_table()
    ts, err = rows["ts"].to_numpy(), rows["err"].to_numpy()
    if of_one:
        one = hosts[at[0][0]] + (0 if at[0][1] else len(hosts)) if at else 0
        host: npt.NDArray[np.int16] = np.broadcast_to(np.int16(one), len(ts))
    else:
        host = rows["host"].to_numpy()
    if key is None:
        in_time = np.lexsort((host, -err, ts))
        id: Integers = np.empty(len(ts), np.int64)
        id[in_time] = np.arange(len(ts))
    else:
        id = rows["id"].to_numpy()
    columns = {name: _column(rows[column]) for name, column in names.items()}
    of_one_thread = len(at) == 1 and bool(at[0][3])
    return Occurrences(id, ts, err, host, columns, of_one_thread)


def _column(values: Any) -> Column:
    return Column(values.fill_null(0).to_numpy(), values.is_valid().to_numpy())


def _increases(values: Integers) -> bool:
    return bool((values[1:] > values[:-1]).all())
