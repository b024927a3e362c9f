"""A graph made of runs: checked, carried out, its definition kept beside what it gave."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from loopscope import __version__
from loopscope.experiment import Experiment, Graph, MessagePath, from_manifest
from loopscope.graph.build import Context, Found, Product, walk
from loopscope.graph.engine import Engine, Types, types_of
from loopscope.graph.mistake import GraphError, reason
from loopscope.graph.outputs import write
from loopscope.graph.tables import Stored, path_types, points_of, stored_tables
from loopscope.report.figures import FigureError
from loopscope.timeline import Run, is_interrupt, open_run, read_manifest
from loopscope.timeline import points_of as points_with_tables

VERSION = 1
FOLDER = "analysis"
"""In a run's directory."""


@dataclass(frozen=True)
class Source:
    """What graphs are made of: the tables of some runs, and their paths."""

    runs: tuple[str, ...]
    tables: Mapping[str, Stored]
    paths: Mapping[str, MessagePath] | None
    """None: not known."""


@dataclass(frozen=True)
class Written:
    """Files that a step left. ``columns`` are its table's, with their types; ``problem`` says why
    there is no file."""

    kind: str
    name: str
    pipeline: str
    files: tuple[Path, ...]
    rows: int
    columns: Mapping[str, str]
    problem: str | None = None


def read_source(paths: Sequence[Path], point: str | None = None) -> Source:
    """Opens runs; ``point`` is that of a sweep, None: all that are whole.

    Raises RunError, and GraphError where runs do not go together.
    """
    runs: list[Run] = []
    swept: dict[str, Mapping[str, Any]] = {}
    known: dict[str, MessagePath] = {}
    for path in paths:
        manifest = read_manifest(path)
        experiment = _experiment(path, manifest)
        if experiment is not None:
            swept |= points_of(experiment)
            for each in experiment.paths:
                if known.setdefault(each.name, each).events != each.events:
                    raise GraphError(
                        f"{path}: the path {each.name!r} goes through other events than in the "
                        "runs before"
                    )
        names = points_with_tables(path) if point is None else [point]
        said = manifest.get("points", {})
        for name in names:
            if point is None and said.get(name, {}).get("status", "complete") != "complete":
                continue  # of a point that failed nothing is said
            runs.append(open_run(path, name))
    ids = tuple(dict.fromkeys(run.id for run in runs))
    return Source(ids, stored_tables(runs, swept), known)


def check(graph: Graph, source: Source) -> list[Found]:
    """Every mistake that the tables of the runs show."""
    return list(walk(graph, _context(graph, source, Types(), closed=True)))


def check_before(graph: Graph, experiment: Experiment | None) -> list[Found]:
    """Every mistake that can be seen before there is a run. Without an experiment nothing is known
    of paths."""
    tables: dict[str, Stored] = {}
    paths: dict[str, MessagePath] | None = None
    if experiment is not None:
        points = points_of(experiment).values()
        paths = {path.name: path for path in experiment.paths}
        tables = {
            f"paths.{path.name}": Stored((), path_types(path, points)) for path in experiment.paths
        }
    source = Source((), tables, paths)
    return list(walk(graph, _context(graph, source, Types(), closed=False)))


def make(
    graph: Graph,
    name: str,
    source: Source,
    engine: Engine,
    folder: Path,
    seen: Callable[[str], None],
) -> list[Written]:
    """Carries a checked graph out into ``folder``, which it replaces. ``seen`` is told of each
    file's name before it is written.

    Raises GraphError where the rows do not allow it, OSError where the folder cannot be written.
    """
    context = _context(graph, source, engine, closed=True)
    with _explained(name):
        mistakes = list(walk(graph, context))
    assert not mistakes, mistakes
    with _drafted(folder) as draft:
        written = []
        for product in context.products:
            seen(f"{name}: {product.name}")
            written.append(_write(product, engine, draft, folder))
        document = {
            "version": VERSION,
            "name": name,
            "runs": list(source.runs),
            "engine": {**engine.versions, "loopscope": __version__},
            "outputs": [
                {
                    "kind": each.kind,
                    "name": each.name,
                    "pipeline": each.pipeline,
                    "files": [str(file.relative_to(folder)) for file in each.files],
                    "rows": each.rows,
                    "columns": dict(each.columns),
                    "problem": each.problem,
                }
                for each in written
            ],
            "graph": dataclasses.asdict(graph),
        }
        (draft / "graph.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return written


@contextmanager
def _drafted(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of ``folder`` in the end; nothing stays of it
    where that fails."""
    draft = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if folder.exists():
        shutil.rmtree(folder)
    draft.replace(folder)


def kept_graphs(run: Path) -> Iterator[tuple[str, Graph]]:
    """The graphs whose output is in a run's directory, by name. Raises GraphError where one cannot
    be read."""
    for file in sorted((run / FOLDER).glob("[!.]*/graph.json")):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            if document["version"] != VERSION:
                raise ValueError(f"version {document['version']} is not known: {VERSION} is")
            graph = TypeAdapter(Graph).validate_json(json.dumps(document["graph"]))
        except (KeyError, TypeError, ValueError) as error:
            raise GraphError(f"{file}: not a graph's definition: {error}") from None
        yield file.parent.name, graph


def _write(product: Product, engine: Engine, draft: Path, folder: Path) -> Written:
    problem = None
    files: list[Path] = []
    rows = 0
    try:
        with _explained(product.pipeline):
            files, rows = write(product, engine, draft)
    except FigureError as error:
        problem = str(error)
    return Written(
        kind=product.kind,
        name=product.name,
        pipeline=product.pipeline,
        files=tuple(folder / file.relative_to(draft) for file in files),
        rows=rows,
        columns=types_of(product.table),
        problem=problem,
    )


@contextmanager
def _explained(of: str) -> Iterator[None]:
    """What an engine says of rows that it cannot compute, such as numbers beyond 64 bits."""
    try:
        yield
    except (FigureError, GraphError, OSError):
        raise
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        raise GraphError(f"{of}: {reason(error)}") from error


def _context(graph: Graph, source: Source, engine: Engine, closed: bool) -> Context:
    return Context(engine, source.tables, source.paths, graph.modules, closed)


def _experiment(path: Path, manifest: Mapping[str, Any]) -> Experiment | None:
    if "experiment" not in manifest:
        return None
    try:
        return from_manifest(manifest["experiment"])
    except (ValidationError, ValueError) as error:
        raise GraphError(f"{path / 'manifest.json'}: experiment: {error}") from None
