"""The graphs of a run made again: its experiment's, and those whose output is in its directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from loopscope.experiment import Graph, Problem, format_problem
from loopscope.experiment.problem import dotted
from loopscope.graph.mistake import GraphError
from loopscope.strict_json import to_json
from loopscope.timeline import read_manifest, read_specification

if TYPE_CHECKING:
    from loopscope.graph.build import Found

VERSION = 1
"""Version of `graph.json`."""
FOLDER = "analysis"
"""In a run's directory."""


@dataclass
class Made:
    """Messages about pipelines that were made, for people."""

    notes: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    """Why some could not be made."""

    @property
    def whole(self) -> bool:
        """Whether all could be made."""
        return not self.mistakes


def make_kept(run: Path, seen: Callable[[str], None]) -> Made:
    """Makes the graph of a run's experiment, and those whose output is in the run, on this machine.

    ``seen`` is told of each file before it is written.
    """
    made = Made()
    try:
        if not (graphs := graphs_of(run)):
            return made
        # Ibis takes half a second, which most runs do without.
        from loopscope.graph.engine import DuckDB
        from loopscope.graph.execution import check, make, notes_of, read_inputs

        source = read_inputs([run])
        for name, (graph, file) in sorted(graphs.items()):
            if mistakes := check(graph, source):
                made.mistakes += [format_problem(each) for each in placed(file, mistakes)]
                continue
            made.notes += notes_of(graph, source)
            with DuckDB() as engine:
                make(graph, name, source, engine, run / FOLDER / name, seen)
    except GraphError as error:
        made.mistakes.append(f"loopscope: {error}")
    except OSError as error:
        place = error.filename or run
        made.mistakes.append(f"loopscope: {place}: {error.strerror or error}")
    return made


def graphs_of(run: Path) -> dict[str, tuple[Graph, Path]]:
    """The graph of a run's experiment, and those whose output is in the run, by name.

    Each has the place that its mistakes are told of. Raises GraphError where one cannot be read.
    """
    graphs = {name: (graph, run / FOLDER / name) for name, graph in kept_graphs(run)}
    experiment = read_specification(run, read_manifest(run))
    if experiment and experiment.analyse.pipelines:
        graphs[experiment.name] = experiment.analyse, run / "experiment.yaml"
    return graphs


def placed(file: Path, mistakes: Sequence[Found]) -> list[Problem]:
    """Mistakes at their places in the file."""
    from loopscope.experiment import place_in

    return [
        Problem(str(file), *place_in(file, each.place), dotted(each.place), each.message, each.hint)
        for each in mistakes
    ]


def kept_graphs(run: Path) -> Iterator[tuple[str, Graph]]:
    """The graphs whose output is in a run's directory, by name.

    Raises GraphError where one cannot be read.
    """
    for file in sorted((run / FOLDER).glob("[!.]*/graph.json")):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            if document["version"] != VERSION:
                raise ValueError(f"version {document['version']} is not known: {VERSION} is")
            graph = TypeAdapter(Graph).validate_json(to_json(document["graph"]))
        except (KeyError, TypeError, ValueError) as error:
            raise GraphError(f"{file}: not a graph's definition: {error}") from None
        yield file.parent.name, graph
