"""The experiment file: its keys, its checks, and the plan that it stands for.

>>> experiment = load("experiments/pipeline.yaml", {"period": "1ms"})
>>> experiment.phases[0].timeout_ns
5000000000

The parsers are imported at first use, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .measures import (
    Allowed,
    Expectation,
    Figure,
    Hop,
    MessageType,
    MissesIn,
    PathEdge,
    PathEvent,
    Pattern,
    Requirement,
    Statistic,
    TimeWindow,
    Value,
)
from .measures import Path as MessagePath
from .path_text import described
from .plan import (
    AnalysisStep,
    ClockExchange,
    Clocks,
    Component,
    Emulation,
    EntityTrigger,
    ExitReady,
    Experiment,
    ForeignTrace,
    Graph,
    LineReady,
    Link,
    LinkStep,
    Network,
    PathTrigger,
    Phase,
    PhasesReady,
    Pipeline,
    Point,
    PortReady,
    Readiness,
    RealtimeStep,
    StartedReady,
    Stream,
    StreamFilter,
)
from .problem import ExperimentErrors, Problem, format_problem
from .streams import main_stream, streams_document, streams_of_host

__all__ = [
    "Allowed",
    "AnalysisStep",
    "ClockExchange",
    "Clocks",
    "Component",
    "Emulation",
    "EntityTrigger",
    "ExitReady",
    "Expectation",
    "Experiment",
    "ExperimentErrors",
    "Figure",
    "ForeignTrace",
    "Graph",
    "Hop",
    "LineReady",
    "Link",
    "LinkStep",
    "MessagePath",
    "MessageType",
    "MissesIn",
    "Network",
    "PathEdge",
    "PathEvent",
    "PathTrigger",
    "Pattern",
    "Phase",
    "PhasesReady",
    "Pipeline",
    "Point",
    "PortReady",
    "RealtimeStep",
    "Problem",
    "Readiness",
    "Requirement",
    "StartedReady",
    "Statistic",
    "Stream",
    "StreamFilter",
    "TimeWindow",
    "Value",
    "check",
    "check_pattern",
    "described",
    "format_problem",
    "from_manifest",
    "graph_schema",
    "is_graph",
    "json_schema",
    "link_change",
    "links_document",
    "load",
    "load_graph",
    "load_streams",
    "main_stream",
    "manifest_schema",
    "place_in",
    "read_graph",
    "stream_filter",
    "streams_document",
    "streams_of_host",
]


def load(path: str | Path, overrides: Mapping[str, str] | None = None) -> Experiment:
    """Reads an experiment file; ``overrides`` replace parameters, as text.

    Raises ExperimentErrors with every mistake at once. What is only doubtful is in the
    experiment's ``warnings``.
    """
    from .document import load as load_file

    return load_file(path, overrides or {})


def check(path: str | Path, overrides: Mapping[str, str] | None = None) -> list[Problem]:
    """Every mistake in an experiment file, in its order, warnings among them."""
    from .document import check as check_file

    return check_file(path, overrides or {})


def load_streams(path: str | Path) -> tuple[Stream, ...]:
    """Reads a file of streams, ``main`` perhaps among them. Raises ExperimentErrors."""
    from .streams_file import load_streams as load_file

    return load_file(path)


def load_graph(path: str | Path) -> Graph:
    """Reads a file of pipelines, as under ``analyse``. Raises ExperimentErrors."""
    from .graph_file import load_graph as load_file

    return load_file(path)


def is_graph(path: str | Path) -> bool:
    """Whether a file is one of pipelines, and not an experiment."""
    from .graph_file import is_graph as look

    return look(path)


def read_graph(path: str | Path) -> tuple[Graph | None, list[Problem]]:
    """A file of pipelines, None where it holds a mistake, and its mistakes."""
    from .graph_file import read_graph as read_file

    return read_file(path)


def place_in(path: str | Path, keys: Sequence[str | int]) -> tuple[int, int]:
    """Line and column, from 1, of what keys and indexes lead to in a file, as far as they do."""
    from .document import place_in as find

    return find(path, keys)


def stream_filter(
    entities: str, where: str | None = None, every: int | None = None, rate: int | None = None
) -> StreamFilter:
    """A filter of a stream. Raises ValueError where the pattern or the condition is wrong."""
    from .streams_file import stream_filter as checked

    return checked(entities, where, every, rate)


def check_pattern(pattern: str) -> None:
    """Raises ValueError where a text is no pattern on ``group:name``."""
    from .streams_file import check_pattern as check

    check(pattern)


def link_change(link: str, words: Sequence[str]) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """A change of a link, ``A -> B`` and ``delay=200ms`` …: directions, and the settings that
    change as ``schema/links.md`` has them. Raises ValueError."""
    from .live_link_change import link_change as read

    return read(link, words)


def links_document(experiment: Experiment, ports: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """What the router is told (``schema/links.md``), whose ports these are."""
    from .emulated_links import document

    return document(experiment, ports)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the experiment file, for editors."""
    from .schema import experiment_schema

    return experiment_schema()


def graph_schema() -> dict[str, Any]:
    """The JSON Schema of a file of pipelines."""
    from .schema import graph_schema as schema

    return schema()


def manifest_schema() -> dict[str, Any]:
    """The JSON Schema of a resolved experiment as ``Experiment.to_manifest`` gives it."""
    from .schema import manifest_schema as schema

    return schema()


def from_manifest(manifest: Mapping[str, Any]) -> Experiment:
    """The experiment of a manifest; other keys in it are ignored. Raises ValueError."""
    from .schema import from_manifest as read

    return read(manifest)
