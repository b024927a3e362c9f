"""Readers of event names, of patterns and conditions on events, and of other tools' outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from .plan import MAIN
from .problem import nearest
from .values import JsonSchema, Name, Names, Rule, text, wrong

EVENT = r"[A-Za-z_][A-Za-z0-9_-]*"
_PATTERN = r"[A-Za-z0-9_*?-]+"
_HOST_CLOCK = r"realtime|monotonic|ptp[0-9]+"
TOLD = {"messages": ("sent", "received"), "wakeups": ("fired",)}
"""The names of events that are told from the kernel's, by the key of ``trace``."""
# Groups of tables that are made of what is recorded of everything.
_OWN_GROUPS = ("kernel", "link", "router")
# Besides the main one (LOOPSCOPE_STREAMS in crates/trace/c/layout.h).
MOST_STREAMS = 30


@dataclass(frozen=True)
class Pattern(Rule):
    """A pattern on ``group:name`` with ``*`` and ``?``.

    Where ``excluding``, one with ``!`` before it leaves out again what earlier ones took in.
    """

    excluding: bool = False

    def read(self, value: object, names: Names) -> str:
        given = text(value)
        pattern = given.removeprefix("!") if self.excluding else given
        if re.fullmatch(_PATTERN, pattern) and "*" not in pattern:
            wrong(f"{given!r} names no event: a pattern is on group:name", f"{given}:*")
        if not is_pattern(pattern):
            wrong(f"{given!r} is not a pattern on group:name, such as pipe:*")
        return given

    def schema(self) -> JsonSchema:
        return {"type": "string"}


def is_pattern(given: str) -> bool:
    """Whether a text is a pattern on ``group:name``; ``*`` alone is one on both."""
    return bool(re.fullmatch(f"{_PATTERN}(?::{_PATTERN})?", given)) and bool({":", "*"} & {*given})


def chosen(entity: str, patterns: Iterable[str]) -> bool:
    """Whether patterns, of which the last that matches decides, take an entity in."""
    taken = False
    for pattern in patterns:
        if fnmatchcase(entity, pattern.removeprefix("!")):
            taken = not pattern.startswith("!")
    return taken


@dataclass(frozen=True)
class Predicate(Rule):
    """A condition on a hit's id and fields."""

    def read(self, value: object, names: Names) -> str:
        predicate = text(value)
        # The collector's own parser, so that what is right here is right there.
        from loopscope._native import check_predicate

        mistake = check_predicate(predicate)
        if mistake is not None:
            column, message = mistake
            wrong(f"the predicate {predicate!r} is wrong at its column {column}: {message}")
        return predicate

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class LeftBehind(Rule):
    """A path in the component's working directory."""

    def read(self, value: object, names: Names) -> str:
        given = text(value)
        path = PurePosixPath(given)
        if path.is_absolute():
            wrong(
                f"{given!r} is not in the component's working directory: have it write to a "
                "relative path and name that"
            )
        if ".." in path.parts or not path.parts:
            wrong(f"{given!r} is not in the component's working directory: name what is below it")
        return str(path)

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class HostClock(Rule):
    """A clock of a host's that is read during a run."""

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if not re.fullmatch(_HOST_CLOCK, name):
            wrong(
                f"there is no clock {name!r}: realtime, monotonic, ptp0, ptp1, …",
                nearest(name.lower().removeprefix("clock_"), ("realtime", "monotonic", "ptp0")),
            )
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^({_HOST_CLOCK})$"}


@dataclass(frozen=True)
class StreamName(Rule):
    """The name of a stream besides the main one."""

    def read(self, value: object, names: Names) -> str:
        name = Name("a stream", 64).read(value, names)
        if name == MAIN:
            wrong(f"{MAIN!r} is the stream of trace.user: call this one something else")
        return name

    def schema(self) -> JsonSchema:
        return Name("a stream", 64).schema()


@dataclass(frozen=True)
class ToldName(Rule):
    """The name of what is told from the kernel's events: the group of its events."""

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if re.fullmatch(EVENT, name) is None:
            wrong(f"{name!r} cannot name events: use letters, digits, _ and -, no digit first")
        if name in _OWN_GROUPS:
            wrong(f"{name!r} is a group of loopscope's own events: call these something else")
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^{EVENT}$"}


@dataclass(frozen=True)
class Event(Rule):
    """``component/group:name``."""

    def read(self, value: object, names: Names) -> str:
        event = text(value)
        match = re.fullmatch(rf"([^/\s]+)/{EVENT}:{EVENT}", event)
        if match is None:
            wrong(f"{event!r} is not an event: write component/group:name")
        if match[1] not in names.services:
            names.refer("component", match[1])
        return event

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": "^[^/]+/[^/:]+:[^/:]+$"}


@dataclass(frozen=True)
class Entity(Rule):
    """``group:name``."""

    def read(self, value: object, names: Names) -> str:
        entity = text(value)
        if re.fullmatch(f"{EVENT}:{EVENT}", entity) is None:
            wrong(f"{entity!r} is no event: write group:name")
        return entity

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": "^[^/:]+:[^/:]+$"}
