"""The order of components within a phase: the key ``after``, groups, and their mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from . import order
from .place import Place
from .problem import nearest
from .values import JsonSchema, Names, Rule, text, wrong

START_UP: Final = ""
"""Stands for the time before the first phase among the phases of an order."""
EVERY: Final = "*"
"""Stands for start-up and every phase; no phase has this name."""

Wanted = Mapping[str, Sequence[str]]
"""Components and groups that one comes after, by phase, or those of EVERY."""


@dataclass(frozen=True)
class After(Rule):
    """List of components and groups, or a mapping of phases to such lists."""

    def read(self, value: object, names: Names) -> dict[str, list[str]]:
        if isinstance(value, list):
            return {EVERY: _members(value, names)}
        if not isinstance(value, dict):
            wrong("after should be a list of components and groups, or {PHASE: [COMPONENT]}")
        read = {}
        for phase, members in value.items():
            names.refer("phase", phase)
            if not isinstance(members, list):
                wrong(f"after of phase {phase!r} should be a list of components and groups")
            read[phase] = _members(members, names)
        return read

    def schema(self) -> JsonSchema:
        members = {"type": "array", "items": {"type": "string"}, "minItems": 1}
        return {"anyOf": [members, {"type": "object", "additionalProperties": members}]}

    @property
    def example(self) -> str:
        return "{connect: [server]}"


def _members(value: Sequence[Any], names: Names) -> list[str]:
    if not value:
        wrong("after names nobody: leave it out")
    known = None
    if names.components is not None:
        known = names.components | (names.groups or frozenset())
    for each in map(text, value):
        if known is not None and each not in known:
            wrong(f"there is no component or group {each!r}", nearest(each, known))
    return list(value)


@dataclass(frozen=True)
class Part:
    """The part of a component in a run: where it starts, and the phases that it may take part in.

    ``phases`` None: any, as its program says. ``after`` is what it comes after.
    """

    start: str
    phases: frozenset[str] | None
    after: Wanted

    def is_in(self, phase: str) -> bool:
        """Whether it may start or take part in a phase."""
        if phase == START_UP or phase == self.start:
            return phase == self.start
        return self.phases is None or phase in self.phases


def in_phase(
    phase: str, parts: Mapping[str, Part], groups: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """The components that each comes after in a phase; only those that may have a part in it."""
    after: dict[str, list[str]] = {name: [] for name, each in parts.items() if each.is_in(phase)}
    for name, found in after.items():
        wanted = [*parts[name].after.get(phase, ()), *parts[name].after.get(EVERY, ())]
        for each in wanted:
            for member in groups.get(each, (each,)):
                # Others of its own group, not itself.
                is_own = member == name and each in groups
                if member in after and member not in found and not is_own:
                    found.append(member)
    return after


def check_order(at: Place, parts: Mapping[str, Part], phases: Sequence[str]) -> None:
    """Groups have names of their own, and in no phase components wait for each other.

    ``parts`` are those of all components, ``phases`` the names of all phases.
    """
    groups = {
        name: [each.text for each in group.elements() if each.text]
        for name, group in at.entries("groups")
    }
    together = [each.text_at("name") for each in at.elements("phases") if each.get("common_start")]
    for name, group in at.entries("groups"):
        if name in parts:
            group.report(f"{name!r} is a component: call the group something else", at_key=True)
    for name, part in parts.items():
        for phase, wanted in part.after.items():
            place = at.get("components", name, "after")
            assert place is not None
            item = place if phase == EVERY else place.get(phase) or place
            if phase in together:
                item.report(f"phase {phase} begins for all at once (common_start)")
            if phase != EVERY and phase in phases:
                if not part.is_in(phase):
                    item.report(f"{name} takes no part in phase {phase}")
                for each in wanted:
                    for member in groups.get(each, [each]):
                        if member in parts and not parts[member].is_in(phase):
                            item.report(f"{member} takes no part in phase {phase}")
    for phase in (START_UP, *phases):
        circle = order.cycle(in_phase(phase, parts, groups))
        if circle is not None:
            where = f"in phase {phase}" if phase else "before the first phase"
            place = at.get("components", circle[0], "after")
            assert place is not None
            place.report(
                f"components wait for each other {where}: {' after '.join([*circle, circle[0]])}"
            )
            return
