"""A path, a list of events or a branching one, or a part of it, as figures ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.datagrams import between_hosts, followed
from loopscope.analysis.message_dag import Fate
from loopscope.analysis.ways import messages_along

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from loopscope.analysis import Results
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.messages import Intervals, Messages
    from loopscope.experiment import MessagePath
    from loopscope.timeline import Run

AGE = ".age"
PACKETS = ".packets"
_FATES = {
    "lost": Fate.LOST,
    "superseded": Fate.SUPERSEDED,
    "unused": Fate.UNUSED,
    "undecided": Fate.UNDECIDED,
}


@dataclass(frozen=True)
class Instants:
    """When something set out, or was used, after the first message of its repeat."""

    repeat: npt.NDArray[np.int32]
    since: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.since)

    def chosen(self, rows: npt.NDArray[np.bool_]) -> Instants:
        return Instants(self.repeat[rows], self.since[rows])


@dataclass(frozen=True)
class Sampled:
    """Numbers of a run over its time, a row for each."""

    text: str
    """Name for people."""
    name: str
    """Name of the quantity on an axis."""
    title: str
    what: str
    """Noun for the samples, in the plural."""
    unit: str
    table: pa.Table
    """The samples' table, in order of repeat and time.

    `since` (ns, the first of its repeat), `value`, `repeat`, and of times between instants
    `clock_error`, their maximum error.
    """
    origin: Mapping[int, int]
    """Instant from which `since` counts, by repeat."""
    without: Mapping[str, Instants] = field(default_factory=dict)
    """Instants of messages without a number, by their fate."""
    hosts: frozenset[str] | None = None
    """Those that it is about; None: any."""
    key: Callable[[int], str | int] | None = None
    """Name for people of the message whose number is in the column `key`."""

    @property
    def bounded(self) -> bool:
        return "clock_error" in self.table.column_names


@dataclass(frozen=True)
class Part:
    """The times of the messages of a part of a path, or the age of the data at each use there."""

    text: str
    """Name for people."""
    name: str
    """Name of the quantity on an axis."""
    title: str
    what: str
    """Noun for the intervals, in the plural."""
    intervals: Intervals
    """Intervals; for ages one for each use, which begins where the use is and has its number."""
    origin: Mapping[int, int]
    """When the path's first message of each repeat set out, be it one of the warm-up."""
    hosts: frozenset[str]
    """Those of the path's events."""
    without: Mapping[str, Instants]
    """Messages, or uses, that have no time, by what became of them."""

    @property
    def short(self) -> str:
        """The name of a path, else where the part begins and ends."""
        if "[" not in self.text:
            return self.text
        return f"{self.intervals.first} → {self.intervals.last}"

    @property
    def since(self) -> npt.NDArray[np.int64]:
        """Where each interval begins, after the first message of its repeat."""
        return _since(self.intervals.repeat, self.intervals.start, self.origin)

    @property
    def lost(self) -> Instants:
        nothing = Instants(np.empty(0, np.int32), np.empty(0, np.int64))
        return self.without.get("lost", nothing)


def paths_of(results: Results) -> dict[str, MessagePath]:
    """All that were measured: lists, then graphs."""
    lists = {name: each.path for name, each in results.messages.items()}
    return lists | {name: each.messages.path for name, each in results.graph_messages.items()}


def list_of(results: Results, path: str) -> Messages | None:
    """The messages of a path that is a list, or of one that branches, see `MeasuredDag.as_list`."""
    graph = results.graph_messages.get(path)
    return results.messages[path] if graph is None else graph.as_list


def several_ways(path: str) -> str:
    """What to say of causes where `list_of` has none."""
    return (
        "several ways lead from its beginnings to its ends; loopscope why RUN "
        f"--path {path} --from EVENT --to EVENT explains messages along one of them"
    )


def text_of(path: MessagePath, ends: tuple[int, int]) -> str:
    """Name for people of a part of a path."""
    if path.ends == [ends]:
        return path.name
    return f"{path.name}[{path.events[ends[0]]} -> {path.events[ends[1]]}]"


def joins(path: MessagePath, ends: tuple[int, int]) -> bool:
    """Whether an event between two joins, so that data has an age there."""
    return bool(path.uses(*ends) - {"key"})


def part_of(results: Results, path: str, ends: tuple[int, int]) -> Part:
    """The times between two of its events. Raises `ValueError` where none leads to the other."""
    if path in results.graph_messages:
        return _of_graph(results.graph_messages[path], ends)
    return _of_list(results.messages[path], ends)


def ages_of(results: Results, path: str, ends: tuple[int, int]) -> Part:
    """The age of the data of one event at each use by another.

    Raises `ValueError` where data has none there.
    """
    graph = results.graph_messages.get(path)
    if graph is None or not (flow := graph.part(ends)).joins:
        raise ValueError("age is drawn where an event joins, of the data that it uses")
    origin, used = _origin_of(graph), flow.used
    return Part(
        text=text_of(graph.messages.path, ends) + AGE,
        name="age of the data",
        title=f"{path}: age of {flow.intervals.first} where used at {flow.intervals.last}",
        what="uses",
        intervals=flow.uses,
        origin=origin,
        hosts=_hosts(graph.messages.path),
        without={
            name: Instants(used.repeat, _since(used.repeat, used.ts, origin)).chosen(rows)
            for name, rows in {
                "undecided": used.undecided,
                "without data": ~used.made & ~used.undecided,
            }.items()
        },
    )


def packets_of(run: Run, results: Results, path: MessagePath, ends: tuple[int, int]) -> Part:
    """The times of single packets on one of its hops.

    Raises `ValueError` where it is no hop between two hosts, NothingRecordedError and `RunError`.
    """
    if ends not in between_hosts(path):
        raise ValueError("packets are drawn of a hop between two hosts")
    hop = ends
    if path.name in results.graph_messages:
        first, last = (str(path.events[each]) for each in ends)
        messages, hop = messages_along(run, path, first, last, None), (0, 1)
    else:
        messages = results.messages[path.name]
    found = followed(run, messages, hop)
    origin = {repeat: messages.begins[repeat] for repeat in np.unique(messages.repeat).tolist()}
    unknown = np.array(list(found.not_followed), np.intp)
    repeat, ts = messages.repeat[unknown], messages.ts[hop[0]][unknown]
    return Part(
        text=text_of(path, ends) + PACKETS,
        name="time of a packet",
        title=f"{path.name}: packets from {path.events[ends[0]]} to {path.events[ends[1]]}",
        what="packets",
        intervals=found.packets,
        origin=origin,
        hosts=_hosts(path),
        without={"without packets": Instants(repeat, _since(repeat, ts, origin))},
    )


def _of_list(messages: Messages, ends: tuple[int, int]) -> Part:
    path, (first, last) = messages.path, ends
    if not 0 <= first < last < len(path.events):
        raise ValueError(f"{path.events[first]} does not come before {path.events[last]}")
    origin = {repeat: messages.begins[repeat] for repeat in np.unique(messages.repeat).tolist()}
    lost = messages.seen[first] & ~messages.seen[last]
    repeat, ts = messages.repeat[lost], messages.ts[first][lost]
    return Part(
        text=text_of(path, ends),
        name="response time" if ends == path.loop else "time of the hop",
        title=f"{path.name}: {path.events[first]} → {path.events[last]}",
        what="messages",
        intervals=messages.intervals(first, last),
        origin=origin,
        hosts=_hosts(path),
        without={"lost": Instants(repeat, _since(repeat, ts, origin))},
    )


def _of_graph(graph: MeasuredDag, ends: tuple[int, int]) -> Part:
    flow = graph.part(ends)
    path, sent, origin = graph.messages.path, flow.sent, _origin_of(graph)
    since = Instants(sent.repeat, _since(sent.repeat, sent.ts, origin))
    name = "response time" if ends in path.ends else "time of the hop"
    return Part(
        text=text_of(path, ends),
        name="time to the first use" if flow.joins else name,
        title=f"{path.name}: {flow.intervals.first} → {flow.intervals.last}",
        what="messages",
        intervals=flow.shown,
        origin=origin,
        hosts=_hosts(path),
        without={name: since.chosen(sent.fate == fate) for name, fate in _FATES.items()},
    )


def _hosts(path: MessagePath) -> frozenset[str]:
    return frozenset(event.host for event in path.events)


def _origin_of(graph: MeasuredDag) -> dict[int, int]:
    return {
        repeat: each.begin
        for repeat, each in graph.messages.repeats.items()
        if any(len(each.messages[of].ts[each.kept(of)]) for of in each.path.sources)
    }


def _since(
    repeat: npt.NDArray[np.int32], ts: npt.NDArray[np.int64], origin: Mapping[int, int]
) -> npt.NDArray[np.int64]:
    since = ts.copy()
    for each, start in origin.items():
        since[repeat == each] -= start
    return since


def sampled_of(part: Part) -> Sampled:
    """Every part of a path counts from the path's first message, so that figures stand together."""
    of = part.intervals
    table = sample_table(of.repeat, part.since, of.length, of.err, of.id)
    named = part.text, part.name, part.title, part.what, "ns"
    return Sampled(*named, table, part.origin, part.without, part.hosts, of.keys.shown)


def sample_table(
    repeat: npt.NDArray[np.int32],
    since: npt.NDArray[np.int64],
    value: npt.NDArray[np.generic],
    err: npt.NDArray[np.int64] | None = None,
    key: npt.NDArray[np.int64] | None = None,
) -> pa.Table:
    import pyarrow as pa

    columns = {"repeat": repeat, "since": since, "value": value}
    if err is not None:
        columns["clock_error"] = err
    if key is not None:
        columns["key"] = key
    return pa.table(columns)
