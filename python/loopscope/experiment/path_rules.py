"""Paths of the file that are graphs: read from the tree, and what is wrong with them."""

from __future__ import annotations

from . import path_graph
from .measures import Use, key_of
from .path_graph import Join, Shape, Step
from .source import Location, Mapping, Mark, Scalar, Tree, child, elements, entries, text_of
from .values import Names, Report


def event_of(item: Tree) -> str | None:
    """The event that an entry of a path's events names."""
    return text_of(child(item, "event")) if isinstance(item, Mapping) else text_of(item)


def key_text(tree: Tree | None) -> str | None:
    """A key of one field or of several as the plan has it; None for one that cannot be read."""
    fields = [text_of(item) for item in elements(tree)] or [text_of(tree)]
    return None if None in fields else key_of(field for field in fields if field is not None)


def events(paths: Tree | None) -> dict[str, tuple[str | None, ...]]:
    """Each path's events as written, None for one that cannot be read."""
    return {
        name: tuple(event_of(item) for item in elements(child(path, "events")))
        for name, _, path in entries(paths)
    }


def is_graph(path: Tree | None) -> bool:
    """Whether an entry says more than its event."""
    return any(
        isinstance(item, Mapping) and item.items.keys() - {"event"}
        for item in elements(child(path, "events"))
    )


def graphs(paths: Tree | None) -> dict[str, Shape | None]:
    """Of each path that is a graph what leads where, None where that is not right."""
    found: dict[str, Shape | None] = {}
    for name, _, path in entries(paths):
        if is_graph(path):
            steps = _steps(path)
            right = steps is not None and not path_graph.graph(steps, "id", {})[1]
            found[name] = path_graph.shape(steps) if steps is not None and right else None
    return found


def graphs_are_whole(root: Tree, known: Names, report: Report) -> None:
    """What one graph's entries must be together."""
    host_of = {
        name: text_of(child(component, "host"))
        for name, _, component in entries(child(root, "components"))
    }
    measure = child(root, "measure")
    found = False
    for name, _, path in entries(child(measure, "paths")):
        place: Location = ("measure", "paths", name)
        items = elements(child(path, "events"))
        for i, item in enumerate(items):
            for event, mark, join in entries(child(item, "join")):
                _joined_one_way((*place, "events", i, "join", event), mark, join, report)
        if not is_graph(path):
            continue
        found = True
        steps = _steps(path)
        if steps is None:
            continue
        key = key_text(child(path, "key")) or "id"
        for mistake in path_graph.graph(steps, key, host_of)[1]:
            mark = _mark(items[mistake.step], mistake.place)
            where = (*place, "events", mistake.step, *mistake.place)
            report(mark, where, mistake.message, mistake.hint)
    subtract = child(measure, "subtract_cost")
    if found and isinstance(subtract, Scalar) and subtract.value is True:
        message = "the cost of recording can be subtracted from paths that are lists of events only"
        report(subtract.mark, ("measure", "subtract_cost"), message)


def _mark(step: Tree, place: tuple[str, ...]) -> Mark:
    """Of a value in a step; of a joined event its name, which is a key."""
    mark = step.mark
    tree: Tree | None = step
    for part in place:
        found = child(tree, part)
        if found is not None:
            named = len(place) == 2 and part == place[1] and isinstance(tree, Mapping)
            mark = tree.keys[part] if named and isinstance(tree, Mapping) else found.mark
        tree = found
    return mark


def _joined_one_way(place: Location, mark: Mark, join: Tree, report: Report) -> None:
    """A join that is a mapping says use or window."""
    if isinstance(join, Mapping) and len(join.items.keys() & {"use", "window"}) != 1:
        report(mark, place, "say how it is joined: use (every or latest) or window, one of them")


def _steps(path: Tree | None) -> list[Step] | None:
    """None where one of them cannot be read."""
    found = []
    for item in elements(child(path, "events")):
        event = event_of(item)
        given = child(item, "join")
        if event is None or (given is not None and not isinstance(given, Mapping)):
            return None
        source = child(item, "source")
        joins = {name: _join(join) for name, _, join in entries(given)}
        step = Step(
            event=event,
            key=key_text(child(item, "key")),
            field=key_text(child(item, "from")),
            after=text_of(child(item, "after")),
            joins=None if given is None else joins,
            source=isinstance(source, Scalar) and source.value is True,
        )
        if any(child(item, key) is not None and getattr(step, of) is None for key, of in _TEXTS):
            return None
        found.append(step)
    # What occurs twice is told as such.
    return found if 0 < len({step.event for step in found}) == len(found) else None


_TEXTS = (("key", "key"), ("from", "field"), ("after", "after"))


def _join(join: Tree) -> Join:
    use: Use = "latest"
    if child(join, "window") is not None:
        use = "window"
    elif "every" in (text_of(join), text_of(child(join, "use"))):
        use = "every"
    return Join(use, key_text(child(join, "from")))
