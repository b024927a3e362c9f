"""Every message of a path with its stamps at each event, and the intervals between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from loopscope.analysis.keys import PLAIN, Keys, read_list_keys
from loopscope.analysis.maximum_error import COUNTER, NO_COUNTER, maximum_errors
from loopscope.analysis.occurrences import NOWHERE, Occurrences, read_occurrences
from loopscope.analysis.path_table import ROWS, write_table
from loopscope.analysis.regularity import Arrivals
from loopscope.experiment import MessagePath, PathEvent
from loopscope.timeline import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds

    Mask = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.intp]


ALL = slice(None)
MOVE_NS = 1_000
"""Less than a thread takes to go from one processor to another."""


@dataclass(frozen=True)
class Intervals:
    """One entry per message that was seen at both ends."""

    first: PathEvent
    last: PathEvent
    repeat: npt.NDArray[np.int32]
    id: npt.NDArray[np.int64]
    start: Nanoseconds
    """Global time at the first end."""
    length: Nanoseconds
    err: Nanoseconds
    """Maximum error of `length`."""
    keys: Keys = PLAIN
    """Keys for which the ids stand."""

    @property
    def contradictions(self) -> npt.NDArray[np.intp]:
        """Messages that ended before they began, by more than the clock's error."""
        return np.flatnonzero(self.length < -self.err)


@dataclass(frozen=True)
class Stamps:
    """The stamps of one event: an entry for each message of the path, `seen` there or not."""

    seen: Mask
    ts: Nanoseconds
    err: Nanoseconds
    occurrences: npt.NDArray[np.int32]
    host: npt.NDArray[np.int16]
    """Codes."""


_COLUMNS = ("seen", "ts", "err", "occurrences", "host")


class Messages:
    """One row per message in each array; the lists have one array per event of the path."""

    def __init__(
        self,
        path: MessagePath,
        repeat: npt.NDArray[np.int32],
        id: npt.NDArray[np.int64],
        stamps: Sequence[Stamps],
        hosts: Mapping[str, int],
        counters: Mapping[tuple[int, str], tuple[float, float]],
        costs: Mapping[tuple[int, str], tuple[float, float]] | None = None,
        keys: Keys = PLAIN,
        begins: Mapping[int, int] | None = None,
        one_thread: Sequence[Sequence[int]] = (),
    ) -> None:
        """`hosts` are the codes in the stamps.

        `keys` are what the ids stand for. `costs` are what an event costs, ns and maximum error, by
        repeat and host; to be subtracted. Every host of a message has one then. `one_thread` has
        for each event the repeats in which one thread recorded all of it.
        """
        self.path = path
        if begins is None:
            first = stamps[0].ts
            numbers = np.unique(repeat).tolist()
            begins = {each: int(first[repeat == each].min()) for each in numbers}
        self.begins = begins
        """When the first message of each repeat set out, also where it is left out."""
        self._given = (hosts, counters, costs, keys, begins, one_thread)
        self._one_thread = one_thread
        self.keys = keys
        self._stamps = stamps
        self.repeat = repeat
        self.id = id
        self.seen: list[Mask] = [each.seen for each in stamps]
        self.ts: list[Nanoseconds] = [each.ts for each in stamps]
        self.err: list[Nanoseconds] = [each.err for each in stamps]
        self.occurrences: list[npt.NDArray[np.int32]] = [each.occurrences for each in stamps]
        self._hosts = hosts
        self.host: list[npt.NDArray[np.int16]] = [each.host for each in stamps]
        """Codes of where each message was seen, by which clock; of what was not seen, anything."""
        repeats = int(repeat.max(initial=0))
        self._counters = by_host(counters, hosts, repeats, COUNTER, NO_COUNTER)
        self._costs = None
        if costs is not None:
            self._costs = tuple(
                by_host({of: cost[part] for of, cost in costs.items()}, hosts, repeats)
                for part in (0, 1)
            )

    def __len__(self) -> int:
        return len(self.id)

    def intervals(self, first: int, last: int, rows: slice = ALL) -> Intervals:
        """Intervals from one event (its index in the path) to another, of the messages in `rows`.

        Costs that are to be subtracted take from the length, and their maximum errors add to its
        own.
        """
        both = np.flatnonzero(self.seen[first][rows] & self.seen[last][rows]) + (rows.start or 0)
        start = self.ts[first][both]
        length = self.ts[last][both] - start
        err = self.errors_between(first, both, last, both)
        if self._costs is not None:
            cost, spread = self._cost(first, last, both)
            whole = np.rint(cost)
            length = length - whole.astype(np.int64)
            err += np.ceil(spread + np.abs(cost - whole)).astype(np.int64)
        return Intervals(
            first=self.path.events[first],
            last=self.path.events[last],
            repeat=self.repeat[both],
            id=self.id[both],
            start=start,
            length=length,
            err=err,
            keys=self.keys,
        )

    def errors_between(self, first: int, begins: Rows, last: int, ends: Rows) -> Nanoseconds:
        """The maximum errors of the times between messages of two events, in ns, row by row.

        From the rows `begins` at event `first` to the rows `ends` at event `last`; both rows of a
        pair are of one repeat.
        """
        err = self.err[first][begins] + self.err[last][ends]
        host = self.host[first][begins]
        one_host = host == self.host[last][ends]
        if not one_host.any():
            return err
        length = self.ts[last][ends] - self.ts[first][begins]
        return maximum_errors(length, err, self._counters[self.repeat[begins], host], one_host)

    def nearest_in_order(self, event: int, before: Rows, after: Rows) -> Nanoseconds:
        """Times in ns between pairs of messages at an event up to which their order is open.

        A thread stamps its events in their order, unless it was moved to a processor whose counter
        is behind by more than the move takes.
        """
        found = self.errors_between(event, before, event, after)
        if self._one_thread and self._one_thread[event]:
            repeat = self.repeat[before]
            counter = self._counters[repeat, self.host[event][before]]
            # The drift of a clock that was disturbed is not known.
            sound = (counter["apart_ns"] <= MOVE_NS) & ~np.isnan(counter["drift_ppm"])
            known = np.isin(repeat, self._one_thread[event]) & sound
            found = np.where(known, 0, found)
        return found

    def chosen(self, rows: Mask) -> Messages:
        """Some of the messages."""
        stamps = [
            Stamps(*(getattr(each, name)[rows] for name in _COLUMNS)) for each in self._stamps
        ]
        return Messages(self.path, self.repeat[rows], self.id[rows], stamps, *self._given)

    def keys_at(self, event: int) -> Keys:
        """Keys for which the numbers of the messages at an event stand."""
        return self.keys

    def any_at(self, event: int) -> bool:
        """Whether one was seen there."""
        return bool(self.seen[event].any())

    def on(self, event: int, host: str) -> Mask:
        """Whether each message was at an event on a host; arbitrary for messages not seen there."""
        there: Mask = self.host[event] % len(self._hosts) == self._hosts.get(host, -1)
        return there

    def _cost(
        self, first: int, last: int, messages: Rows
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Time that recording took between two events, and its maximum error, both in ns.

        What follows the stamp of the first event and what precedes that of the last are one event's
        cost together; each event in between adds one, where it was seen.
        """
        assert self._costs is not None
        repeat = self.repeat[messages]
        cost, spread = np.zeros(len(repeat)), np.zeros(len(repeat))
        for event in range(first, last):
            seen = self.seen[event][messages]
            host = self.host[event][messages] % len(self._hosts)
            cost += np.where(seen, self._costs[0][repeat, host], 0)
            spread += np.where(seen, self._costs[1][repeat, host], 0)
        return cost, spread

    def arrivals(self, event: int) -> Arrivals:
        """When messages were at an event."""
        here = np.flatnonzero(self.seen[event])
        here = here[np.lexsort((self.ts[event][here], self.repeat[here]))]
        repeat, host = self.repeat[here], self.host[event][here]
        counter = self._counters[repeat, host]
        return Arrivals(repeat, self.ts[event][here], self.err[event][here], host, counter)

    def write(self, run: Run) -> None:
        """`tables/path-<name>.parquet` of each repeat. Raises `RunError`."""
        for repeat in run.repeats:
            start, end = np.searchsorted(self.repeat, (repeat, repeat + 1))
            # There is a table also where there is no message.
            starts = range(start, end, ROWS) or [start]
            pieces = [partial(self._part, slice(a, min(a + ROWS, end))) for a in starts]
            write_table(run, repeat, self.path.name, pieces)

    def _part(self, rows: slice) -> dict[str, pa.Array]:
        """The columns of some rows."""
        columns = {"repeat": pa.array(self.repeat[rows]), "id": pa.array(self.id[rows])}
        if (values := self.keys.column(self.id[rows])) is not None:
            columns["key"] = values
        for event, seen in enumerate(self.seen):
            unseen = ~seen[rows]
            columns[f"ts_{event}"] = pa.array(self.ts[event][rows], mask=unseen)
            columns[f"err_{event}"] = pa.array(self.err[event][rows], mask=unseen)
        hops = {f"hop_{i}": (f"hop_err_{i}", hop) for i, hop in enumerate(self.path.hops)}
        intervals = {**hops, "latency": ("latency_err", self.path.loop)}
        for name, (width, (first, last)) in intervals.items():
            unseen = ~(self.seen[first][rows] & self.seen[last][rows])
            interval = self.intervals(first, last, rows)
            for column, values in ((name, interval.length), (width, interval.err)):
                whole = np.zeros(len(unseen), np.int64)
                whole[~unseen] = values
                columns[column] = pa.array(whole, mask=unseen)
        return columns


def read_messages(
    run: Run,
    path: MessagePath,
    costs: Mapping[tuple[int, str], tuple[float, float]] | None = None,
) -> tuple[Messages, list[str]]:
    """The messages of a path, in order of repeat and time, and what is wrong with them.

    `costs` as for `Messages`.

    A message is a distinct key at the path's first event. Where it was seen at an event more than
    once, the first occurrence counts. Raises `RunError` where an event's table does not have the
    key.
    """
    hosts, keys = host_codes(run), read_list_keys(run, path)
    repeats: list[npt.NDArray[np.int32]] = []
    ids: list[npt.NDArray[np.int64]] = []
    kept: list[Mask] = []
    stamps: list[list[Stamps]] = [[] for _ in path.events]
    one_thread: list[list[int]] = [[] for _ in path.events]
    absent: dict[PathEvent, None] = {}
    strangers = 0
    for repeat in run.repeats:
        first = _read(run, repeat, path, 0, keys, hosts, absent)
        repeats.append(np.full(len(first), repeat, np.int32))
        ids.append(first.id)
        # The messages that set out within this time of their repeat's first are left out.
        kept.append(first.ts >= first.ts[:1].sum() + path.trim_ns)
        for event in range(len(path.events)):
            each = _read(run, repeat, path, event, keys, hosts, absent) if event else first
            if each.of_one_thread:
                one_thread[event].append(repeat)
            place = each.find(first.id) if event else np.arange(len(first))
            if event == len(path.events) - 1:
                strangers += len(each) - int((place != NOWHERE).sum())
            stamps[event].append(stamps_at(each, place))
    problems = [f"path {path.name}: no {each.entity} was recorded at all" for each in absent]
    of_events = [joined(each) for each in stamps]
    messages = Messages(
        path,
        np.concatenate(repeats),
        np.concatenate(ids),
        of_events,
        hosts,
        counters(run),
        costs,
        keys,
        one_thread=one_thread,
    )
    if path.trim_ns:
        messages = messages.chosen(np.concatenate(kept))
    first_event, last_event = path.events[0], path.events[-1]
    if again := int((messages.occurrences[0] > 1).sum()):
        problems.append(
            f"path {path.name}: {again} of {len(messages)} values of {path.key} occur more than "
            f"once at {first_event}; the first occurrence counts"
        )
    if strangers:
        problems.append(
            f"path {path.name}: {strangers} messages were seen at {last_event} but not at "
            f"{first_event}; they are in no statistic"
        )
    return messages, problems


def host_codes(run: Run) -> dict[str, int]:
    """A number for each host of a run."""
    names = run.relation("hosts").project("host").distinct().fetchall()
    return {name: code for code, (name,) in enumerate(sorted(names))}


def counters(run: Run) -> dict[tuple[int, str], tuple[float, float]]:
    """Claims of each host's counter (`COUNTER`), by repeat and host.

    Runs of earlier versions do not say what its processors' are apart.
    """
    return {
        (row["repeat"], row["host"]): (row["drift_ppm"], row.get("apart_ns") or 0.0)
        for row in run.relation("hosts").to_arrow_table().to_pylist()
        if row["drift_ppm"] is not None
    }


def by_host(
    values: Mapping[tuple[int, str], Any],
    hosts: Mapping[str, int],
    repeats: int,
    dtype: npt.DTypeLike = np.float64,
    none: Any = np.nan,
) -> npt.NDArray[Any]:
    """Values by repeat and the code of a host.

    `none` where there is none, and for other clocks than its counter.
    """
    found = np.full((repeats + 1, 2 * len(hosts)), np.array(none, dtype))
    for (repeat, host), value in values.items():
        if repeat <= repeats and host in hosts:
            found[repeat, hosts[host]] = value
    return found


def _read(
    run: Run,
    repeat: int,
    path: MessagePath,
    event: int,
    keys: Keys,
    hosts: Mapping[str, int],
    absent: dict[PathEvent, None],
) -> Occurrences:
    found = read_occurrences(run, repeat, path.events[event], (path.key, keys), hosts)
    if found is None:
        absent[path.events[event]] = None
        return Occurrences.none()
    return found


def stamps_at(each: Occurrences, place: npt.NDArray[np.intp]) -> Stamps:
    """The stamps of the messages at these places; `NOWHERE` for those that were not seen."""
    if not len(each):
        nothing = np.zeros(len(place), np.int64)
        host = nothing.astype(np.int16)
        return Stamps(place != NOWHERE, nothing, nothing, nothing.astype(np.int32), host)
    # What is not there takes the last one's, unread.
    return Stamps(
        place != NOWHERE, each.ts[place], each.err[place], each.times[place], each.host[place]
    )


def joined(parts: Sequence[Stamps]) -> Stamps:
    """The stamps of all repeats, one after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = ([getattr(part, name) for part in parts] for name in _COLUMNS)
    return Stamps(*map(np.concatenate, columns))
