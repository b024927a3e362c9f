"""Readers of statements about measurements, for use in the models' annotations.

Statements are lines of ``expect``, statistics of figures and tables, statistics of values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import get_args

from . import event_values, expect_lines, values
from .expect_lines import MessageLine, NumberLine
from .grammar import ExpressionError
from .measures import SAMPLING, FigureStat, Use
from .problem import nearest
from .statistic_names import SPELLINGS, is_event, parse_subject, unit
from .values import JsonSchema, Names, Rule, text, wrong

TIME = "time"
STATS: tuple[FigureStat, ...] = get_args(FigureStat)
OF_VALUES = ("mean", "deviation", "min", "max", "sum", "last", "count", "share")
_PERCENTILE = r"p[0-9]{1,2}[0-9]*"


@dataclass(frozen=True)
class Expectation(Rule):
    """A statement about messages or about one number."""

    def read(self, value: object, names: Names) -> NumberLine | MessageLine:
        if not isinstance(value, str):
            wrong(f"an expectation is a text: {expect_lines.FORM}")
        try:
            line = expect_lines.parse_line(value, names.values)
        except ExpressionError as error:
            wrong(error.message, error.hint)
        if isinstance(line, MessageLine):
            _check_message_line(line, names)
            return line
        if is_event(line.path):
            event_values.Event().read(line.path, names)
        elif line.stat is not None:
            names.refer("path", line.path)
            _check_part(line.path, line.hop, line.stat, names)
        if line.clock is not None and line.path != expect_lines.EVERY_HOST:
            names.refer("host", line.path)
        return line

    def schema(self) -> JsonSchema:
        return {"type": "string"}


def _check_message_line(line: MessageLine, names: Names) -> None:
    """Refuses a line about what the file does not give, or that a branching path cannot meet."""
    if line.kind == "every":
        event_values.Event().read(line.subject, names)
        return
    if names.paths is not None and line.subject not in names.paths:
        if names.values is None:
            return
        known = [*names.paths, *names.values]
        wrong(f"there is no path {line.subject!r}", nearest(line.subject, known))
    if line.kind == "symmetric":
        _check_round_trip(line.subject, line.hop, names, "'symmetric'")
    uses = _uses(line.subject, line.hop, names, either_way=line.kind == "before")
    if line.kind in expect_lines.OF_EVERY_MESSAGE and uses & SAMPLING:
        said = expect_lines.OF_EVERY_MESSAGE[line.kind]
        wrong(
            f"{said} is said of messages that all go on; here an event takes the newest or those "
            "of a time, and leaves the others",
            f"{line.subject}{_brackets(line.hop)}.age < TIME",
        )


def _check_part(path: str, ends: tuple[str, str] | None, stat: str | None, names: Names) -> None:
    """Refuses a statistic (None: the messages) of what has none.

    That is no part of a path that the file gives, or a part without it.
    """
    uses = _uses(path, ends, names)
    if stat == "asymmetry":
        _check_round_trip(path, ends, names)
    if names.paths is None or (path in names.graphs and names.graphs[path] is None):
        return
    if stat == "superseded" and path not in names.graphs:
        wrong(f"superseded is of a branching path; {path!r} is a list of events")
    if stat == "age" and not uses - {"key"}:
        wrong(
            "age is one number where an event joins, of the data that it uses: say it of each "
            "message",
            f"expect: [{path}{_brackets(ends)}.age < TIME]",
        )


def _uses(
    path: str, ends: tuple[str, str] | None, names: Names, either_way: bool = False
) -> set[Use]:
    """Ways in which the events of a part of a path use earlier ones.

    Empty where that cannot be read. Refuses what is no part of a path that the file gives.
    """
    graph = names.graphs.get(path)
    if ends is None:
        if graph is None:
            return set()
        starts, stops = graph.sources, graph.sinks
        for what, several in (("beginnings", starts), ("ends", stops)):
            if len(several) > 1:
                wrong(
                    f"the path {path!r} has {len(several)} {what} ({', '.join(several)}): say "
                    "which",
                    f"{path}[{starts[0]} -> {stops[0]}]",
                )
        return graph.uses(starts[0], stops[0])
    events = names.paths[path] if names.paths is not None and path in names.paths else (None,)
    if None in events:
        return set()
    for event in ends:
        if event not in events:
            close = nearest(event, [known for known in events if known])
            wrong(f"the path {path!r} has no event {event!r}", close)
    if ends[0] == ends[1]:
        wrong(f"{ends[0]} is one event: name two of {path!r}")
    if graph is not None:
        found = graph.uses(*ends) or (graph.uses(ends[1], ends[0]) if either_way else set())
        if not found:
            wrong(f"nothing leads from {ends[0]} to {ends[1]} in {path!r}")
        return found
    backwards = events.index(ends[0]) > events.index(ends[1])
    if path not in names.graphs and backwards and not either_way:
        wrong(f"{ends[0]} does not come before {ends[1]} in {path!r}")
    return set()


def _brackets(ends: tuple[str, str] | None) -> str:
    return "" if ends is None else f"[{ends[0]} -> {ends[1]}]"


def _check_round_trip(
    path: str, ends: tuple[str, str] | None, names: Names, what: str = "asymmetry"
) -> None:
    """Refuses what has no two legs that could be alike."""
    if ends is not None:
        wrong(f"{what} is said of a whole path: write {path} without the brackets")
    events = names.paths[path] if names.paths is not None else (None,)
    if None in events:
        return
    if path in names.graphs:
        wrong(f"{what} is said of a path without branches and joins; {path!r} has them")
    at = [str(event).partition("/")[0] for event in events]
    if len(at) < 4 or at[0] != at[-1] or at[1] != at[-2] or at[0] == at[1]:
        wrong(
            f"{what} is said of a path that goes from one component to another and back: its "
            f"first hop and its last; {path!r} goes {' -> '.join(at)}"
        )


@dataclass(frozen=True)
class StatisticName:
    """A statistic as written.

    ``stat`` None: the name of a value, or a path or a part of one, whose messages are meant.
    """

    text: str
    path: str
    hop: tuple[str, str] | None
    stat: FigureStat | None

    def unit(self, names: Names) -> str | None:
        """Unit of what it stands for, None where a mistake keeps that from being known."""
        if self.stat is not None:
            return unit(self.stat)
        if self.is_messages(names):
            return "ns" if names.paths is not None and self.path in names.paths else None
        return (names.values or {}).get(self.path)

    def is_messages(self, names: Names) -> bool:
        """Whether no one number is meant."""
        a_value = self.hop is None and self.path in (names.values or {})
        return self.stat is None and not a_value


@dataclass(frozen=True)
class Entity(Rule):
    """``group:name``."""

    def read(self, value: object, names: Names) -> str:
        given = text(value)
        if not re.fullmatch(f"{event_values.EVENT}:{event_values.EVENT}", given):
            wrong(f"{given!r} is not an entity: write group:name")
        return given

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^{event_values.EVENT}:{event_values.EVENT}$"}


@dataclass(frozen=True)
class OfValues(Rule):
    """A statistic of a value."""

    def read(self, value: object, names: Names) -> str:
        given = text(value)
        stat = SPELLINGS.get(given, given)
        percentile = re.fullmatch(_PERCENTILE, stat) and stat.strip("p0")
        if stat not in OF_VALUES and not percentile:
            known = ", ".join(OF_VALUES)
            wrong(
                f"there is no statistic {given!r} (they are {known} and percentiles as p99)",
                nearest(given, OF_VALUES),
            )
        return stat

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^({'|'.join(OF_VALUES)}|{_PERCENTILE}|p99\\.9)$"}


@dataclass(frozen=True)
class Number(Rule):
    """A number without unit, not zero."""

    def read(self, value: object, names: Names) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            wrong("this should be a number without unit")
        if value == 0:
            wrong("zero leaves nothing to see")
        return float(value)

    def schema(self) -> JsonSchema:
        return values.or_reference({"type": "number", "not": {"const": 0}})


@dataclass(frozen=True)
class Axis(Rule):
    """A swept parameter, or time."""

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if name != TIME:
            if names.swept is not None and not names.swept:
                wrong(f"nothing sweeps {name!r}: give sweep its values, or write time here")
            names.refer("swept parameter", name)
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class Statistics(Rule):
    """One statistic or a list of them."""

    most: int | None = None

    def read(self, value: object, names: Names) -> tuple[StatisticName, ...]:
        items = value if isinstance(value, list) else [value]
        if not items:
            wrong("nothing is named here")
        if self.most is not None and len(items) > self.most:
            wrong(f"at most {self.most} here")
        return tuple(statistic(item, names) for item in items)

    def schema(self) -> JsonSchema:
        one = {"type": "string", "minLength": 1}
        if self.most == 1:
            return one
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def statistic(given: object, names: Names) -> StatisticName:
    """The statistic that is named; refuses one that the file does not define."""
    written = text(given)
    try:
        found = parse_subject(written)
    except ExpressionError as error:
        wrong(error.message, error.hint)
    name, stat, hop = found.name, found.stat, found.part
    if stat is None and hop is None:
        known = {**dict.fromkeys(names.paths or ()), **dict.fromkeys(names.values or ())}
        if names.paths is not None and names.values is not None and name not in known:
            wrong(f"there is no value and no path {name!r}", nearest(name, known))
        if name not in (names.values or {}):
            _check_part(name, None, None, names)
        return StatisticName(written, name, None, None)
    if stat is None:
        names.refer("path", name)
        _check_part(name, hop, None, names)
        return StatisticName(" ".join(written.split()), name, hop, None)
    spelled = SPELLINGS.get(stat, stat)
    known_stat = next((each for each in STATS if each == spelled), None)
    if known_stat is None:
        wrong(f"there is no statistic {stat!r} (they are {', '.join(STATS)})", nearest(stat, STATS))
    names.refer("path", name)
    _check_part(name, hop, known_stat, names)
    return StatisticName(" ".join(written.split()), name, hop, known_stat)
