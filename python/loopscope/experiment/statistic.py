"""Names of what was measured: ``PATH.STAT``, ``PATH[EVENT -> EVENT].STAT``, or that of a value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import get_args

from . import values
from .expectation import SPELLINGS, unit
from .measures import FigureStat
from .problem import nearest
from .values import JsonSchema, Names, Rule, text, wrong

TIME = "time"
STATS: tuple[FigureStat, ...] = get_args(FigureStat)
OF_VALUES = ("mean", "deviation", "min", "max", "sum", "last", "count")
_EVENTS = r"(?:\[\s*(?P<start>\S+?)\s*->\s*(?P<end>[^\s\]]+)\s*\])"
_SUBJECT = re.compile(
    rf"\s*(?P<path>[^\s.\[\]<>=!]+){_EVENTS}?(?:\.(?P<stat>[A-Za-z0-9_]+(?:\.[0-9]+)?))?\s*"
)
_PERCENTILE = r"p[0-9]{1,2}[0-9]*"


@dataclass(frozen=True)
class Subject:
    """As written; ``stat`` None: the name of a value, or a path or a part of one, whose messages
    are meant."""

    text: str
    path: str
    hop: tuple[str, str] | None
    stat: FigureStat | None

    def unit(self, names: Names) -> str | None:
        """Of what it stands for, None where a mistake keeps that from being known."""
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
        if not re.fullmatch(f"{values.EVENT}:{values.EVENT}", given):
            wrong(f"{given!r} is not an entity: write group:name")
        return given

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^{values.EVENT}:{values.EVENT}$"}


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
class Subjects(Rule):
    """One subject or a list of them."""

    most: int | None = None

    def read(self, value: object, names: Names) -> tuple[Subject, ...]:
        items = value if isinstance(value, list) else [value]
        if not items:
            wrong("nothing is named here")
        if self.most is not None and len(items) > self.most:
            wrong(f"at most {self.most} here")
        return tuple(subject(item, names) for item in items)

    def schema(self) -> JsonSchema:
        one = {"type": "string", "minLength": 1}
        if self.most == 1:
            return one
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def subject(given: object, names: Names) -> Subject:
    written = text(given)
    match = _SUBJECT.fullmatch(written)
    if match is None:
        wrong(f"{written!r} is not PATH.STAT, PATH[EVENT -> EVENT].STAT or the name of a value")
    name, stat = match["path"], match["stat"]
    hop = (match["start"], match["end"]) if match["start"] else None
    if stat is None and hop is None:
        known = {**dict.fromkeys(names.paths or ()), **dict.fromkeys(names.values or ())}
        if names.paths is not None and names.values is not None and name not in known:
            wrong(f"there is no value and no path {name!r}", nearest(name, known))
        if name not in (names.values or {}):
            values.part(name, None, None, names)
        return Subject(written, name, None, None)
    if stat is None:
        names.refer("path", name)
        values.part(name, hop, None, names)
        return Subject(" ".join(written.split()), name, hop, None)
    spelled = SPELLINGS.get(stat, stat)
    known_stat = next((each for each in STATS if each == spelled), None)
    if known_stat is None:
        wrong(f"there is no statistic {stat!r} (they are {', '.join(STATS)})", nearest(stat, STATS))
    names.refer("path", name)
    values.part(name, hop, known_stat, names)
    return Subject(" ".join(written.split()), name, hop, known_stat)
