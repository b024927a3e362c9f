"""A change of a link while it is used, as typed: ``delay=200ms loss=1%``.

Mistakes are reported as those of an experiment file are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import checks, yaml_tree
from .file_section import Section
from .link_settings import LinkSettings, Pair, ends
from .problem import Problem, nearest
from .values import Names


class _File(Section):
    """The change as a section of an experiment file."""

    network: dict[str, LinkSettings]


def link_change(link: str, words: Sequence[str]) -> tuple[list[Pair], dict[str, Any]]:
    """The directions that ``link`` names, and the change in the links document's terms.

    Files are relative to the working directory. Raises ValueError with what is wrong.
    """
    pairs = ends(link)
    if not pairs:
        raise ValueError(f"{link!r} names no link: write 'A -> B', or 'A <-> B' for both ways")
    if not words:
        raise ValueError("nothing to change: give settings such as delay=200ms loss=1%")
    settings = yaml_tree.Mapping(yaml_tree.Mark(1, 1))
    for word in words:
        key, tree = _setting(word)
        if key in settings.items:
            raise ValueError(f"{key} is given twice")
        settings.items[key] = tree
        settings.keys[key] = tree.mark
    tree = yaml_tree.within(settings, "network", link)
    read, problems = checks.validated(_File, tree, "", Names(folder=Path.cwd()))
    _refuse(problems)
    assert read is not None
    return pairs, read.network[link].document()


def _setting(word: str) -> tuple[str, yaml_tree.Tree]:
    key, _, value = word.partition("=")
    if key not in LinkSettings.model_fields:
        close = nearest(key, LinkSettings.model_fields)
        known = (
            f"did you mean {close}?" if close else f"known: {', '.join(LinkSettings.model_fields)}"
        )
        raise ValueError(f"a link has no setting {key!r} ({known})")
    if not value:
        raise ValueError(f"{key} has no value: write {key}=VALUE")
    tree, problems = yaml_tree.read(value, "", may_be_null=lambda path: False)
    _refuse(problems)
    assert tree is not None
    return key, tree


def _refuse(problems: Sequence[Problem]) -> None:
    for problem in problems:
        hint = f" (did you mean {problem.hint}?)" if problem.hint else ""
        raise ValueError(f"{problem.message}{hint}")
