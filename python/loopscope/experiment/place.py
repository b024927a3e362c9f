"""Places in a file, for checks that concern several values together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .problem import Problem, Severity, dotted
from .values import Names
from .yaml_tree import Location, Mark, Scalar, Tree, Value, child, elements, entries, text_of
from .yaml_tree import Mapping as MappingTree


@dataclass(frozen=True)
class Place:
    """A value of a file and where it stands. It may be wrong, and so may everything below it.

    ``key_mark`` is where the key stands that leads to it; of an item of a list, the item. ``root``
    is the whole file; problems are added to ``problems``.
    """

    tree: Tree
    location: Location
    key_mark: Mark
    root: Tree
    names: Names
    file: str
    problems: list[Problem]

    @property
    def text(self) -> str | None:
        """The value where it is text, else None."""
        return text_of(self.tree)

    @property
    def is_true(self) -> bool:
        return isinstance(self.tree, Scalar) and self.tree.value is True

    @property
    def scalar(self) -> Value:
        """The value where it is a single one, else None."""
        return self.tree.value if isinstance(self.tree, Scalar) else None

    @property
    def keys(self) -> set[str]:
        """The keys of a mapping; none of anything else."""
        return set(self.tree.items) if isinstance(self.tree, MappingTree) else set()

    def get(self, *keys: str | int) -> Place | None:
        """The place to which these keys and indexes lead, one after the other.

        None where there is none.
        """
        place = self
        for key in keys:
            tree = child(place.tree, key)
            if tree is None:
                return None
            mark = tree.mark
            if isinstance(place.tree, MappingTree) and isinstance(key, str):
                mark = place.tree.keys[key]
            place = replace(place, tree=tree, location=(*place.location, key), key_mark=mark)
        return place

    def text_at(self, *keys: str | int) -> str | None:
        """The text that keys and indexes lead to, None where there is none."""
        found = self.get(*keys)
        return None if found is None else found.text

    def entries(self, *keys: str) -> list[tuple[str, Place]]:
        """Keys and values of the mapping that ``keys`` lead to; none of anything else."""
        at = self.get(*keys)
        pairs = [] if at is None else [(key, at.get(key)) for key, _, _ in entries(at.tree)]
        return [(key, place) for key, place in pairs if place is not None]

    def elements(self, *keys: str) -> list[Place]:
        """The items of the list that ``keys`` lead to; none of anything else."""
        at = self.get(*keys)
        places = [] if at is None else [at.get(i) for i in range(len(elements(at.tree)))]
        return [place for place in places if place is not None]

    def report(
        self,
        message: str,
        hint: str | None = None,
        severity: Severity = "error",
        at_key: bool = False,
    ) -> None:
        """Adds a problem at the value, or at the key that leads to it."""
        mark = self.key_mark if at_key else self.tree.mark
        self.report_at(mark, self.location, message, hint, severity)

    def report_at(
        self,
        mark: Mark,
        path: Location,
        message: str,
        hint: str | None = None,
        severity: Severity = "error",
    ) -> None:
        """Adds a problem at another place of the file."""
        place = (self.file, mark.line, mark.column, dotted(path))
        self.problems.append(Problem(*place, message, hint, severity))

    def report_repeated(self, what: str, places: list[tuple[str | None, Place]]) -> None:
        """Reports every name that was there before; None is passed over."""
        first: dict[str, Mark] = {}
        for name, place in places:
            if name is None:
                continue
            if name in first:
                place.report(
                    f"the {what} {name!r} is given twice: first on line {first[name].line}"
                )
            first.setdefault(name, place.tree.mark)

    @property
    def whole(self) -> Place:
        """The whole file."""
        return replace(self, tree=self.root, location=(), key_mark=self.root.mark)
