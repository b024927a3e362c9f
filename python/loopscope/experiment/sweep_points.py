"""The points of a sweep: which parameters they set to what, and their names."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass, field, replace

from .params import like
from .problem import Problem, dotted, nearest
from .values import JsonSchema, Names, Rule, wrong
from .yaml_tree import Location, Mapping, Mark, Scalar, Sequence, Tree, child, elements, entries

MOST_POINTS = 10_000
# A folder's name may have 255 bytes; names that are cut off are told apart by a number.
_LONGEST_NAME = 180


class Sweep(Rule):
    """A grid, or a list of points and grids. ``expand`` checks what is in them."""

    def read(self, value: object, names: Names) -> object:
        if not isinstance(value, list | dict):
            wrong("sweep should map parameters to lists of values, or list points")
        if not value:
            wrong("sweep names no parameter")
        return value

    def schema(self) -> JsonSchema:
        scalar = {"type": ["string", "number", "boolean"]}
        axis = {"type": "array", "items": scalar, "minItems": 1}
        grid = {"type": "object", "additionalProperties": axis, "minProperties": 1}
        either = {"anyOf": [scalar, axis]}
        part = {"type": "object", "additionalProperties": either, "minProperties": 1}
        return {"anyOf": [grid, {"type": "array", "items": part, "minItems": 1}]}


@dataclass(frozen=True)
class Setting:
    """A point of the sweep: the parameters that it sets, in the file's order."""

    name: str
    values: dict[str, Scalar]


@dataclass
class Expansion:
    """The points of a file, none where a problem was found."""

    settings: list[Setting] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    """The caller's overrides that are not of swept parameters."""
    problems: list[Problem] = field(default_factory=list)


def swept(root: Tree) -> dict[str, tuple[str, ...]]:
    """Each swept parameter's values as the file writes them."""
    sweep = child(root, "sweep")
    found: dict[str, list[str]] = {}
    for name, _, axis in entries(sweep):
        found[name] = [item.text for item in elements(axis) if isinstance(item, Scalar)]
    for point in elements(sweep):
        for name, _, given in entries(point):
            items = elements(given) or [given]
            found.setdefault(name, []).extend(
                item.text for item in items if isinstance(item, Scalar)
            )
    return {name: tuple(dict.fromkeys(values)) for name, values in found.items()}


def expand(root: Tree, overrides: AbstractMapping[str, str], file: str) -> Expansion:
    """Every point of a sweep, each once.

    Those of a grid come in the order of its lists, the last parameter's values fastest; those of a
    list of points and grids one after the other.

    An override of a parameter that a grid sweeps takes the list's place: its values, with commas
    between them.
    """
    reading = _Reading(root, file)
    grid = child(root, "sweep")
    made = Expansion(problems=reading.problems)
    names = swept(root)
    made.others = {name: text for name, text in overrides.items() if name not in names}
    if isinstance(grid, Mapping):
        points = reading.grid(grid, overrides)
    else:
        points = reading.listed(elements(grid), overrides)
    if not made.problems:
        made.settings = list(_named(points))
    return made


class _Reading:
    def __init__(self, root: Tree, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.params = dict(_params(root))

    def grid(self, grid: Mapping, overrides: AbstractMapping[str, str]) -> list[dict[str, Scalar]]:
        axes: dict[str, list[Scalar]] = {}
        for name, mark, axis in entries(grid):
            path: Location = ("sweep", name)
            given = overrides.get(name)
            if not isinstance(axis, Sequence) or not axis.items:
                message = f"give {name!r} a list of values, such as [1, 2, 3]"
                self.report(axis.mark, path, message)
                continue
            items: list[Tree] = axis.items
            if given is not None:
                items = [Scalar(mark, text, text) for text in given.split(",")]
            if not self.known(name, mark, path):
                continue
            axes[name] = self.axis(name, items, path)
        return [] if self.too_many(axes, grid.mark, ("sweep",)) else _product(axes)

    def listed(
        self, items: list[Tree], overrides: AbstractMapping[str, str]
    ) -> list[dict[str, Scalar]]:
        points: dict[frozenset[tuple[str, object]], dict[str, Scalar]] = {}
        for i, item in enumerate(items):
            path: Location = ("sweep", i)
            if not isinstance(item, Mapping) or not item.items:
                message = "this should map parameters to values, such as {delay: 10ms, size: 6B}"
                self.report(item.mark, path, message)
                continue
            axes: dict[str, list[Scalar]] = {}
            for name, mark, given in entries(item):
                place = (*path, name)
                if name in overrides:
                    message = f"-p {name}: the points of the sweep set it here; change the file"
                    self.report(mark, place, message)
                if self.known(name, mark, place):
                    many = isinstance(given, Sequence) and given.items
                    axes[name] = self.axis(name, elements(given) if many else [given], place)
            if self.too_many(axes, item.mark, path, len(points)):
                return []
            for point in _product(axes):
                key = frozenset((name, scalar.value) for name, scalar in point.items())
                points.setdefault(key, point)
        return list(points.values())

    def axis(self, name: str, items: list[Tree], path: Location) -> list[Scalar]:
        """The values of a parameter, each once."""
        read = [self.value(name, item, (*path, i)) for i, item in enumerate(items)]
        values = [value for value in read if value is not None]
        self.distinct(values, path)
        return values

    def too_many(
        self, axes: dict[str, list[Scalar]], mark: Mark, path: Location, before: int = 0
    ) -> bool:
        if before + math.prod(map(len, axes.values())) <= MOST_POINTS:
            return False
        self.report(mark, path, f"the sweep has more than {MOST_POINTS} points")
        return True

    def known(self, name: str, mark: Mark, path: Location) -> bool:
        if name not in self.params:
            message = f"there is no parameter {name!r} to sweep: give it a value in params"
            self.report(mark, path, message, nearest(name, self.params))
        return name in self.params

    def value(self, name: str, item: Tree, path: Location) -> Scalar | None:
        """The parameter with this value; None where a problem was reported."""
        default = self.params[name]
        if not isinstance(item, Scalar):
            self.report(item.mark, path, "this should be a single value")
            return None
        if item.bad or default.bad or default.value is None:
            return None
        try:
            if "$" in item.text:
                raise ValueError("a parameter cannot refer to another one")
            value = like(default.value, item.text)
        except ValueError as error:
            message = f"{name}={item.text}: {error} (params has {default.text})"
            self.report(item.mark, path, message)
            return None
        return replace(item, value=value)

    def distinct(self, values: list[Scalar], path: Location) -> None:
        first: dict[object, Scalar] = {}
        for i, scalar in enumerate(values):
            if scalar.value in first:
                message = f"{path[-1]} has the value {scalar.text} twice"
                self.report(scalar.mark, (*path, i), message)
            first.setdefault(scalar.value, scalar)

    def report(self, mark: Mark, path: Location, message: str, hint: str | None = None) -> None:
        self.problems.append(
            Problem(self.file, mark.line, mark.column, dotted(path), message, hint)
        )


def _params(root: Tree) -> Iterator[tuple[str, Scalar]]:
    """The parameters as the file gives them."""
    for name, _, value in entries(child(root, "params")):
        if isinstance(value, Scalar):
            yield name, value


def _product(axes: AbstractMapping[str, list[Scalar]]) -> list[dict[str, Scalar]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _named(points: list[dict[str, Scalar]]) -> Iterator[Setting]:
    used: set[str] = set()
    for point in points:
        name = ",".join(f"{name}={_safe(scalar.text)}" for name, scalar in point.items())
        name = name[:_LONGEST_NAME]
        if name in used:
            numbers = itertools.count(2)
            name = next(f"{name}~{n}" for n in numbers if f"{name}~{n}" not in used)
        used.add(name)
        yield Setting(name, point)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+%-]", "_", text)
