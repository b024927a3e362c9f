"""A layered drawing of a directed graph, from left to right.

After Sugiyama, Tagawa and Toda, *Methods for Visual Understanding of Hierarchical System
Structures* (1981): edges that close a loop are set apart, nodes get layers, their order in these is
chosen for few crossings, and then their places for short edges. Edges that close a loop go round
below everything. Nothing is random: the same graph gives the same drawing.

Lengths are in the caller's units; y grows downwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loopscope.analysis.isotonic import rising

Edge = tuple[int, int]
"""Indexes of the nodes that it leads from and to."""
Place = tuple[float, float]
_SWEEPS = 12


@dataclass(frozen=True)
class Size:
    width: float
    height: float


@dataclass(frozen=True)
class Spacing:
    gap: float
    """Between layers."""
    between: float
    """Between nodes of a layer."""
    port: float
    """Between the ends of edges at a node."""
    track: float
    """Between the ways of edges that close loops."""


@dataclass(frozen=True)
class Way:
    """Corners of an edge, from the right side of its first node to the left one of its last."""

    corners: tuple[Place, ...]
    closes: bool
    """Whether it closes a loop, and goes back below everything."""


@dataclass(frozen=True)
class Drawing:
    centres: tuple[Place, ...]
    """The centre of each node, in their order."""
    ways: tuple[Way, ...]
    """The way of each edge, in their order."""
    width: float
    height: float


def closing_edges(nodes: int, edges: Sequence[Edge]) -> frozenset[int]:
    """The edges without which there is no loop, by Eades, Lin and Smyth (1993); few, if not least.

    Where nothing else decides, a loop is cut before the node that comes first.
    """
    left = dict.fromkeys(range(nodes))
    first: list[int] = []
    last: list[int] = []
    while left:
        degree = {each: [0, 0] for each in left}
        for start, end in edges:
            if start in left and end in left and start != end:
                degree[start][0] += 1
                degree[end][1] += 1
        sinks = [each for each in left if not degree[each][0]]
        sources = [each for each in left if not degree[each][1]]
        if sources:
            taken = sources[0]
            first.append(taken)
        elif sinks:
            taken = sinks[-1]
            last.insert(0, taken)
        else:
            taken = max(left, key=lambda each: degree[each][0] - degree[each][1])
            first.append(taken)
        del left[taken]
    place = {node: at for at, node in enumerate((*first, *last))}
    return frozenset(i for i, (start, end) in enumerate(edges) if place[start] >= place[end])


def layers_of(lowest: Sequence[int], edges: Sequence[Edge]) -> list[int]:
    """The layer of each node, from 0, so that each edge leads to a higher one; without loops.

    ``lowest`` are the least layers of the nodes, less what is left empty. A node that nothing leads
    to is one layer before the first that it leads to.
    """
    nodes = len(lowest)
    after: list[list[int]] = [[] for _ in range(nodes)]
    entering = [0] * nodes
    for start, end in edges:
        after[start].append(end)
        entering[end] += 1
    found = list(lowest)
    sources = [node for node in range(nodes) if not entering[node]]
    ready = list(sources)
    while ready:
        node = ready.pop()
        for end in after[node]:
            found[end] = max(found[end], found[node] + 1)
            entering[end] -= 1
            if not entering[end]:
                ready.append(end)
    for node in sources:
        if after[node]:
            found[node] = min(found[end] for end in after[node]) - 1
    return [each - min(found) for each in found]


def drawing(
    sizes: Sequence[Size],
    lowest: Sequence[int],
    edges: Sequence[Edge],
    leads: Sequence[Place],
    spacing: Spacing,
) -> Drawing:
    """Where nodes of these sizes and the edges between them are.

    Where edges lead between two kinds of nodes alone, ``lowest`` layers of 0 and 1 keep the kinds
    in layers of their own. ``leads`` are how far each edge, where it closes a loop, stays level at
    its beginning and end.
    """
    closing = closing_edges(len(sizes), edges)
    forward = [edge for i, edge in enumerate(edges) if i not in closing]
    layer = layers_of(lowest, forward)
    chains = _Chains(layer, edges, closing)
    order = _ordered(chains)
    heights = [size.height for size in sizes] + [spacing.port] * (chains.nodes - len(sizes))
    y = _heights(chains, order, heights, spacing.between)
    widths = [
        max((sizes[node].width for node in of if node < len(sizes)), default=0) for of in order
    ]
    turns_after = _turns(closing, [layer[start] for start, _ in edges])
    turns_before = _turns(closing, [layer[end] for _, end in edges])
    left = [0.0]
    for at, width in enumerate(widths[:-1]):
        turns = turns_after.count_in(at) + turns_before.count_in(at + 1)
        left.append(left[-1] + width + spacing.gap + turns * spacing.track)
    middle = [begin + width / 2 for begin, width in zip(left, widths, strict=True)]
    bottom = max((y[node] + heights[node] / 2 for node in range(len(y))), default=0)
    ports = _ports(chains, edges, closing, y, spacing.port)
    ways: list[Way] = []
    for i, (start, end) in enumerate(edges):
        out = (middle[layer[start]] + sizes[start].width / 2, y[start] + ports[i][0])
        into = (middle[layer[end]] - sizes[end].width / 2, y[end] + ports[i][1])
        if i in closing:
            right = left[layer[start]] + widths[layer[start]] + leads[i][0]
            right += turns_after.place[i] * spacing.track
            before = left[layer[end]] - leads[i][1] - turns_before.place[i] * spacing.track
            level = bottom + (sorted(closing).index(i) + 1) * spacing.track
            corners = ((right, out[1]), (right, level), (before, level), (before, into[1]))
            ways.append(Way((out, *corners, into), True))
            continue
        passed = [
            (left[chains.layer[node]] + side * widths[chains.layer[node]], y[node])
            for node in chains.between[i]
            for side in (0, 1)
        ]
        ways.append(Way((out, *passed, into), False))
    # What goes round may be farther to the left and to the right than the nodes.
    across = [x for way in ways for x, _ in way.corners]
    begin, last = min([0.0, *across]), max([left[-1] + max(widths[-1:], default=0), *across])
    return Drawing(
        tuple((middle[layer[node]] - begin, y[node]) for node in range(len(sizes))),
        tuple(
            Way(tuple((x - begin, height) for x, height in way.corners), way.closes) for way in ways
        ),
        last - begin,
        bottom + len(closing) * spacing.track,
    )


@dataclass(frozen=True)
class _Turns:
    """Where edges that close loops turn at one side of the layers."""

    layer: Mapping[int, int]
    """By edge."""
    place: Mapping[int, int]
    """Among those that turn at the same layer, from 1."""

    def count_in(self, layer: int) -> int:
        return sum(each == layer for each in self.layer.values())


def _turns(closing: frozenset[int], layer: Sequence[int]) -> _Turns:
    """``layer``: by edge."""
    count: Counter[int] = Counter()
    place = {}
    for i in sorted(closing):
        count[layer[i]] += 1
        place[i] = count[layer[i]]
    return _Turns({i: layer[i] for i in closing}, place)


class _Chains:
    """The graph with a node in each layer that an edge passes."""

    def __init__(
        self, layer: Sequence[int], edges: Sequence[Edge], closing: frozenset[int]
    ) -> None:
        self.layer = list(layer)
        self.between: dict[int, list[int]] = {}
        """The added nodes of each edge that closes no loop."""
        self.steps: list[Edge] = []
        """Edges between neighbouring layers."""
        for i, (start, end) in enumerate(edges):
            if i in closing:
                continue
            passed = range(layer[start] + 1, layer[end])
            self.between[i] = list(range(len(self.layer), len(self.layer) + len(passed)))
            self.layer += passed
            self.steps += pairwise([start, *self.between[i], end])
        self.nodes = len(self.layer)

    def neighbours(self, before: bool) -> list[list[int]]:
        """The neighbours of each node in the layer before or after it."""
        found: list[list[int]] = [[] for _ in range(self.nodes)]
        for start, end in self.steps:
            found[end if before else start].append(start if before else end)
        return found


def _ordered(chains: _Chains) -> list[list[int]]:
    """The nodes of each layer from top to bottom."""
    count = max(chains.layer, default=-1) + 1
    order = [[n for n in range(chains.nodes) if chains.layer[n] == each] for each in range(count)]
    best, least = [list(of) for of in order], _crossings(order, chains.steps)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        beside = chains.neighbours(before=forward)
        for each in range(count) if forward else reversed(range(count)):
            place = {node: at for of in order for at, node in enumerate(of)}
            means = {
                node: sum(place[n] for n in beside[node]) / len(beside[node])
                if beside[node] else place[node]
                for node in order[each]
            }  # fmt: skip
            order[each].sort(key=lambda node: means[node])
        crossings = _crossings(order, chains.steps)
        if crossings < least:
            best, least = [list(of) for of in order], crossings
    return best


def _crossings(order: Sequence[Sequence[int]], steps: Sequence[Edge]) -> int:
    place = {node: (layer, at) for layer, of in enumerate(order) for at, node in enumerate(of)}
    found = sorted((*place[start], place[end][1]) for start, end in steps)
    return sum(
        one[0] == other[0] and one[1] < other[1] and one[2] > other[2]
        for i, one in enumerate(found)
        for other in found[i + 1 :]
    )


def _heights(
    chains: _Chains, order: Sequence[Sequence[int]], heights: Sequence[float], between: float
) -> list[float]:
    """The middle of each node, near the mean of its neighbours'; the least upper end is 0."""
    y = [0.0] * chains.nodes
    for of in order:
        for node, at in zip(of, _stacked([0.0] * len(of), of, heights, between), strict=True):
            y[node] = at
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        beside = chains.neighbours(before=forward)
        for of in order if forward else reversed(order):
            wanted = [
                sum(y[n] for n in beside[node]) / len(beside[node]) if beside[node] else y[node]
                for node in of
            ]
            for node, at in zip(of, _stacked(wanted, of, heights, between), strict=True):
                y[node] = at
    top = min((y[node] - heights[node] / 2 for node in range(chains.nodes)), default=0)
    return [each - top for each in y]


def _stacked(
    wanted: Sequence[float], of: Sequence[int], heights: Sequence[float], between: float
) -> list[float]:
    """Places in this order and without overlap with the least squares of what is not as wanted.

    Less what the nodes above take, places may not fall: an isotonic regression.
    """
    taken = [0.0]
    for above, below in pairwise(of):
        taken.append(taken[-1] + (heights[above] + heights[below]) / 2 + between)
    free = [want - offset for want, offset in zip(wanted, taken, strict=True)]
    level = rising(free, [1.0] * len(free))
    return [each + offset for each, offset in zip(level, taken, strict=True)]


def _ports(
    chains: _Chains,
    edges: Sequence[Edge],
    closing: frozenset[int],
    y: Sequence[float],
    apart: float,
) -> list[tuple[float, float]]:
    """How far below the middles of its nodes each edge begins and ends.

    At a node they are in the order of where they lead; those that close loops are the lowest.
    """
    found = [[0.0, 0.0] for _ in edges]
    for side in (0, 1):
        ends: dict[int, list[tuple[bool, float, int]]] = {}
        for i, edge in enumerate(edges):
            between = chains.between.get(i, [])
            towards = [*between, edge[1]][0] if side == 0 else [edge[0], *between][-1]
            ends.setdefault(edge[side], []).append((i in closing, y[towards], i))
        for of_node in ends.values():
            for at, (_, _, i) in enumerate(sorted(of_node)):
                found[i][side] = (at - (len(of_node) - 1) / 2) * apart
    return [(out, into) for out, into in found]
