"""Time line of each host, program by program.

It has the events of a stretch of time and the ways of messages between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.quantity_text import UNKNOWN_NS, maximum_error, number
from loopscope.report.axis import Axis, unit_of
from loopscope.report.chart import FEW, Chart, Hover, Layer, Panel, Trace, Whiskers
from loopscope.report.decimation import seen
from loopscope.report.palette import SERIES, TARGET
from loopscope.report.samples import FigureError
from loopscope.report.waterfall import with_key

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis import Results
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.messages import Messages
    from loopscope.timeline import Run

_WAYS = 300
"""Largest number of messages whose ways are drawn; of more only their events are.

On a branching path it counts for each edge.
"""
_DOTS = 1200
"""Events of a lane that can be told apart."""
_FEW = 40
"""Events of a lane, up to which each has its maximum error drawn."""


@dataclass(frozen=True)
class Mark:
    """The events of one kind in one lane."""

    entity: str
    lane: int
    ts: npt.NDArray[np.int64]
    """Since the window began, ns."""
    err: npt.NDArray[np.int64]


@dataclass(frozen=True)
class HostTimeline:
    repeat: int
    lanes: tuple[tuple[str, str], ...]
    """Host and program, from above."""
    entities: tuple[str, ...]
    marks: tuple[Mark, ...]
    ways: tuple[tuple[tuple[int, int], ...], ...]
    """Way of each message: instant and lane of each event of its path.

    On a branching path those of each edge that one went over.
    """
    origin_ns: int
    """The window's beginning, after the run's first event."""
    span_ns: int
    total: int
    shown: int
    max_err_ns: int | None
    """The largest maximum error of an instant; None where one is unknown."""

    @property
    def notes(self) -> str:
        shown = f"{number(self.total)} events"
        if self.shown < self.total:
            shown += f", {number(self.shown)} told apart"
        doubt = "of some unknown" if self.max_err_ns is None else maximum_error(self.max_err_ns)
        return f"{shown}; clock error {doubt}" + (" at most" if self.max_err_ns is not None else "")


@dataclass(frozen=True)
class Window:
    """A stretch of one repeat, in global ns."""

    repeat: int
    begin: int
    end: int


def around(messages: Messages, key: str | None, repeat: int | None) -> Window:
    """A message's way, the slowest one's where none is named, and a tenth more at both ends.

    Raises `FigureError` where there is no such message.
    """
    if key is not None:
        here = with_key(messages, key, repeat)
    else:
        here = messages.repeat == (messages.repeat if repeat is None else repeat)
    stamps = np.array(messages.ts)
    unseen = ~np.array(messages.seen)
    begin = np.where(unseen, np.iinfo(np.int64).max, stamps).min(axis=0)
    end = np.where(unseen, np.iinfo(np.int64).min, stamps).max(axis=0)
    rows = np.flatnonzero(here)
    if not len(rows):
        raise FigureError(f"path {messages.path.name}: no message was seen")
    row = int(rows[np.argmax((end - begin)[rows])])
    return _with_margins(int(messages.repeat[row]), int(begin[row]), int(end[row]))


def slowest(results: Results, key: str | None, repeat: int | None) -> Window | None:
    """Around a message of the first path of which one was seen; None where none was."""
    from loopscope.report.dag_waterfall import named, usual

    for messages in results.messages.values():
        if len(messages):
            return around(messages, key, repeat)
    for graph in results.graph_messages.values():
        falls = usual(graph, repeat)[-1:] if key is None else named(graph, key, repeat)
        for fall in falls:
            ends = [step.start + step.length for step in fall.steps]
            return _with_margins(fall.repeat, fall.begin, fall.begin + max([0, *ends]))
    return None


def _with_margins(repeat: int, begin: int, end: int) -> Window:
    margin = max(1000, (end - begin) // 10)
    return Window(repeat, begin - margin, end + margin)


def whole(run: Run, repeat: int) -> Window:
    """Window from a repeat's first event to its last.

    Raises `FigureError` where none was recorded.
    """
    begin, end = [], []
    for name in run.tables:
        here = run.relation(name).filter(f"repeat = {repeat}")
        for first, last in here.aggregate("min(ts), max(ts)").fetchall():
            if first is not None:
                begin.append(first)
                end.append(last)
    if not begin:
        raise FigureError(f"repeat {repeat}: no event was recorded")
    return Window(repeat, min(begin), max(end))


def read_timeline(run: Run, results: Results, window: Window) -> HostTimeline:
    """With the ways of the messages of all paths.

    Raises `FigureError` where no event lies in the window.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[tuple[str, str], dict[str, tuple[npt.NDArray[np.int64], ...]]] = {}
    widest, unknown, total = 0, False, 0
    for name in run.tables:
        here = run.relation(name).filter(
            f"repeat = {window.repeat} AND ts BETWEEN {window.begin} AND {window.end}"
        )
        columns = "host, process, ts, err_ns"
        events = here.project(columns).order(columns).to_arrow_table()
        if not len(events):
            continue
        total += len(events)
        names = (events[each].cast(pa.string()) for each in ("host", "process"))
        lanes = pc.binary_join_element_wise(*names, "\0").combine_chunks().dictionary_encode()
        code = lanes.indices.to_numpy()
        ts, err = (events[each].to_numpy() for each in ("ts", "err_ns"))
        unknown |= bool((err >= UNKNOWN_NS).any())
        widest = max(widest, int(err.max()))
        for number_of_lane, lane in enumerate(lanes.dictionary.to_pylist()):
            host, _, process = lane.partition("\0")
            of = code == number_of_lane
            found.setdefault((host, process), {})[name.replace(".", ":", 1)] = (ts[of], err[of])
    if not found:
        raise FigureError("no event lies in this stretch of time")
    order = tuple(sorted(found, key=lambda lane: (_natural(lane[0]), _first(found[lane]), lane[1])))
    entities = tuple(sorted({entity for of in found.values() for entity in of}))
    # A component of an experiment is on one host.
    places = {program: place for place, (_, program) in enumerate(order)}
    marks = []
    for place, lane in enumerate(order):
        for entity, (ts, err) in sorted(found[lane].items()):
            since = ts - window.begin
            kept = seen(since.astype(np.float64), np.zeros(len(since)), _DOTS, 1)
            marks.append(Mark(entity, place, since[kept], err[kept]))
    return HostTimeline(
        repeat=window.repeat,
        lanes=order,
        entities=entities,
        marks=tuple(marks),
        ways=(
            *_ways(results.messages.values(), window, places),
            *_edges(results.graph_messages.values(), window, places),
        ),
        origin_ns=window.begin - whole(run, window.repeat).begin,
        span_ns=window.end - window.begin,
        total=total,
        shown=sum(len(mark.ts) for mark in marks),
        max_err_ns=None if unknown else widest,
    )


def _ways(
    paths: Iterable[Messages], window: Window, lanes: Mapping[str, int]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    found = []
    for messages in paths:
        # With one event in the window it has a way there.
        within = np.zeros(len(messages), dtype=np.bool_)
        for ts, there in zip(messages.ts, messages.seen, strict=True):
            within |= there & (ts >= window.begin) & (ts <= window.end)
        rows = np.flatnonzero(within & (messages.repeat == window.repeat))
        if len(rows) > _WAYS:
            continue
        for row in rows.tolist():
            way = []
            for i, event in enumerate(messages.path.events):
                if not messages.seen[i][row]:
                    continue
                lane = lanes.get(event.component)
                if lane is not None:
                    way.append((int(messages.ts[i][row] - window.begin), lane))
            found.append(tuple(way))
    return tuple(found)


def _edges(
    graphs: Iterable[MeasuredDag], window: Window, lanes: Mapping[str, int]
) -> Iterator[tuple[tuple[int, int], ...]]:
    for each in graphs:
        graph = each.messages.repeats[window.repeat]
        path = graph.path
        for place, edge in enumerate(path.edges):
            first, last = (path.events[end].component for end in (edge.start, edge.end))
            if first not in lanes or last not in lanes or first == last:
                continue
            start, end = graph.pairs(place)
            begins, ends = graph.messages[edge.start].ts[start], graph.messages[edge.end].ts[end]
            within = np.flatnonzero((begins <= window.end) & (ends >= window.begin))
            if len(within) <= _WAYS:
                for a, b in zip(begins[within].tolist(), ends[within].tolist(), strict=True):
                    yield (a - window.begin, lanes[first]), (b - window.begin, lanes[last])


def rows(timeline: HostTimeline) -> Iterable[Sequence[str | int]]:
    """The lines of the CSV, the heading first."""
    yield ("host", "program", "event", "time since the first event (ns)", "clock error (ns)")
    for mark in timeline.marks:
        for ts, err in zip(mark.ts.tolist(), mark.err.tolist(), strict=True):
            told = "" if err >= UNKNOWN_NS else err
            yield (*timeline.lanes[mark.lane], mark.entity, ts + timeline.origin_ns, told)


def chart(timeline: HostTimeline) -> Chart:
    """A lane for each program, lines along the ways of messages."""
    scale, unit = unit_of(timeline.span_ns)
    begin = timeline.origin_ns / 1e9
    x = Axis(f"time from {begin:.6f} s after the first event", "ns", scale, unit,
             limits=(0, timeline.span_ns))  # fmt: skip
    lanes = tuple(f"{host}  {program}" for host, program in timeline.lanes)
    ways = [each for way in timeline.ways for each in (*way, (np.nan, np.nan))]
    across, up = np.array(ways, dtype=np.float64).reshape(-1, 2).T
    layers: list[Layer] = [Trace(across, up, TARGET, "a message's way", line=0.6)]
    for place, entity in enumerate(timeline.entities):
        marks = [mark for mark in timeline.marks if mark.entity == entity]
        colour = SERIES[place % len(SERIES)]
        ts, err = (np.concatenate([getattr(mark, of) for mark in marks]) for of in ("ts", "err"))
        lane = np.repeat([mark.lane for mark in marks], [len(mark.ts) for mark in marks])
        few = np.repeat([len(mark.ts) <= _FEW for mark in marks], [len(mark.ts) for mark in marks])
        known = np.where(few & (err < UNKNOWN_NS), err, np.nan)
        layers.append(Whiskers(ts, lane, known, colour, sideways=True, shade=True))
        hover = Hover(f"{entity} at %{{x}} {unit} %{{customdata}}",
                      lambda err=err: [maximum_error(each) for each in err.tolist()])  # type: ignore[misc]  # fmt: skip
        layers.append(
            Trace(ts, lane, colour, entity, symbol="tick", size=8, picture=timeline.shown > FEW,
                  hover=hover)
        )  # fmt: skip
    hosts = [host for host, _ in timeline.lanes]
    between = [at - 0.5 for at in range(1, len(hosts)) if hosts[at] != hosts[at - 1]]
    caption = (
        "The events of each host and program around the slowest message, and the ways of messages "
        f"between them: {timeline.notes}. loopscope figure RUN timeline --from 1s --until 1.1s "
        "draws any stretch of time."
    )
    panel = Panel(x, Axis("", "", 1, "", categories=lanes), tuple(layers),
                  separators=tuple(between))  # fmt: skip
    return Chart((panel,), notes=(timeline.notes,), caption=caption, rows=rows(timeline),
                 inches=(0.9, 0.28 * len(lanes)), pixels=120 + 34 * len(lanes),
                 legend="above")  # fmt: skip


def _first(of: Mapping[str, tuple[npt.NDArray[np.int64], ...]]) -> int:
    return min(int(ts[0]) for ts, _ in of.values())


def _natural(name: str) -> tuple[str, int]:
    """h2 before h10."""
    digits = name[len(name.rstrip("0123456789")) :]
    return name.removesuffix(digits), int(digits or 0)
