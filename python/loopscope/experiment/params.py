"""Parameters: their values, and ``$name`` in the rest of the file.

``$name`` and ``${name}`` stand for the parameter, ``$$`` for a dollar sign, everywhere except in
``name``, ``description``, ``hosts``, ``params``, ``sweep`` and in keys. A value that is nothing but
a reference takes the parameter's type; within a text, its spelling.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping as AbstractMapping
from dataclasses import replace

from . import quantity
from .problem import Problem, dotted, nearest
from .yaml_tree import (
    Location,
    Mapping,
    Mark,
    Scalar,
    Sequence,
    Tree,
    Value,
    child,
    entries,
    plain_scalar,
    unusable_character,
)

REFERENCE = r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOLLAR = re.compile(r"\$(?:(\$)|([A-Za-z_][A-Za-z0-9_]*)|\{([^{}]*)\})?")
_LITERAL = {"name", "description", "hosts", "params", "sweep"}
# Words that a shell would act on; a command line here is only split.
_SHELL_WORDS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"}


class Params:
    """The parameters of one file with the caller's overrides, and the problems met in their use.

    ``point`` are the values that a point of the sweep gives some of them.
    """

    def __init__(
        self,
        root: Tree,
        overrides: AbstractMapping[str, str],
        file: str,
        point: AbstractMapping[str, Scalar] | None = None,
    ) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.table: dict[str, Scalar] = {}
        self.used: set[str] = set()
        tree = child(root, "params")
        for name, _, value in entries(tree):
            if not isinstance(value, Scalar):
                # The model says what is wrong with it.
                value = Scalar(value.mark, None, "", bad=True)
            self.table[name] = self._default(name, value)
        at = root.keys["params"] if isinstance(root, Mapping) and tree else Mark(1, 1)
        for name, text in overrides.items():
            self._override(name, text, at)
        self.table.update(point or {})

    def values(self) -> dict[str, str | int | float | bool]:
        """Each right parameter's value, overrides applied."""
        return {
            name: scalar.value
            for name, scalar in self.table.items()
            if scalar.value is not None and not scalar.bad
        }

    def substitute(self, root: Tree) -> Tree:
        """The tree with every reference replaced, commands split into words."""
        return self._tree(root, ())

    def unused(self, root: Tree) -> list[Problem]:
        """A warning for each parameter that nothing refers to. After ``substitute``."""
        if self.problems:
            # What seems unused may be what a wrong reference meant.
            return []
        return [
            Problem(
                self.file,
                mark.line,
                mark.column,
                dotted(("params", name)),
                f"nothing uses the parameter {name!r}",
                severity="warning",
            )
            for name, mark, _ in entries(child(root, "params"))
            if name in self.table and name not in self.used
        ]

    def _default(self, name: str, scalar: Scalar) -> Scalar:
        if scalar.value is None:
            return replace(scalar, bad=True)
        if not isinstance(scalar.value, str) or "$" not in scalar.value:
            return scalar
        text = scalar.value.replace("$$", "")
        if "$" in text:
            message = "a parameter cannot refer to another one (a dollar sign is $$)"
            self._report(scalar.mark, ("params", name), message)
            return replace(scalar, bad=True)
        literal = scalar.value.replace("$$", "$")
        return replace(scalar, value=literal, text=literal)

    def _override(self, name: str, text: str, at: Mark) -> None:
        given = f"-p {name}={text}".encode("utf-8", "backslashreplace").decode()
        default = self.table.get(name)
        if default is None:
            close = nearest(name, self.table)
            message = f"there is no parameter {name!r} for {given} to set"
            self._report(at, ("params", name), message, close)
            return
        if default.bad:
            return
        try:
            value = like(default.value, text)
        except ValueError as error:
            message = f"{given}: {error} (the file has {default.text})"
            self._report(default.mark, ("params", name), message)
            self.table[name] = replace(default, bad=True)
        else:
            self.table[name] = replace(default, value=value, text=text)

    def _tree(self, tree: Tree, path: Location) -> Tree:
        if len(path) == 1 and path[0] in _LITERAL:
            return tree
        if isinstance(tree, Sequence):
            items = [self._tree(item, (*path, i)) for i, item in enumerate(tree.items)]
            return Sequence(tree.mark, items)
        if isinstance(tree, Mapping):
            made = {key: self._tree(item, (*path, key)) for key, item in tree.items.items()}
            return Mapping(tree.mark, made, tree.keys)
        if tree.bad or tree.value is None:
            return tree
        part = str(path[2]) if len(path) >= 3 and path[0] == "components" else ""
        # `run` is a command, and so is each of `commands`.
        depth = {"run": 3, "commands": 4}.get(part)
        if len(path) == depth and isinstance(tree.value, str):
            return self._command(tree, path)
        if (part == "env" and len(path) == 4) or (depth and len(path) == depth + 1):
            # Programs and environments take text: 1.50 stays 1.50.
            return self._expand(replace(tree, value=tree.text), path, as_text=True)
        return self._expand(tree, path)

    def _command(self, scalar: Scalar, path: Location) -> Tree:
        """A command line, split before substitution: a value with a space stays one word."""
        try:
            words = shlex.split(scalar.text)
        except ValueError as error:
            message = f"this command line cannot be split into words: {str(error).lower()}"
            self._report(scalar.mark, path, message)
            return replace(scalar, bad=True)
        shell = next((word for word in words if word in _SHELL_WORDS), None)
        if shell is not None:
            message = f"{shell!r} needs a shell: run sh -c '…', or give the words as a list"
            self._report(scalar.mark, path, message)
            return replace(scalar, bad=True)
        made = [
            self._expand(replace(scalar, value=word, text=word), path, as_text=True)
            for word in words
        ]
        if any(word.bad for word in made):
            return replace(scalar, bad=True)
        return Sequence(scalar.mark, list(made))

    def _expand(self, scalar: Scalar, path: Location, as_text: bool = False) -> Scalar:
        text = scalar.value
        if not isinstance(text, str) or "$" not in text:
            return scalar
        made = ""
        end = 0
        first: str | None = None
        for match in _DOLLAR.finditer(text):
            made += text[end : match.start()]
            end = match.end()
            if match[1]:
                made += "$"
                continue
            name = match[2] or match[3]
            parameter = self._look_up(name, match[0], scalar.mark, path)
            if parameter is None or parameter.bad:
                return replace(scalar, bad=True)
            if match[0] == text and not as_text:
                return replace(parameter, mark=scalar.mark, parameter=name)
            first = first or name
            made += parameter.text
        made += text[end:]
        return replace(scalar, value=made, text=made, parameter=first)

    def _look_up(self, name: str | None, given: str, mark: Mark, path: Location) -> Scalar | None:
        if not name or not _NAME.fullmatch(name):
            message = f"{given!r} names no parameter: write $name, or $$ for a dollar sign"
            self._report(mark, path, message)
            return None
        self.used.add(name)
        found = self.table.get(name)
        if found is None:
            close = nearest(name, self.table)
            dollar = "" if close else " (a dollar sign is $$)"
            message = f"there is no parameter {name!r}{dollar}"
            self._report(mark, path, message, f"${close}" if close else None)
        return found

    def _report(self, mark: Mark, path: Location, message: str, hint: str | None = None) -> None:
        self.problems.append(
            Problem(self.file, mark.line, mark.column, dotted(path), message, hint)
        )


def like(default: Value, text: str) -> Value:
    """A text as a value of the default's kind: a number for a number, a time for a time.

    Raises ValueError with the reason why it is none.
    """
    unusable = unusable_character(text)
    if unusable is not None:
        raise ValueError(f"holds a {unusable}")
    if isinstance(default, str):
        dimension = quantity.dimension_of(default)
        if dimension is not None:
            quantity.parse(text, dimension)
        return text
    value = plain_scalar(text)
    if isinstance(default, bool) and not isinstance(value, bool):
        raise ValueError("should be true or false")
    if not isinstance(default, bool) and (
        isinstance(value, bool) or not isinstance(value, int | float)
    ):
        raise ValueError("should be a number")
    return value
