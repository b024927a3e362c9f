"""Every message of a path with its stamps at each event, and the intervals between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loopscope.experiment import MessagePath, PathEvent
from loopscope.timeline import Run, RunError, UnknownTableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from loopscope.analysis.statistic import Nanoseconds

    Mask = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.intp]


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
    """Half-width of `length`."""

    @property
    def contradictions(self) -> npt.NDArray[np.intp]:
        """Messages that ended before they began, by more than the clock's error."""
        return np.flatnonzero(self.length < -self.err)


def half_widths(
    length: Nanoseconds,
    sum_of_stamps: Nanoseconds,
    drift_ppm: npt.NDArray[np.float64],
    one_host: Mask,
) -> Nanoseconds:
    """Of intervals: both stamps' half-widths together.

    Where both stamps are of one host, only the wander of its rate within the interval counts, if
    that is less: 2·drift·Δ, rounded up, plus 1 ns. NaN: a drift that is not known.
    """
    wander = np.ceil(2e-6 * drift_ppm * np.abs(length)) + 1
    return np.where(one_host & (wander < sum_of_stamps), wander, sum_of_stamps).astype(np.int64)


class Messages:
    """One row per message in each array; the lists have one array per event of the path."""

    def __init__(
        self,
        path: MessagePath,
        table: pa.Table,
        drift_ppm: Mapping[tuple[int, str], float],
        costs: Mapping[tuple[int, str], tuple[float, float]] | None = None,
    ) -> None:
        """`costs` are what an event costs, ns and half-width, by repeat and host; to be subtracted.

        Every host of a message has one then.
        """
        self.path = path
        self._table = table
        self._given = (drift_ppm, costs)
        self.repeat = table["repeat"].to_numpy()
        self.id = table["id"].to_numpy()
        events = range(len(path.events))
        self.seen: list[Mask] = [table[f"ts_{i}"].is_valid().to_numpy() for i in events]
        self.ts: list[Nanoseconds] = [_filled(table[f"ts_{i}"]) for i in events]
        self.err: list[Nanoseconds] = [_filled(table[f"err_{i}"]) for i in events]
        self.occurrences: list[Nanoseconds] = [_filled(table[f"n_{i}"]) for i in events]
        self._hosts: dict[str, int] = {}
        self._host = [self._host_codes(table[f"host_{i}"]) for i in events]
        self._drift = self._by_host(drift_ppm)
        self._costs = None
        if costs is not None:
            self._costs = tuple(
                self._by_host({of: cost[part] for of, cost in costs.items()}) for part in (0, 1)
            )

    def __len__(self) -> int:
        return len(self.id)

    def hosts(self, event: int) -> pa.ChunkedArray:
        """Where each message was seen at an event; null where it was not."""
        return self._table[f"host_{event}"]

    def intervals(self, first: int, last: int) -> Intervals:
        """From one event (its index in the path) to another.

        Costs that are to be subtracted take from the length, and their half-widths add to its own.
        """
        both = np.flatnonzero(self.seen[first] & self.seen[last])
        length = self.ts[last][both] - self.ts[first][both]
        err = self.half_widths_between(first, both, last, both)
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
            start=self.ts[first][both],
            length=length,
            err=err,
        )

    def half_widths_between(self, first: int, begins: Rows, last: int, ends: Rows) -> Nanoseconds:
        """Of the times from some messages' stamps at one event to others' at another, row by row;
        both of one repeat."""
        length = self.ts[last][ends] - self.ts[first][begins]
        err = self.err[first][begins] + self.err[last][ends]
        host = self._host[first][begins]
        drift = self._drift[self.repeat[begins], host]
        return half_widths(length, err, drift, host == self._host[last][ends])

    def chosen(self, rows: Mask) -> Messages:
        """Some of the messages."""
        return Messages(self.path, self._table.filter(pa.array(rows)), *self._given)

    def _cost(
        self, first: int, last: int, messages: Rows
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """What recording took between two events, and its half-width.

        What follows the stamp of the first event and what precedes that of the last are one event's
        cost together; each event in between adds one, where it was seen.
        """
        assert self._costs is not None
        repeat = self.repeat[messages]
        cost, spread = np.zeros(len(repeat)), np.zeros(len(repeat))
        for event in range(first, last):
            seen, host = self.seen[event][messages], self._host[event][messages]
            cost += np.where(seen, self._costs[0][repeat, host], 0)
            spread += np.where(seen, self._costs[1][repeat, host], 0)
        return cost, spread

    def _by_host(self, values: Mapping[tuple[int, str], float]) -> npt.NDArray[np.float64]:
        """By repeat and the code of a host; NaN where there is none."""
        found = np.full((int(self.repeat.max(initial=0)) + 1, len(self._hosts)), np.nan)
        for (repeat, host), value in values.items():
            if repeat < len(found) and host in self._hosts:
                found[repeat, self._hosts[host]] = value
        return found

    def write(self, run: Run) -> None:
        """`tables/path-<name>.parquet` of each repeat. Raises `RunError`."""
        stamps = [f"{what}_{i}" for i in range(len(self.path.events)) for what in ("ts", "err")]
        table = self._table.select(["repeat", "id", *stamps])
        hops = {f"hop_{i}": hop for i, hop in enumerate(self.path.hops)}
        for name, (first, last) in {**hops, "latency": self.path.loop}.items():
            unseen = ~(self.seen[first] & self.seen[last])
            interval = self.intervals(first, last)
            widths = name.replace("hop", "hop_err") if name in hops else "latency_err"
            for column, values in ((name, interval.length), (widths, interval.err)):
                whole = np.zeros(len(self), np.int64)
                whole[~unseen] = values
                table = table.append_column(column, pa.array(whole, mask=unseen))
        for repeat, directory in run.repeats.items():
            file = directory / "tables" / f"path-{self.path.name}.parquet"
            unfinished = file.with_suffix(".unfinished")
            try:
                file.parent.mkdir(exist_ok=True)
                pq.write_table(table.filter(pa.array(self.repeat == repeat)), unfinished)
                unfinished.replace(file)
            except OSError as error:
                raise RunError(f"{file}: {error.strerror or error}") from error

    def _host_codes(self, column: pa.ChunkedArray) -> npt.NDArray[np.intp]:
        encoded = column.combine_chunks().dictionary_encode()
        hosts = encoded.dictionary.to_pylist()
        codes = [self._hosts.setdefault(host, len(self._hosts)) for host in hosts]
        # A message that was not seen here has no host; the last code stands in, unread.
        rows: npt.NDArray[np.int32] = encoded.indices.fill_null(-1).to_numpy()
        return np.take(np.array([*codes, 0], dtype=np.intp), rows)


def read_messages(
    run: Run,
    path: MessagePath,
    costs: Mapping[tuple[int, str], tuple[float, float]] | None = None,
) -> tuple[Messages, list[str]]:
    """The messages of a path, in order of repeat and time, and what is wrong with them.

    `costs` as for `Messages`.

    A message is a distinct key at the path's first event. Where it was seen at an event more than
    once, the first occurrence counts. Raises `RunError` where the key is no integer column of an
    event's table.
    """
    problems: list[str] = []
    firsts = [_first_occurrences(run, path, i, problems) for i in range(len(path.events))]
    joined, *later = firsts
    for first in later:
        joined = joined.left_join(first, ["repeat", "id"]).drop("repeat_right", "id_right")
    table = joined.order_by("repeat", "ts_0", "id").to_pyarrow()
    drift = drifts(run)
    messages = Messages(path, table, drift, costs)
    strangers = int(firsts[-1].count().to_pyarrow().as_py()) - int(messages.seen[-1].sum())
    if path.trim_ns:
        messages = messages.chosen(_untrimmed(messages, path.trim_ns))

    first, last = path.events[0], path.events[-1]
    if again := int((messages.occurrences[0] > 1).sum()):
        problems.append(
            f"path {path.name}: {again} of {len(messages)} values of {path.key} occur more than "
            f"once at {first}; the first occurrence counts"
        )
    if strangers:
        problems.append(
            f"path {path.name}: {strangers} messages were seen at {last} but not at {first}; "
            "they are in no statistic"
        )
    return messages, problems


def drifts(run: Run) -> dict[tuple[int, str], float]:
    """Bound on the difference between a host's rate and its mean, ppm, by repeat and host."""
    return {
        (row["repeat"], row["host"]): row["drift_ppm"]
        for row in run.hosts.select("repeat", "host", "drift_ppm").to_pyarrow().to_pylist()
        if row["drift_ppm"] is not None
    }


def _untrimmed(messages: Messages, trim_ns: int) -> Mask:
    """Those that did not set out within this time of their repeat's first."""
    repeat, ts = messages.repeat, messages.ts[0]
    kept = np.zeros(len(ts), dtype=np.bool_)
    for number in np.unique(repeat):
        here = repeat == number
        kept |= here & (ts >= ts[here].min() + trim_ns)
    return kept


def _first_occurrences(run: Run, path: MessagePath, index: int, problems: list[str]) -> ibis.Table:
    """`repeat`, `id`, `ts_<i>`, `err_<i>`, `host_<i>`, and `n_<i>`, how often it occurred."""
    event = path.events[index]
    try:
        table = run.table(event.table)
    except UnknownTableError:
        problems.append(f"path {path.name}: no {event.entity} was recorded at all")
        return ibis.memtable([], schema=_columns(index))
    if path.key not in table.columns or not table[path.key].type().is_integer():
        raise RunError(
            f"path {path.name}: {path.key} is no integer field of {event.entity}; "
            f"its fields: {', '.join(table.columns)}"
        )
    here = table.filter(table.process == event.component, table[path.key].notnull())
    here = here.select("repeat", "ts", "err_ns", "host", id=here[path.key].cast("int64"))
    message = ibis.window(group_by=["repeat", "id"])
    # Of stamps that tie, the least certain: the result must not depend on the order of rows.
    order = [ibis.asc("ts"), ibis.desc("err_ns"), ibis.asc("host")]
    in_order = ibis.window(group_by=["repeat", "id"], order_by=order)
    ranked = here.mutate(rank=ibis.row_number().over(in_order), n=here.count().over(message))
    columns = list(_columns(index))
    given = ["repeat", "id", "ts", "err_ns", "host", "n"]
    firsts = ranked.filter(ranked["rank"] == 0).select(given)
    return firsts.rename(dict(zip(columns, given, strict=True)))


def _columns(index: int) -> dict[str, str]:
    return {
        "repeat": "int32",
        "id": "int64",
        f"ts_{index}": "int64",
        f"err_{index}": "int64",
        f"host_{index}": "string",
        f"n_{index}": "int64",
    }


def _filled(column: pa.ChunkedArray) -> Nanoseconds:
    filled: Nanoseconds = column.fill_null(0).to_numpy()
    return filled
