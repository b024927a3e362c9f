"""Names that a file defines, and the checks of its sections at every place where they stand.

The checks look at the tree after the replacement of parameters, take what they can read and leave
the rest to the models, so that a mistake elsewhere never hides one here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from . import model_figures, model_paths, validation_problems
from .channel import service
from .file_section import NAME, Section
from .model_phases import phases
from .place import Place
from .problem import Problem
from .sweep_points import swept
from .values import Names
from .yaml_tree import Mapping, Tree, child, elements, entries, plain_value, text_of

_Section = TypeVar("_Section", bound=Section)


def names(root: Tree, file: str) -> Names:
    """The names that the file gives to hosts, components, groups, phases and paths."""
    hosts = child(root, "hosts")
    components = child(root, "components")
    measure = child(root, "measure")
    paths, values = child(measure, "paths"), child(measure, "values")
    given = {name for name in map(text_of, elements(hosts)) if name}
    return Names(
        hosts=frozenset(given) if elements(hosts) else None,
        components=frozenset(name for name, _, _ in entries(components)) or None,
        services=_services(root),
        groups=frozenset(name for name, _, _ in entries(child(root, "groups"))),
        phases=frozenset(name for _, name in phases(root) if name) or None,
        paths=None if _unreadable(measure, paths) else model_paths.events(paths),
        graphs=model_paths.graphs(paths),
        values=None if _unreadable(measure, values) else model_figures.units(values),
        swept=swept(root),
        folder=Path(file).parent,
    )


def _services(root: Tree) -> dict[str, str]:
    """The components that serve channels, each with its host."""
    if not list(entries(child(root, "channels"))):
        return {}
    hosts = (text_of(child(each, "host")) for _, _, each in entries(child(root, "components")))
    return {service(host): host for host in hosts if host}


def validated(
    section: type[_Section], root: Tree, file: str, known: Names | None = None
) -> tuple[_Section | None, list[Problem]]:
    """The model of a file, and everything that is wrong with it.

    The model is None where values are wrong one by one. ``known`` are the names that the file may
    refer to; None: those that it gives.
    """
    read = None
    found: list[Problem] = []
    try:
        context = names(root, file) if known is None else known
        read = section.model_validate(plain_value(root), context=context)
    except ValidationError as error:
        found = validation_problems.problems(error, root, file)
    return read, found + problems(section, root, file)


def problems(section: type[Section], root: Tree, file: str) -> list[Problem]:
    """Everything that the checks of a section and of those below it find in a file."""
    found: list[Problem] = []
    _check(section, Place(root, (), root.mark, root, names(root, file), file, found))
    return found


def _check(section: type[Section], at: Place) -> None:
    section.check(at)
    for key, place, below in section.sections():
        others = [place for name, place in at.entries() if name not in section.keys()]
        one = at.get(key)
        starts = others if key == NAME else [] if one is None else [one]
        for start in starts:
            for inner in _places(start, place):
                if isinstance(inner.tree, Mapping) or not below.model_fields:
                    _check(below, inner)


def _places(at: Place, steps: Sequence[str | int]) -> list[Place]:
    """The places below one, through all items of lists and values of mappings."""
    if not steps:
        return [at]
    inner = [place for _, place in at.entries()] if steps[0] == NAME else at.elements()
    return [found for place in inner for found in _places(place, steps[1:])]


def _unreadable(*trees: Tree | None) -> bool:
    return any(tree is not None and not isinstance(tree, Mapping) for tree in trees)
