"""The events that messages go through: the keys of ``measure``, and paths read from the tree."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from . import event_values, path_dag, values
from .event_selection import check_recorded
from .file_section import Section, word_or_mapping
from .measures import Use, key_of
from .model_figures import Value
from .path_dag import Shape
from .place import Place
from .quantity import DURATION
from .values import Quantity
from .yaml_tree import Mapping, Scalar, Tree, child, elements, entries, text_of

Text = Annotated[str, values.Text()]


class JoinedInput(Section):
    """Use of another event's messages by an event."""

    use: Literal["every", "latest"] | None = Field(
        default=None,
        description="every: the message with the same number, of every such input. latest: the "
        "newest that had arrived.",
    )
    window: Annotated[int | None, Quantity(DURATION, "1ns", "1h")] = Field(
        default=None, description="All that had arrived in the time before, such as 100ms."
    )
    from_: Annotated[str, values.Key()] | None = Field(
        default=None,
        alias="from",
        description="Field of the event that holds the number of the message that was used (a list "
        "where it is several). "
        "Default: of every, the field that numbers the input; of latest, the stamps tell.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        if len(at.keys & {"use", "window"}) != 1:
            message = "say how it is joined: use (every or latest) or window, one of them"
            at.report(message, at_key=True)


class GraphEvent(Section):
    """An event of a branching path."""

    event: Annotated[str, event_values.Event()] = Field(description="component/group:name.")
    key: Annotated[str, values.Key()] | None = Field(
        default=None,
        description="id, the name of a field, or a list of several: what numbers this event's "
        "messages from here on. Default: as at the event before; of every, as at its inputs. What "
        "joins by latest or window needs none.",
    )
    from_: Annotated[str, values.Key()] | None = Field(
        default=None,
        alias="from",
        description="Where the number is another than at the event before: the field that holds "
        "the number of the message there, which this one was made of; a list where it is several.",
    )
    after: Annotated[str, event_values.Event()] | None = Field(
        default=None,
        description="The event that this one follows, in which the path branches. Default: the "
        "one before it in the list.",
    )
    join: (
        dict[
            Annotated[str, event_values.Event()],
            Annotated[
                Annotated[Literal["every", "latest"], Tag("<word>")]
                | Annotated[JoinedInput, Tag("<mapping>")],
                word_or_mapping(
                    "an input is joined by every, latest, {window: DURATION} or {use: latest, "
                    "from: FIELD}"
                ),
            ],
        ]
        | None
    ) = Field(
        default=None,
        description="Events of its own host whose messages this one uses, each with how: every "
        "(the one with the same number, of each input), latest (the newest that had arrived: "
        "sample and hold), or {window: 100ms} (all that had arrived in the last 100 ms).",
    )
    source: Annotated[bool, values.Boolean()] = Field(
        default=False, description="Whether its messages begin here and it comes after nothing."
    )


class Path(Section):
    """The events that a message goes through."""

    key: Annotated[str, values.Key()] = Field(
        default="id",
        description="What ties a message's events together: id, or the name of a field that every "
        "event of the path has (whole numbers, text or bytes), or a list of several such fields.",
    )
    events: list[
        Annotated[
            Annotated[str, event_values.Event(), Tag("<word>")]
            | Annotated[GraphEvent, Tag("<mapping>")],
            word_or_mapping(
                "an event is written component/group:name, or as a mapping {event: "
                "component/group:name, …}"
            ),
        ]
    ] = Field(
        min_length=2,
        examples=[["sensor/loop:sent", "controller/loop:received"]],
        description="component/group:name of each event, in order. A mapping says that the path "
        "branches, joins or goes on with another number there.",
    )
    trim: Annotated[int, Quantity(DURATION, "0s")] | None = Field(
        default=None,
        description="How long after the first message of each repeat messages are left out of all "
        "statistics, counts among them, such as 2s. Default: the `warmup` of the first measured "
        "phase, or nothing.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        first: set[str] = set()
        items = at.elements("events")
        for item in items:
            event = event_of(item.tree)
            if event is not None:
                if event in first:
                    item.report(f"the event {event} is in the path twice: a message has it once")
                first.add(event)
                check_recorded(item, event)
        steps = _steps(at.tree) if is_graph(at.tree) else None
        if steps is None:
            return
        host_of = {
            name: component.text_at("host") for name, component in at.whole.entries("components")
        }
        host_of |= at.names.services
        key = key_text(child(at.tree, "key")) or "id"
        for mistake in path_dag.graph(steps, key, host_of)[1]:
            step = items[mistake.step]
            # The mistake of a joined event stands at its name, which is a key.
            named = len(mistake.place) == 2 and step.get(*mistake.place) is not None
            depth = next(n for n in (3, 2, 1, 0) if step.get(*mistake.place[:n]))
            where = step.get(*mistake.place[:depth]) or step
            where.report(mistake.message, mistake.hint, at_key=named)


class Pattern(Section):
    """Types of messages, each with a target for its latency at every consumer."""

    table: Text = Field(
        description="Message table, CSV or YAML, in this file's folder; its producers and "
        "consumers are components."
    )
    sent: Annotated[str, event_values.Entity()] = Field(
        default="pattern:sent",
        validate_default=True,
        description="group:name of the event of a message that is sent, with the fields "
        "message_type (the row of the table, from 0), late_ns and within_ns.",
    )
    received: Annotated[str, event_values.Entity()] = Field(
        default="pattern:received",
        validate_default=True,
        description="group:name of the event of a message that has arrived, with the field "
        "message_type.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        for key in ("sent", "received"):
            given = at.get(key)
            entity = given.text if given else cls.model_fields[key].default
            check_recorded(given or at, entity or "", at_key=given is None)


class Measure(Section):
    """Measurements that are computed from the recorded events."""

    paths: dict[Annotated[str, values.Name("a path", 64)], Path] = Field(
        default={}, description="Paths by name."
    )
    patterns: dict[Annotated[str, values.Name("a pattern", 64)], Pattern] = Field(
        default={},
        description="Message patterns by name. Every target in a table is an expectation, and so "
        "is that no message with a target is lost.",
    )
    values_: dict[Annotated[str, values.Name("a value", 64)], Value] = Field(
        default={}, alias="values", description="Numbers made of single entities, by name."
    )
    subtract_cost: Annotated[bool, values.Boolean()] = Field(
        default=False,
        description="Whether the time that recording itself takes is subtracted from every "
        "interval: one event's cost, as measured on its host, for each event of the path from the "
        "interval's first to the one before its last. Widens the maximum errors.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        graphs = [is_graph(path.tree) for _, path in at.entries("paths")]
        subtract = at.get("subtract_cost")
        if any(graphs) and subtract is not None and subtract.is_true:
            subtract.report(
                "the cost of recording can be subtracted from paths that are lists of events only"
            )


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
    """Shape of each branching path, None where it is not valid."""
    found: dict[str, Shape | None] = {}
    for name, _, path in entries(paths):
        if is_graph(path):
            steps = _steps(path)
            right = steps is not None and not path_dag.graph(steps, "id", {})[1]
            found[name] = path_dag.shape(steps) if steps is not None and right else None
    return found


def not_watched(root: Tree, name: str | None) -> str | None:
    """Why no host can tell during the run that a path's message is late; None where one can."""
    path = child(child(child(root, "measure"), "paths"), name or "")
    if is_graph(path):
        return f"the path {name!r} branches: only a list of events can trigger"
    key = key_text(child(path, "key"))
    if key not in (None, "id"):
        return f"the path {name!r} goes by {key}: only one that goes by id can trigger"
    if told := told_afterwards(root, name):
        return f"{told} is told from the kernel's events when the run is over, and triggers nothing"
    return None


def told_afterwards(root: Tree, name: str | None) -> str | None:
    """The first event of a path that is told from the kernel's; None where it has none."""
    path = child(child(child(root, "measure"), "paths"), name or "")
    told = (child(child(root, "trace"), key) for key in event_values.TOLD)
    groups = {group for each in told for group, _, _ in entries(each)}
    for item in elements(child(path, "events")):
        event = event_of(item) or ""
        if event.partition("/")[2].partition(":")[0] in groups:
            return event
    return None


def _steps(path: Tree | None) -> list[path_dag.Step] | None:
    """None where one of them cannot be read."""
    found = []
    for item in elements(child(path, "events")):
        event = event_of(item)
        given = child(item, "join")
        if event is None or (given is not None and not isinstance(given, Mapping)):
            return None
        source = child(item, "source")
        joins = {name: _join(join) for name, _, join in entries(given)}
        step = path_dag.Step(
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
    # An event that occurs twice is reported as such.
    return found if 0 < len({step.event for step in found}) == len(found) else None


_TEXTS = (("key", "key"), ("from", "field"), ("after", "after"))


def _join(join: Tree) -> path_dag.Join:
    use: Use = "latest"
    if child(join, "window") is not None:
        use = "window"
    elif "every" in (text_of(join), text_of(child(join, "use"))):
        use = "every"
    return path_dag.Join(use, key_text(child(join, "from")))
