"""A branching path, in words: what each event's messages are made of."""

from __future__ import annotations

from .measures import Path, PathEdge


def described(path: Path) -> list[str]:
    """A line for each event; none of a path that is a list."""
    if not path.edges:
        return []
    lines = []
    for i, event in enumerate(path.events):
        inputs = [edge for edge in path.edges if edge.end == i]
        made = " and ".join(_input(path, edge) for edge in inputs) or "begins"
        number = path.keys[i]
        numbered = "" if number is None else f"; numbered by {number}"
        lines.append(f"{event} {made}{numbered}")
    return lines


def _input(path: Path, edge: PathEdge) -> str:
    event = path.events[edge.start]
    if edge.use == "key":
        return f"follows {event} by {edge.field}"
    if edge.window_ns is not None:
        return f"uses all of {event} in the last {_milliseconds(edge.window_ns)}, by time"
    what = "the latest" if edge.use == "latest" else "every"
    return f"uses {what} {event}, by {edge.field or 'time'}"


def _milliseconds(ns: int) -> str:
    return f"{ns / 1e6:g} ms"
