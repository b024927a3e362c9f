"""Python values as the YAML text of an experiment file, which `yaml_tree` reads back as the same.

A number that was read from a file keeps its spelling: programs are given `1.50` as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import yaml
from yaml.nodes import Node, ScalarNode

from .problem import dotted
from .yaml_tree import Location, Scalar, Sequence, Tree, plain_scalar

_PLAIN = "plain"
_TEXT = "tag:yaml.org,2002:str"


class SpelledInt(int):
    """A whole number with its spelling in a file."""

    spelling: str


class SpelledFloat(float):
    """A number with its spelling in a file."""

    spelling: str


def spelled_value(tree: Tree) -> Any:
    """The tree as Python's own types; numbers keep their spelling."""
    if isinstance(tree, Sequence):
        return [spelled_value(item) for item in tree.items]
    if not isinstance(tree, Scalar):
        return {key: spelled_value(item) for key, item in tree.items.items()}
    value = tree.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    number = SpelledInt(value) if isinstance(value, int) else SpelledFloat(value)
    number.spelling = tree.text
    return number


def yaml_text(keys: Mapping[str, Any]) -> str:
    """The text of a file with these keys, in their order.

    Raises TypeError where a value has no form in an experiment file.
    """
    text: str = yaml.dump(
        _writable(keys, ()),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )
    return text


def _writable(value: Any, place: Location) -> Any:
    """The value with tuples as lists and paths as text."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{dotted(place) or 'the experiment'}: the key {key!r} is no text")
        return {key: _writable(each, (*place, key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(each, (*place, i)) for i, each in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    finite = not isinstance(value, float) or math.isfinite(value)
    if isinstance(value, str | int | float | None) and finite:
        return value
    what = f"{dotted(place)}: {value!r} ({type(value).__name__})"
    raise TypeError(f"{what} has no form in an experiment file: give a text such as '5ms'")


class _Dumper(yaml.SafeDumper):
    """Quotes a text exactly where the reader would take it for something else."""

    def resolve(self, kind: type[Node], value: str | None, implicit: tuple[bool, bool]) -> str:
        if kind is ScalarNode and implicit[0]:
            try:
                return _TEXT if isinstance(plain_scalar(str(value)), str) else _PLAIN
            except ValueError:
                return _PLAIN
        resolved: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return resolved

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> Node:
    return dumper.represent_scalar(_TEXT, str(value), "|" if "\n" in value else None)


def _plain(dumper: yaml.SafeDumper, value: Any) -> Node:
    if isinstance(value, SpelledInt | SpelledFloat):
        text = value.spelling
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = "null" if value is None else repr(value)
    return dumper.represent_scalar(_PLAIN, text)


_Dumper.add_multi_representer(str, _text)
for _type in (bool, int, float, type(None)):
    _Dumper.add_representer(_type, _plain)
    _Dumper.add_multi_representer(_type, _plain)
