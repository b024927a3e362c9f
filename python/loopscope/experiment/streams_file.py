"""A file of streams for ``record`` and ``attach``: as under ``trace.streams``, and also ``main``.

Mistakes are reported as those of an experiment file are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic_core import PydanticCustomError

from . import (
    checks,
    document,
    event_values,
    model_trace,
    plan,
    values,
    yaml_tree,
)
from .file_section import Section
from .problem import ExperimentErrors
from .resolve import stream


class _Trace(Section):
    streams: dict[Annotated[str, values.Name("a stream", 64)], model_trace.Stream]


class _File(Section):
    """The streams as a section of an experiment file."""

    trace: _Trace


def load_streams(path: str | Path) -> tuple[plan.Stream, ...]:
    """Reads a file of streams. Raises ExperimentErrors with everything that is wrong in it."""
    file = str(path)
    text, problems = document.read(path)
    if text is None:
        raise ExperimentErrors(problems)
    root, problems = yaml_tree.read(text, file, may_be_null=lambda path: False)
    if root is None:
        raise ExperimentErrors(problems)
    tree = yaml_tree.within(root, "trace", "streams")
    known = values.Names(paths={}, components=frozenset())
    read, wrong = checks.validated(_File, tree, file, known)
    problems += wrong
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
