"""Refusals of pydantic, in words for people and at their places in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from . import emulated_links
from .file_section import ITEM, NAME, Section
from .model import ExperimentFile
from .model_network import Network
from .problem import Problem, dotted, nearest
from .yaml_tree import Location, Mapping, Scalar, Tree, child

_EXPECTED = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of keys to values",
}


def problems(error: ValidationError, root: Tree, file: str) -> list[Problem]:
    """One problem for each refusal, but for values that a problem has been reported for."""
    details = error.errors(include_url=False)
    misspelt = {
        (*detail["loc"][:-1], nearest(str(detail["loc"][-1]), known_keys(detail["loc"][:-1])))
        for detail in details
        if detail["type"] == "extra_forbidden"
    }
    found = []
    for detail in details:
        place = _Place(root, detail["loc"])
        if place.bad or _is_no_link(detail["loc"]):
            continue
        if detail["type"] == "missing" and detail["loc"] in misspelt:
            continue
        message, hint = _message(detail, place)
        mark = place.mark
        path = dotted(place.path)
        found.append(Problem(file, mark.line, mark.column, path, message, hint))
    return found


class _Place:
    """Meaning of pydantic's location in the file.

    Its locations hold, besides keys and indexes, the tags of unions and ``[key]`` for a key
    itself; ``path`` is what remains.
    """

    def __init__(self, root: Tree, location: tuple[int | str, ...]) -> None:
        self.tree: Tree = root
        self.path: Location = ()
        self.bad = isinstance(root, Scalar) and root.bad
        self.mark = root.mark
        # Where the key stands that leads here; the root and list items have none.
        self.key_mark = root.mark
        for part in location:
            found = child(self.tree, part)
            if found is None:
                continue
            if isinstance(self.tree, Mapping) and isinstance(part, str):
                self.key_mark = self.tree.keys[part]
            else:
                self.key_mark = found.mark
            self.tree = found
            self.mark = found.mark
            self.path = (*self.path, part)
            self.bad = self.bad or (isinstance(found, Scalar) and found.bad)
        if location and location[-1] == "[key]":
            self.mark = self.key_mark


def _message(detail: ErrorDetails, place: _Place) -> tuple[str, str | None]:
    kind = detail["type"]
    context = detail.get("ctx", {})
    last = detail["loc"][-1] if detail["loc"] else ""
    if kind == "missing":
        place.mark = place.key_mark
        place.path = (*place.path, last)
        return f"the key {last!r} is missing", None
    if kind == "extra_forbidden":
        place.mark = place.key_mark
        known = known_keys(detail["loc"][:-1])
        close = nearest(str(last), known)
        listed = "" if close else f" (here are known: {', '.join(known)})"
        return f"unknown key {last!r}{listed}", close
    if kind in ("too_short", "dict_too_short"):
        least = context.get("min_length", 1)
        what = "entry" if least == 1 else "entries"
        return f"{last} needs at least {least} {what}", None
    if kind == "too_long":
        return (
            f"{last} has {context['actual_length']} entries, at most {context['max_length']}",
            None,
        )
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", str(context["expected"]))
        given = str(detail["input"])
        message = f"{given!r} is not known here: write {' or '.join(allowed)}"
        return message + _origin(place), nearest(given, allowed)
    if kind in _EXPECTED:
        return f"{_last_key(place)} should be {_EXPECTED[kind]}" + _origin(place), None
    return detail["msg"] + _origin(place), context.get("hint")


def _is_no_link(location: tuple[int | str, ...]) -> bool:
    """Whether it lies under a key of the network that the rules refuse as a whole."""
    if location[:1] != ("network",) or len(location) == 1:
        return False
    return not (location[1] in Network.model_fields and location[1] != "default") and (
        not emulated_links.is_settings(location)
    )


def _last_key(place: _Place) -> str:
    start = -2 if place.path and isinstance(place.path[-1], int) else -1
    return dotted(place.path[start:]) or "the file"


def _origin(place: _Place) -> str:
    if isinstance(place.tree, Scalar) and place.tree.parameter:
        return f" (from ${place.tree.parameter})"
    return ""


def known_keys(location: tuple[int | str, ...]) -> list[str]:
    """The keys that the section at a location may have."""
    # Each section that may be meant, and the keys and indexes that still lead to it.
    found: list[tuple[tuple[int | str, ...], type[Section]]] = [((), ExperimentFile)]
    for part in location:
        within = [
            step for rest, section in found for step in (_into(section, part) if not rest else ())
        ]
        wanted = ITEM if isinstance(part, int) else NAME
        within += [(rest[1:], section) for rest, section in found if rest and rest[0] == wanted]
        # A union's tag leads nowhere.
        found = within or found
    return [key for rest, section in found if not rest for key in section.keys()]


def _into(
    section: type[Section], part: int | str
) -> Iterator[tuple[tuple[int | str, ...], type[Section]]]:
    for key, place, below in section.sections():
        if key == part or (key == NAME and part not in section.keys()):
            yield place, below
