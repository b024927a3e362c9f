"""A branching path: which event's messages each event follows or uses, and by which numbers.

Pure, so that the rules, which report every mistake at its place, and the plan, which has none left,
ask the same code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import order
from .measures import PathEdge, Use
from .problem import nearest


@dataclass(frozen=True)
class Join:
    """Use of another event's messages by an event, whose ``field`` holds the used one's number."""

    use: Use
    field: str | None = None
    window_ns: int | None = None


@dataclass(frozen=True)
class Step:
    """An entry of a path's events, as written. ``field``: what the file calls ``from``."""

    event: str
    key: str | None = None
    field: str | None = None
    after: str | None = None
    joins: Mapping[str, Join] | None = None
    source: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the event's text alone would say the same."""
        return self == Step(self.event)


@dataclass(frozen=True)
class Mistake:
    """A mistake in a step, at ``place`` within it."""

    step: int
    place: tuple[str, ...]
    message: str
    hint: str | None = None


@dataclass(frozen=True)
class Shape:
    """Edges of a branching path without mistakes; events as written.

    ``edges`` from an event to one that follows or uses it.
    """

    edges: Mapping[tuple[str, str], Use]

    def uses(self, first: str, last: str) -> set[Use]:
        """Ways in which the events from one to another use earlier ones.

        Empty where nothing leads from the one to the other.
        """
        behind, ahead = {last}, {first}
        for _ in self.edges:
            behind |= {start for start, end in self.edges if end in behind}
            ahead |= {end for start, end in self.edges if start in ahead}
        if first == last or first not in behind:
            return set()
        way = behind & ahead
        return {use for edge, use in self.edges.items() if {*edge} <= way}

    @property
    def sources(self) -> list[str]:
        """In the order of the file, as the sinks are."""
        ends = {end for _, end in self.edges}
        return list(dict.fromkeys(start for start, _ in self.edges if start not in ends))

    @property
    def sinks(self) -> list[str]:
        starts = {start for start, _ in self.edges}
        return list(dict.fromkeys(end for _, end in self.edges if end not in starts))


def shape(steps: Sequence[Step]) -> Shape:
    """The shape of the graph that steps without mistakes make."""
    inputs = before(steps)
    return Shape(
        {
            (event, step.event): (step.joins or {}).get(event, Join("key")).use
            for step in steps
            for event in inputs[step.event]
        }
    )


@dataclass
class Graph:
    """Events so that each comes after what it is made of; edges in the order of their ends.

    ``keys``: the field that numbers the messages of each event. None: they have no numbers.
    """

    events: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    edges: list[PathEdge] = field(default_factory=list)


def before(steps: Sequence[Step]) -> dict[str, list[str]]:
    """For each event those whose messages it follows or uses, also unknown ones."""
    found: dict[str, list[str]] = {}
    previous: str | None = None
    for step in steps:
        if step.joins is not None:
            inputs = list(step.joins)
        elif step.after is not None:
            inputs = [step.after]
        else:
            inputs = [previous] if previous is not None and not step.source else []
        found.setdefault(step.event, inputs)
        previous = step.event
    return found


def graph(
    steps: Sequence[Step], key: str, host_of: Mapping[str, str | None]
) -> tuple[Graph, list[Mistake]]:
    """The graph of steps whose events differ, and what is wrong with it.

    Where something is, the graph is of what could be read.

    ``key`` numbers the messages of sources that say nothing else; ``host_of`` are the components',
    None where one cannot be read.
    """
    mistakes: list[Mistake] = []
    inputs = before(steps)
    place = {step.event: i for i, step in enumerate(steps)}
    for i, step in enumerate(steps):
        mistakes += _misused(i, step)
        if step.joins is not None and not step.joins:
            message = f"{step.event} joins nothing: name the events whose messages it uses"
            mistakes.append(Mistake(i, ("join",), message))
        for event in inputs[step.event]:
            if event not in place:
                where = ("join", event) if step.joins is not None else ("after",)
                message = f"the path has no event {event!r}"
                mistakes.append(Mistake(i, where, message, nearest(event, place)))
    known = {event: [each for each in inputs[event] if each in place] for event in place}
    circle = order.cycle(known)
    if circle is not None:
        i = place[circle[0]]
        message = f"these events wait for each other: {' after '.join([*circle, circle[0]])}"
        mistakes.append(Mistake(i, (_where(steps[i]),), message))
    made = Graph(events=order.in_order(known))
    for event in made.events:
        _add(made, place[event], steps[place[event]], known[event], key, mistakes)
    mistakes += _elsewhere(steps, known, host_of)
    return made, mistakes or _apart(steps, known)


def _misused(i: int, step: Step) -> list[Mistake]:
    """Keys that exclude each other."""
    found = []
    given = {"after": step.after, "join": step.joins, "source": step.source or None}
    several = [name for name, value in given.items() if value is not None]
    if len(several) > 1:
        message = f"{step.event} has {' and '.join(several)}: it can have one of them"
        found.append(Mistake(i, (several[-1],), message))
    if step.field is not None and step.joins is not None:
        message = "from is of an event that follows one other: write {EVENT: {use: …, from: FIELD}}"
        found.append(Mistake(i, ("from",), message))
    elif step.field is not None and (step.source or (i == 0 and step.after is None)):
        message = f"{step.event} comes after nothing that from could name a message of"
        found.append(Mistake(i, ("from",), message))
    for event, join in (step.joins or {}).items():
        if join.use == "window" and join.field is not None:
            message = "a window is of all messages of a time, so no field can name the one"
            found.append(Mistake(i, ("join", event, "from"), message))
    return found


def _add(
    made: Graph, i: int, step: Step, inputs: list[str], key: str, mistakes: list[Mistake]
) -> None:
    """One event with the edges to it, after all its inputs."""
    end = len(made.keys)
    numbers = {event: made.keys[made.events.index(event)] for event in inputs}
    for event, number in numbers.items():
        join = (step.joins or {}).get(event, Join("key"))
        field_ = step.field if join.use == "key" else join.field
        by_number = field_ is not None or join.use in ("key", "every")
        where = ("join", event) if step.joins is not None else (_where(step),)
        if by_number and number is None:
            message = f"the messages of {event} have no number to know them by: give it a key"
            mistakes.append(Mistake(i, where, message))
        renumbered = step.key not in (None, number)
        if join.use == "key" and renumbered and field_ is None and number is not None:
            message = (
                f"{step.event} is numbered by {step.key} and {event} by {number}: which field of "
                f"{step.event} holds the number of what it was made of? Add it as from; it may be "
                f"{step.key} itself"
            )
            mistakes.append(Mistake(i, ("key",), message))
        if by_number and field_ is None:
            field_ = number
        start = made.events.index(event)
        made.edges.append(PathEdge(start, end, join.use, field_, join.window_ns))
    made.keys.append(_number(i, step, numbers, key, mistakes))


def _number(
    i: int, step: Step, numbers: Mapping[str, str | None], key: str, mistakes: list[Mistake]
) -> str | None:
    """Name of the numbering of an event's messages; None where it has none of its own."""
    if step.key is not None:
        return step.key
    if step.joins is None:
        return step.field or next(iter(numbers.values()), key)
    # A set of messages has their common number; an event that takes what there is has none.
    whole = {numbers.get(event) for event, join in step.joins.items() if join.use == "every"}
    if len(whole) > 1:
        names = " and ".join(sorted(str(name) for name in whole))
        message = f"{step.event} joins messages that are numbered by {names}: give it a key"
        mistakes.append(Mistake(i, ("join",), message))
    return next(iter(whole), None)


def _elsewhere(
    steps: Sequence[Step], inputs: Mapping[str, list[str]], host_of: Mapping[str, str | None]
) -> list[Mistake]:
    """Joins of what was not seen to arrive."""
    found = []
    for i, step in enumerate(steps):
        here = step.event.partition("/")[0]
        for event in inputs[step.event] if step.joins is not None else ():
            there = event.partition("/")[0]
            hosts = host_of.get(here), host_of.get(there)
            if None not in hosts and hosts[0] != hosts[1]:
                message = (
                    f"{event} is on {hosts[1]} and {step.event} on {hosts[0]}: join the event of "
                    f"its arrival on {hosts[0]}, so that what was lost differs from what was not "
                    "used"
                )
                found.append(Mistake(i, ("join", event), message))
    return found


def _apart(steps: Sequence[Step], inputs: Mapping[str, list[str]]) -> list[Mistake]:
    """Parts that nothing connects with the first event."""
    beside: dict[str, set[str]] = {event: set(found) for event, found in inputs.items()}
    for event, found in inputs.items():
        for each in found:
            beside[each].add(event)
    reached: set[str] = set()
    waiting = [steps[0].event]
    while waiting:
        event = waiting.pop()
        if event not in reached:
            reached.add(event)
            waiting += beside[event]
    for i, step in enumerate(steps):
        if step.event not in reached:
            message = (
                f"nothing connects {step.event} with {steps[0].event}: say what it comes after, "
                "or make it a path of its own"
            )
            return [Mistake(i, (), message)]
    return []


def _where(step: Step) -> str:
    """The key that says what a step comes after."""
    return "join" if step.joins is not None else "after" if step.after is not None else "event"
