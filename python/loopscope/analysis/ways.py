"""The ways through a branching path, and the messages along one as those of a list of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.analysis.message_dag import read_graph
from loopscope.timeline import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loopscope.analysis.messages import Messages
    from loopscope.experiment import MessagePath
    from loopscope.timeline import Run


def messages_along(
    run: Run, path: MessagePath, start: str | None, end: str | None, through: str | None
) -> Messages:
    """The messages of a branching path from one event to another, until their first uses.

    None: from an event that it begins with to one that it ends with. ``through`` is an event that
    the way has. Raises `RunError` where it has no such way or several, and where a table cannot be
    read.
    """
    way = way_of(path, start, end, through)
    graph, _ = read_graph(run, path)
    return graph.along(way)


def way_of(path: MessagePath, start: str | None, end: str | None, through: str | None) -> list[int]:
    """The only way from one event to another through a third, see `messages_along`."""
    names = [str(event) for event in path.events]
    for given in (start, end, through):
        if given is not None and given not in names:
            known = ", ".join(names)
            raise RunError(f"path {path.name} has no event {given!r}; it has: {known}")
    firsts = path.sources if start is None else [names.index(start)]
    lasts = path.sinks if end is None else [names.index(end)]
    ways = [
        way
        for first in firsts
        for last in lasts
        for way in ways_between(path, first, last)
        if len(way) > 1 and (through is None or names.index(through) in way)
    ]
    if len(ways) == 1:
        return ways[0]
    shown = "; ".join(" → ".join(names[each] for each in way) for way in ways)
    if not ways:
        raise RunError(f"path {path.name} has no way from and to these events")
    raise RunError(
        f"path {path.name} has several ways, say which by --from, --to, --through: {shown}"
    )


def only_way(path: MessagePath, ends: Sequence[tuple[int, int]]) -> list[int] | None:
    """The only way from the first event of one of the pairs to its second; None if several."""
    ways = [way for first, last in ends for way in ways_between(path, first, last)]
    return ways[0] if len(ways) == 1 else None


def ways_between(path: MessagePath, first: int, last: int) -> Iterator[list[int]]:
    """Every way from an event to another one."""
    if first == last:
        yield [last]
        return
    for start, end in path.hops:
        if end == last:
            yield from ([*way, last] for way in ways_between(path, first, start))
