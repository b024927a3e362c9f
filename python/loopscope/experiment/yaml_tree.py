"""YAML text to a tree of values that know their place in the file.

Scalars are read by the rules of YAML 1.2's core schema: ``true`` and ``false`` are the only
booleans, so ``no``, ``on`` and ``1:30`` are text. Anchors, aliases and merge keys work; a key that
is given twice, which PyYAML accepts in silence, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .problem import Problem, dotted

Value = str | int | float | bool | None
Key = str | int
Location = tuple[Key, ...]


@dataclass(frozen=True)
class Mark:
    """A place in the file, both from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Scalar:
    """A single value; ``text`` is its spelling in the file.

    ``parameter`` names the parameter that supplied it. ``bad`` says that a problem has been
    reported for it, so that nothing more is said about what follows from it.
    """

    mark: Mark
    value: Value
    text: str
    parameter: str | None = None
    bad: bool = False


@dataclass(frozen=True)
class Sequence:
    """A list."""

    mark: Mark
    items: list[Tree]


@dataclass(frozen=True)
class Mapping:
    """A mapping; ``keys`` holds the place of each key."""

    mark: Mark
    items: dict[str, Tree] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)


Tree = Scalar | Sequence | Mapping

_PLAIN = "plain"
_STANDARD = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MOST_DIGITS = 40
_DEEPEST = 40
# Aliases can make a short text into any number of values.
_MOST_VALUES = 100_000


class _Loader(yaml.BaseLoader):
    """Composes nodes; scalars without quotes and tag are marked, and resolved here."""

    def resolve(self, kind: type[Node], value: str | None, implicit: tuple[bool, bool]) -> str:
        if kind is ScalarNode and implicit[0]:
            return _PLAIN
        resolved: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return resolved


def read(
    text: str, file: str, may_be_null: Callable[[Location], bool]
) -> tuple[Tree | None, list[Problem]]:
    """Parses a text. The tree is None where the text is no YAML document at all.

    A key without a value is a problem where ``may_be_null`` does not allow it.
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = Mark(before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1)
        return None, [_problem(file, mark, (), f"the file holds a {_character(error.character)}")]
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        return None, [_syntax(error, file)]
    except RecursionError:
        return None, [_problem(file, _mark(loader.get_mark()), (), _TOO_DEEP)]
    except (ValueError, OverflowError):
        # PyYAML converts escapes such as "\UFFFFFFFF" without looking.
        problem = "this is not a valid character or number"
        return None, [_problem(file, _mark(loader.get_mark()), (), problem)]
    if node is None:
        return None, [_problem(file, Mark(1, 1), (), "the file is empty")]
    converter = _Converter(file, may_be_null)
    return converter.tree(node, ()), converter.problems


def plain_scalar(text: str) -> Value:
    """Value of a scalar without quotes. ValueError: a number that no program could take."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    number: int | float
    if len(text) > _MOST_DIGITS and _DECIMAL.fullmatch(text):
        raise ValueError(f"the number {text[:20]}… has more digits than a program can take")
    if _INTEGER.fullmatch(text):
        number = int(text)
    elif _BASED.fullmatch(text):
        number = int(text, 0)
    elif _DECIMAL.fullmatch(text):
        number = float(text)
        if abs(number) == float("inf"):
            raise ValueError(f"the number {text} is too large")
        return number
    else:
        return text
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"the number {text[:_MOST_DIGITS]} does not fit in 64 bits")
    return number


def unusable_character(text: str) -> str | None:
    """Describes the first character that neither UTF-8 nor a program's arguments can carry."""
    for character in text:
        if character == "\0" or "\ud800" <= character <= "\udfff":
            return _character(ord(character))
    return None


def plain_value(tree: Tree) -> object:
    """The tree as Python's own types."""
    if isinstance(tree, Scalar):
        return tree.value
    if isinstance(tree, Sequence):
        return [plain_value(item) for item in tree.items]
    return {key: plain_value(item) for key, item in tree.items.items()}


def within(tree: Tree, *keys: str) -> Tree:
    """A tree as it is below these keys."""
    for key in reversed(keys):
        tree = Mapping(tree.mark, {key: tree}, {key: tree.mark})
    return tree


def child(tree: Tree | None, key: Key) -> Tree | None:
    """Subtree under a key or an index, or None."""
    if isinstance(tree, Mapping) and isinstance(key, str):
        return tree.items.get(key)
    if isinstance(tree, Sequence) and isinstance(key, int) and 0 <= key < len(tree.items):
        return tree.items[key]
    return None


def entries(tree: Tree | None) -> Iterator[tuple[str, Mark, Tree]]:
    """Keys, their places and values of a mapping; nothing for any other tree."""
    if isinstance(tree, Mapping):
        for key, value in tree.items.items():
            yield key, tree.keys[key], value


def elements(tree: Tree | None) -> list[Tree]:
    """The items of a list; nothing for any other tree."""
    return tree.items if isinstance(tree, Sequence) else []


def text_of(tree: Tree | None) -> str | None:
    """The value of a scalar that is right text, or None."""
    if isinstance(tree, Scalar) and isinstance(tree.value, str) and not tree.bad:
        return tree.value
    return None


class _Converter:
    """Nodes to trees; collects what is wrong on the way."""

    def __init__(self, file: str, may_be_null: Callable[[Location], bool]) -> None:
        self.file = file
        self.may_be_null = may_be_null
        self.problems: list[Problem] = []
        self.values = 0
        self.open: set[int] = set()

    def tree(self, node: Node, path: Location) -> Tree:
        mark = _mark(node.start_mark)
        self.values += 1
        if self.values > _MOST_VALUES:
            if self.values == _MOST_VALUES + 1:
                self.report(mark, path, f"the file holds more than {_MOST_VALUES} values")
            return _bad(mark)
        if id(node) in self.open:
            self.report(mark, path, "this value contains itself through an alias")
            return _bad(mark)
        if len(path) > _DEEPEST:
            self.report(mark, path, _TOO_DEEP)
            return _bad(mark)
        if node.tag != _PLAIN and not _expected_tag(node):
            tag = node.tag.replace(_STANDARD, "!!")
            self.report(mark, path, f"the tag {tag} has no meaning here: leave it out")
            return _bad(mark)
        self.open.add(id(node))
        try:
            if isinstance(node, ScalarNode):
                return self.scalar(node, mark, path)
            if isinstance(node, SequenceNode):
                items = [self.tree(item, (*path, i)) for i, item in enumerate(node.value)]
                return Sequence(mark, items)
            assert isinstance(node, MappingNode)
            return self.mapping(node, mark, path)
        finally:
            self.open.remove(id(node))

    def scalar(self, node: ScalarNode, mark: Mark, path: Location) -> Scalar:
        text: str = node.value
        unusable = unusable_character(text)
        if unusable is not None:
            self.report(mark, path, f"this text holds a {unusable}")
            return _bad(mark)
        if node.tag != _PLAIN:
            return Scalar(mark, text, text)
        try:
            value = plain_scalar(text)
        except ValueError as error:
            self.report(mark, path, str(error))
            return _bad(mark)
        if value is None and not self.may_be_null(path):
            self.report(mark, path, f"{dotted(path[-1:]) or 'the file'} has no value")
            return _bad(mark)
        return Scalar(mark, value, text)

    def mapping(self, node: MappingNode, mark: Mark, path: Location) -> Mapping:
        made = Mapping(mark)
        merged: list[tuple[Node, Mark]] = []
        for key_node, value_node in node.value:
            place = _mark(key_node.start_mark)
            if key_node.tag == _PLAIN and key_node.value == "<<":
                merged.append((value_node, place))
                continue
            key = self.key(key_node, path)
            if key is None:
                continue
            if key in made.items:
                first = made.keys[key].line
                message = f"the key {key!r} is given twice: first on line {first}"
                self.report(place, (*path, key), message)
                continue
            made.keys[key] = place
            made.items[key] = self.tree(value_node, (*path, key))
        for value_node, place in merged:
            self.merge(value_node, place, path, made)
        return made

    def key(self, node: Node, path: Location) -> str | None:
        mark = _mark(node.start_mark)
        if not isinstance(node, ScalarNode):
            self.report(mark, path, "a key should be text")
            return None
        text: str = node.value
        unusable = unusable_character(text)
        if unusable is not None:
            self.report(mark, path, f"this key holds a {unusable}")
            return None
        if node.tag != _PLAIN:
            return text
        try:
            value = plain_scalar(text)
        except ValueError:
            return text
        if isinstance(value, str):
            return value
        kinds = {bool: "true or false", type(None): "nothing"}
        kind = kinds.get(type(value), "a number")
        message = f"the key {text!r} reads as {kind}, but a key should be text: quote it"
        self.report(mark, path, message)
        return None

    def merge(self, node: Node, place: Mark, path: Location, into: Mapping) -> None:
        """``<<: *anchor``: keys of others, where the mapping has none of its own."""
        sources = node.value if isinstance(node, SequenceNode) else [node]
        for source in sources:
            tree = self.tree(source, path)
            if isinstance(tree, Mapping):
                for key, value in tree.items.items():
                    if key not in into.items:
                        into.items[key] = value
                        into.keys[key] = tree.keys[key]
            elif not (isinstance(tree, Scalar) and tree.bad):
                self.report(place, path, "<< merges mappings only, such as <<: *anchor")

    def report(self, mark: Mark, path: Location, message: str, hint: str | None = None) -> None:
        self.problems.append(_problem(self.file, mark, path, message, hint))


_TOO_DEEP = "the file is nested too deeply"


def _bad(mark: Mark) -> Scalar:
    return Scalar(mark, None, "", bad=True)


def _expected_tag(node: Node) -> bool:
    kind = {ScalarNode: "str", SequenceNode: "seq", MappingNode: "map"}[type(node)]
    return bool(node.tag == _STANDARD + kind)


def _character(code: int) -> str:
    return f"character that is not allowed (U+{code:04X})"


def _mark(mark: yaml.Mark) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _problem(
    file: str, mark: Mark, path: Location, message: str, hint: str | None = None
) -> Problem:
    return Problem(file, mark.line, mark.column, dotted(path), message, hint)


def _syntax(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = _mark(mark) if mark else Mark(1, 1)
    message = f"not valid YAML: {error.problem}"
    if error.context:
        message += f" {error.context}"
        if error.context_mark and error.context_mark.line + 1 != place.line:
            message += f" that begins on line {error.context_mark.line + 1}"
    snippet = (mark.get_snippet() or "") if mark else ""
    if "${" in snippet:
        message += " (inside { } and [ ] write ${name} in quotes)"
    elif "\\t" in str(error.problem):
        message += " (indent with spaces, not tabs)"
    return _problem(file, place, (), message)
