"""The graph of threads and channels: who puts items into which channel, and who gets them.

As figure 1 of Paul et al., *Performance Study of a Cluster Runtime System for Dynamic Interactive
Stream-Oriented Applications* (ISPASS 2003).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from loopscope.analysis.channel_result import ChannelsResult, ChannelUse
from loopscope.analysis.quantity_text import number, quantity
from loopscope.analysis.results import Results
from loopscope.report.axis import Axis
from loopscope.report.chart import Chart, Panel, Row
from loopscope.report.diagram import LINE, POINTS, TOP, Arrow, Box, Diagram
from loopscope.report.layered_layout import Size, Spacing, Way, drawing
from loopscope.report.palette import SERIES, TARGET
from loopscope.report.samples import FigureError
from loopscope.report.thread_names import every_thread, has_others

_LETTER, _SMALL_LETTER = 7.0, 6.2
"""Pixels of a letter in a box, and at an arrow."""
_NAME = 14
"""Letters of a line of a name."""
_PORT, _BETWEEN, _TRACK, _MARGIN = 20.0, 18.0, 14.0, 10.0
_CURVE = 36.0
"""Pixels between layers, besides those of the texts at the arrows."""
_WIDE, _LEAST_SCALE = 1150, 0.8
"""Pixels from which on a graph is drawn smaller on the page, and by how much at most."""
Node = tuple[str, str, int]
"""A thread's host, component and number, or a channel's home, name and 0."""


@dataclass(frozen=True)
class _Graph:
    """The threads and channels of a repeat, in the order in which uses name them."""

    nodes: tuple[Node, ...]
    is_thread: tuple[bool, ...]
    uses: tuple[ChannelUse, ...]
    edges: tuple[tuple[int, int], ...]


def has_graph(results: Results) -> bool:
    """Whether there is something to show."""
    return bool(results.channels and results.channels.uses)


def chart(results: Results, repeat: int | None = None) -> Chart:
    """The graph of one repeat, by default the first. Raises `FigureError`."""
    channels = results.channels
    uses = channels.uses if channels else ()
    shown = min((each.repeat for each in uses), default=1) if repeat is None else repeat
    uses = tuple(each for each in uses if each.repeat == shown)
    if channels is None or not uses:
        raise FigureError("what programs did with channels was not recorded")
    graph = _graph(uses, channels)
    hosts = list(dict.fromkeys(host for host, *_ in graph.nodes))
    diagram, width, height = _diagram(graph, channels, hosts)
    scale = min(1.0, max(_LEAST_SCALE, _WIDE / width))
    axes = (
        Axis("", "", 1, "", limits=(0, width)),
        Axis("", "", 1, "", limits=(height, 0)),
    )
    repeats = f" Repeat {shown}." if results.repeats > 1 else ""
    caption = (
        "Threads are angular, channels round, and the colour is the host's. Arrows lead from a "
        "thread to the channel into which it puts items, and from a channel to the thread that "
        "gets them, dotted where it takes copies of the newest one; at their ends at the threads "
        f"stands how many a second, from the first item to the last one.{repeats}"
    )
    return Chart(
        (Panel(*axes, (replace(diagram, scale=scale),)),),
        caption=caption,
        rows=_rows(uses),
        inches=(0, height * POINTS / 72),
        pixels=round(height * scale + TOP),
        width=round(width * scale),
        description=_described(uses, channels),
    )


def _graph(uses: Sequence[ChannelUse], channels: ChannelsResult) -> _Graph:
    homes = {each.channel: each.host for each in channels.channels}
    for each in uses:
        if each.event == "put":
            homes.setdefault(each.channel, each.host)
    threads: dict[Node, None] = {}
    ends = []
    for each in uses:
        thread = (each.host, each.component, each.tid)
        channel = (homes.get(each.channel, ""), each.channel, 0)
        threads.setdefault(thread)
        ends.append((thread, channel) if each.event == "put" else (channel, thread))
    nodes = list(dict.fromkeys(node for pair in ends for node in pair))
    places = {node: place for place, node in enumerate(nodes)}
    edges = tuple((places[start], places[end]) for start, end in ends)
    return _Graph(tuple(nodes), tuple(node in threads for node in nodes), tuple(uses), edges)


def _diagram(
    graph: _Graph, channels: ChannelsResult, hosts: Sequence[str]
) -> tuple[Diagram, float, float]:
    """The drawing, its width and its height, in pixels."""
    known = every_thread(channels)
    lines, sizes = [], []
    for place, (node, is_thread) in enumerate(zip(graph.nodes, graph.is_thread, strict=True)):
        use = next(use for use, edge in zip(graph.uses, graph.edges, strict=True) if place in edge)
        several = is_thread and has_others(use, known)
        lines.append(_lines(node, several))
        ports = max(sum(edge[side] == place for edge in graph.edges) for side in (0, 1))
        width = max(len(line) for line in lines[-1]) * _LETTER + 18
        sizes.append(Size(max(58, width), max(LINE * len(lines[-1]) + 12, _PORT * ports + 6)))
    texts = [_rate(use) for use in graph.uses]
    room = max(map(len, texts)) * _SMALL_LETTER + 8
    leads = [(room, 0.0) if use.event == "put" else (0.0, room) for use in graph.uses]
    spacing = Spacing(room + _CURVE, _BETWEEN, _PORT, _TRACK)
    lowest = [0 if is_thread else 1 for is_thread in graph.is_thread]
    placed = drawing(sizes, lowest, graph.edges, leads, spacing)

    def moved(x: float, y: float) -> tuple[float, float]:
        return x + _MARGIN, y + _MARGIN

    boxes = tuple(
        Box(
            centre=moved(*centre),
            width=size.width,
            height=size.height,
            lines=text,
            colour=SERIES[hosts.index(node[0]) % len(SERIES)],
            is_round=not is_thread,
            told=_told(graph, place),
        )
        for place, (centre, size, text, node, is_thread) in enumerate(
            zip(placed.centres, sizes, lines, graph.nodes, graph.is_thread, strict=True)
        )
    )
    arrows = tuple(
        _arrow(Way(tuple(moved(*each) for each in way.corners), way.closes), use, text, room)
        for way, use, text in zip(placed.ways, graph.uses, texts, strict=True)
    )
    return Diagram(boxes, arrows), placed.width + 2 * _MARGIN, placed.height + 2 * _MARGIN


def _arrow(way: Way, use: ChannelUse, text: str, room: float) -> Arrow:
    """The arrow of an edge, which is level at its thread for as long as its text is."""
    (start_x, start_y), *_, (end_x, end_y) = way.corners
    puts = use.event == "put"
    text_at = (start_x + 3, start_y) if puts else (end_x - room, end_y)
    corners = way.corners
    if not way.closes:
        level = (start_x + (room if puts else 6), start_y), (end_x - (14 if puts else room), end_y)
        corners = (corners[0], level[0], *corners[1:-1], level[1], corners[-1])
    return Arrow(corners, not way.closes, TARGET, use.event == "looked", text, text_at)


def _lines(node: Node, several: bool) -> tuple[str, ...]:
    host, name, thread = node
    number_of = (f"thread {thread}",) if several else ()
    return (*textwrap.wrap(name, _NAME), *number_of, *((host,) if host else ()))


def _rate(use: ChannelUse) -> str:
    if use.rate_hz is None:
        return f"{number(use.items)} item" + ("" if use.items == 1 else "s")
    return quantity(float(f"{use.rate_hz:.3g}"), "Hz")


def _edge(use: ChannelUse) -> str:
    thread = f"{use.component} of {use.host}"
    looked = " (looked)" if use.event == "looked" else ""
    ends = (thread, use.channel) if use.event == "put" else (use.channel, thread)
    return f"{' → '.join(ends)}{looked}, {_rate(use)}"


def _told(graph: _Graph, place: int) -> str:
    edges = zip(graph.uses, graph.edges, strict=True)
    return "\n".join(_edge(use) for use, ends in edges if place in ends)


def _described(uses: Sequence[ChannelUse], channels: ChannelsResult) -> str:
    """The graph for those who do not see it."""
    return "Threads and channels: " + "; ".join(map(_edge, uses)) + "."


def _rows(uses: Iterable[ChannelUse]) -> Iterable[Row]:
    """The lines of the CSV, the heading first."""
    yield ("repeat", "host", "program", "thread", "channel", "event", "items", "bytes", "rate (Hz)")
    for each in uses:
        of = (each.repeat, each.host, each.component, each.tid, each.channel, each.event)
        yield (*of, each.items, each.bytes, "" if each.rate_hz is None else each.rate_hz)
