"""A file of streams for ``record`` and ``attach``: as under ``trace.streams``, and also ``main``.

Its mistakes are told as an experiment file's are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from . import checks, event_values, model_trace, plan, validation_problems, values, yaml_tree
from .file_section import Section
from .problem import ExperimentErrors, Problem
from .resolve import stream


class _Trace(Section):
    streams: dict[Annotated[str, values.Name("a stream", 64)], model_trace.Stream]


class _File(Section):
    """As it would be within an experiment file."""

    trace: _Trace


def load_streams(path: str | Path) -> tuple[plan.Stream, ...]:
    """Reads a file of streams. Raises ExperimentErrors with everything that is wrong in it."""
    file = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        message = f"cannot read the file: {error.strerror}"
        raise ExperimentErrors([Problem(file, 1, 1, "", message)]) from None
    except UnicodeDecodeError:
        raise ExperimentErrors([Problem(file, 1, 1, "", "the file is not UTF-8 text")]) from None
    root, problems = yaml_tree.read(text, file, may_be_null=lambda path: False)
    if root is None:
        raise ExperimentErrors(problems)
    tree = _within(root, "trace", "streams")
    read = None
    try:
        read = _File.model_validate(
            yaml_tree.plain_value(tree), context=values.Names(paths={}, components=frozenset())
        )
    except ValidationError as error:
        problems += validation_problems.problems(error, tree, file)
    problems += checks.problems(_File, tree, file)
    if problems or read is None:
        raise ExperimentErrors(sorted(problems, key=lambda found: (found.line, found.column)))
    return tuple(stream(name, each) for name, each in read.trace.streams.items())


def stream_filter(
    entities: str, where: str | None = None, every: int | None = None, rate: int | None = None
) -> plan.StreamFilter:
    """A filter of a stream. Raises ValueError where the pattern or the condition is wrong."""
    names = values.Names()
    try:
        event_values.Pattern().read(entities, names)
        if where is not None:
            event_values.Predicate().read(where, names)
    except PydanticCustomError as error:
        raise ValueError(error.message()) from None
    return plan.StreamFilter(entities, where, every, rate)


def check_pattern(pattern: str) -> None:
    """Raises ValueError where a text is no pattern on ``group:name``, ``!`` before it or not."""
    try:
        event_values.Pattern(excluding=True).read(pattern, values.Names())
    except PydanticCustomError as error:
        raise ValueError(error.message()) from None


def _within(tree: yaml_tree.Tree, *keys: str) -> yaml_tree.Tree:
    """A tree as it is below these keys."""
    for key in reversed(keys):
        tree = yaml_tree.Mapping(tree.mark, {key: tree}, {key: tree.mark})
    return tree
