"""Graphs of nodes that process pictures: read from a file or made in Python, and checked.

A node's output is a channel of its name, so nodes are threads of one process, or of several on any
hosts, without a difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from loopscope_video.errors import SettingsError, nearest
from loopscope_video.nodes import KINDS, Settings, TimedSource
from loopscope_video.settings import read

Policy = Literal["newest", "every", "latest"]


@dataclass(frozen=True)
class Edge:
    """From a node's output to an input of another one."""

    source: str
    policy: Policy
    """newest: what is older is passed over, and the source never waits for it. every: each in its
    turn, and the source waits when its channel is full. latest, of an input after the first: the
    newest that there is, whatever its time, or nothing; nobody waits."""


@dataclass(frozen=True)
class Node:
    """A node: its name, what it does, and where its inputs come from."""

    name: str
    settings: Settings
    inputs: tuple[Edge, ...]


@dataclass(frozen=True)
class Graph:
    """Nodes by their names; sources come before what uses them."""

    nodes: dict[str, Node]

    @staticmethod
    def load(file: Path, changes: Mapping[str, Mapping[str, Any]] | None = None) -> Graph:
        """The graph of a YAML file. Raises SettingsError with a line for each mistake.

        `changes`: settings of nodes that replace the file's.
        """
        try:
            document = yaml.safe_load(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"{file}: {error.strerror}") from None
        except (UnicodeDecodeError, yaml.YAMLError) as error:
            raise SettingsError(f"{file}: {' '.join(str(error).split())}") from None
        if not isinstance(document, dict) or set(document) != {"nodes"}:
            raise SettingsError(f"{file}: a graph has nodes: and nothing else")
        try:
            return Graph.of(_changed(document["nodes"], changes or {}))
        except SettingsError as error:
            raise SettingsError(
                "\n".join(f"{file}: {line}" for line in str(error).splitlines())
            ) from None

    @staticmethod
    def of(nodes: Any) -> Graph:
        """The graph of a mapping of names to nodes.

        >>> graph = Graph.of({
        ...     "camera": {"kind": "scene"},
        ...     "small": {"kind": "scale", "from": "camera", "width": 160},
        ... })
        >>> [edge.source for edge in graph.nodes["small"].inputs]
        ['camera']

        Raises SettingsError with a line for each mistake.
        """
        if not isinstance(nodes, Mapping) or not nodes:
            raise SettingsError("nodes is a mapping of names to nodes")
        found: dict[str, Node] = {}
        problems: list[str] = []
        for name, given in nodes.items():
            try:
                found[name] = _node(name, given)
            except SettingsError as error:
                problems += [f"{name}: {line}" for line in str(error).splitlines()]
        if not problems:
            problems = [*_wrong_edges(found)]
        if problems:
            raise SettingsError("\n".join(problems))
        return Graph(_ordered(found))

    def chosen(self, names: list[str] | None) -> list[Node]:
        """The nodes of these names, None: all, in the graph's order. Raises SettingsError."""
        for name in names or ():
            if name not in self.nodes:
                raise SettingsError(f"nodes: {_unknown('node', name, self.nodes)}")
        return [node for node in self.nodes.values() if names is None or node.name in names]


def _changed(nodes: Any, changes: Mapping[str, Mapping[str, Any]]) -> Any:
    """The nodes with other settings."""
    if not isinstance(nodes, Mapping):
        return nodes
    for name in changes:
        if name not in nodes:
            raise SettingsError(f"set: {_unknown('node', name, nodes)}")
    return {
        name: {**given, **changes.get(name, {})} if isinstance(given, Mapping) else given
        for name, given in nodes.items()
    }


def _node(name: Any, given: Any) -> Node:
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 100:
        raise SettingsError("a node's name is a text of 1 to 100 bytes")
    if not isinstance(given, Mapping):
        raise SettingsError("a node is a mapping with its kind and its settings")
    config = dict(given)
    kind = config.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingsError(f"kind: {_unknown('kind', kind, KINDS)}")
    inputs = tuple(_edge(each) for each in _listed(config.pop("from", [])))
    least, further = len(KINDS[kind].takes), KINDS[kind].further
    most = least + len(KINDS[kind].optional)
    if len(inputs) < least or (len(inputs) > most and not further):
        many = f"{least} or more" if further else f"{least} or {most}" if most > least else least
        what = f"{many or 'no'} input{'' if most == 1 and not further else 's'}"
        raise SettingsError(f"from: a node of kind {kind} has {what}, and not {len(inputs)}")
    _check_latest(kind, inputs)
    return Node(name, read(KINDS[kind], config), inputs)


def _check_latest(kind: str, inputs: tuple[Edge, ...]) -> None:
    latest = [number for number, edge in enumerate(inputs) if edge.policy == "latest"]
    if latest and not KINDS[kind].may_lack:
        others = ", ".join(name for name, model in KINDS.items() if model.may_lack)
        raise SettingsError(
            f"from: {inputs[latest[0]].source}: latest may bring nothing, and a node of kind "
            f"{kind} needs all of its inputs; latest is for {others}"
        )
    if latest[:1] == [0]:
        raise SettingsError(
            f"from: {inputs[0].source}: the first input says when there is something to do, and "
            "cannot be latest"
        )


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list) else [given]


def _edge(given: Any) -> Edge:
    """`NODE`, or `{NODE: POLICY}`."""
    if isinstance(given, str):
        return Edge(given, "newest")
    if isinstance(given, Mapping) and len(given) == 1:
        ((source, policy),) = given.items()
        if isinstance(source, str) and policy in get_args(Policy):
            return Edge(source, policy)
    policies = ", ".join(get_args(Policy))
    raise SettingsError(
        f"from: {given!r} is neither NODE nor {{NODE: POLICY}}; there are the policies {policies}"
    )


def _wrong_edges(nodes: Mapping[str, Node]) -> list[str]:
    problems = []
    held_up = {
        edge.source for node in nodes.values() for edge in node.inputs if edge.policy == "every"
    }
    for node in nodes.values():
        free = isinstance(node.settings, TimedSource) and node.settings.rate_hz is None
        if free and node.name not in held_up:
            problems.append(
                f"{node.name}: rate_hz: null goes on as fast as its readers take every item, and "
                f"no node has from: {{{node.name}: every}}"
            )
        takes = [*node.settings.takes, *node.settings.optional][: len(node.inputs)]
        takes += [node.settings.further] * (len(node.inputs) - len(takes))
        for edge, allowed in zip(node.inputs, takes, strict=True):
            if edge.source not in nodes:
                problems.append(f"{node.name}: from: {_unknown('node', edge.source, nodes)}")
                continue
            gives = nodes[edge.source].settings.gives
            if gives not in allowed:
                wanted = " or ".join(sorted(each.value for each in allowed))
                comes = "nothing" if gives is None else gives.value
                problems.append(
                    f"{node.name}: from: {edge.source} gives {comes}, and {wanted} are wanted"
                )
    return problems


def _ordered(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Each node after those that it uses. Raises SettingsError where they go in a circle."""
    left, found = dict(nodes), dict[str, Node]()
    while left:
        ready = [
            node for node in left.values() if all(edge.source in found for edge in node.inputs)
        ]
        if not ready:
            raise SettingsError(f"{', '.join(left)}: their edges go in a circle")
        for node in ready:
            found[node.name] = left.pop(node.name)
    return found


def _unknown(what: str, name: Any, there: Mapping[str, Any]) -> str:
    return f"no {what} {name!r}; {nearest(str(name), there)}"
