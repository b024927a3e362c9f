"""A graph made of runs: checked, carried out, its definition stored with its tables."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopscope import __version__
from loopscope.experiment import Experiment, Graph, MessagePath
from loopscope.graph.build import Context, Found, Product, walk
from loopscope.graph.engine import Engine, Types, types_of
from loopscope.graph.mistake import GraphError, reason
from loopscope.graph.outputs import write
from loopscope.graph.stored_analyses import VERSION
from loopscope.graph.tables import Stored, path_types, points_of, stored_tables, units_of_points
from loopscope.report.figures import FigureError
from loopscope.strict_json import to_json
from loopscope.timeline import (
    Run,
    is_interrupt,
    open_run,
    read_manifest,
    read_point,
    read_specification,
    run_id,
)
from loopscope.timeline import points_of as points_with_tables

Repeat = tuple[str, str, int]
"""Run, point and number."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of pipelines: the tables of some runs, and their paths."""

    runs: tuple[str, ...]
    tables: Mapping[str, Stored]
    paths: Mapping[str, MessagePath] | None
    """None: not known."""
    repeats: tuple[Repeat, ...] = ()
    """All that the tables may be of."""
    notes: tuple[str, ...] = ()
    """Inputs that are not used, and why."""


@dataclass(frozen=True)
class Written:
    """Files that a step left.

    ``columns`` are its table's, with their types; ``problem`` says why there is no file.
    """

    kind: str
    name: str
    pipeline: str
    files: tuple[Path, ...]
    rows: int
    columns: Mapping[str, str]
    problem: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    """Units of those columns that have one."""


def read_inputs(paths: Sequence[Path], point: str | None = None) -> Inputs:
    """Opens runs, each once; ``point`` is that of a sweep, None: all that are whole.

    Raises RunError, and GraphError where runs do not go together.
    """
    runs: list[Run] = []
    swept: dict[str, Mapping[str, Any]] = {}
    known: dict[str, MessagePath] = {}
    places: dict[str, Path] = {}
    notes: list[str] = []
    for path in paths:
        manifest = read_manifest(path)
        id = run_id(path, manifest)
        first = places.setdefault(id, path)
        if first is not path:
            if "run" not in manifest and first.resolve() != path.resolve():
                raise GraphError(
                    f"{first} and {path} are both called {id}, and no manifest.json says whether "
                    "they are one run: rename one of them"
                )
            notes.append(f"{path} is the run {id}, as is {first}: it is used once")
            continue
        experiment = read_specification(path, manifest)
        if experiment is not None:
            swept |= points_of(experiment)
            for each in experiment.paths:
                if known.setdefault(each.name, each).events != each.events:
                    raise GraphError(
                        f"{path}: the path {each.name!r} goes through other events than in the "
                        "runs before"
                    )
        names = points_with_tables(path) if point is None else [point]
        for name in names:
            said = read_point(path, manifest, name)
            if point is None and said.get("status", "complete") != "complete":
                notes.append(f"point {name} of the run {id} is left out: it is not complete")
                continue
            runs.append(open_run(path, name))
    ids = tuple(dict.fromkeys(run.id for run in runs))
    repeats = tuple((run.id, run.point, repeat) for run in runs for repeat in run.repeats)
    return Inputs(ids, stored_tables(runs, swept), known, repeats, tuple(notes))


def notes_of(graph: Graph, source: Inputs) -> list[str]:
    """Inputs that are in no output of a pipeline.

    Runs that are given twice, and repeats that lack a table which it takes.
    """
    context = _context(graph, source, Types(), closed=True)
    for _ in walk(graph, context):
        pass
    return [*source.notes, *_lacking(context, source)]


def _lacking(context: Context, source: Inputs) -> Iterator[str]:
    """The repeats that lack a table."""
    for table in sorted(context.opened):
        parts = (part.columns for part in source.tables[table].parts)
        there = {(part["run"], part["point"], part["repeat"]) for part in parts}
        for run in source.runs:
            of_run = [each for each in source.repeats if each[0] == run]
            lacking = [each for each in of_run if each not in there]
            if not lacking:
                continue
            where = f"the run {run}"
            if len(lacking) < len(of_run):
                where = "; ".join(f"repeat {n} of point {point}" for _, point, n in lacking)
                where = f"the run {run} ({where})"
            yield f"{where} has no table {table}: nothing that is made of it is of that"


def check(graph: Graph, source: Inputs) -> list[Found]:
    """Every mistake that the tables of the runs show."""
    return list(walk(graph, _context(graph, source, Types(), closed=True)))


def check_before(graph: Graph, experiment: Experiment | None) -> list[Found]:
    """Every mistake that can be seen before there is a run.

    Without an experiment nothing is known of paths.
    """
    tables: dict[str, Stored] = {}
    paths: dict[str, MessagePath] | None = None
    if experiment is not None:
        points = points_of(experiment).values()
        paths = {path.name: path for path in experiment.paths}
        tables = {
            f"paths.{path.name}": Stored((), path_types(path, points), units_of_points(points))
            for path in experiment.paths
        }
    source = Inputs((), tables, paths)
    return list(walk(graph, _context(graph, source, Types(), closed=False)))


def make(
    graph: Graph,
    name: str,
    source: Inputs,
    engine: Engine,
    folder: Path,
    seen: Callable[[str], None],
) -> list[Written]:
    """Carries a checked graph out into ``folder``, which it replaces.

    ``seen`` is told of each file's name before it is written.

    Raises GraphError where the rows do not allow it, OSError where the folder cannot be written.
    """
    context = _context(graph, source, engine, closed=True)
    with _engine_errors(name):
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
            "notes": [*source.notes, *_lacking(context, source)],
            "engine": {**engine.versions, "loopscope": __version__},
            "outputs": [
                {
                    "kind": each.kind,
                    "name": each.name,
                    "pipeline": each.pipeline,
                    "files": [str(file.relative_to(folder)) for file in each.files],
                    "rows": each.rows,
                    "columns": dict(each.columns),
                    "units": dict(each.units),
                    "problem": each.problem,
                }
                for each in written
            ],
            "graph": dataclasses.asdict(graph),
        }
        text = to_json(document, indent=2)
        (draft / "graph.json").write_text(text + "\n", encoding="utf-8")
    return written


@contextmanager
def _drafted(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of ``folder`` in the end.

    Nothing stays of it where that fails.
    """
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


def _write(product: Product, engine: Engine, draft: Path, folder: Path) -> Written:
    problem = None
    files: list[Path] = []
    rows = 0
    try:
        with _engine_errors(product.pipeline):
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
        units=product.units,
    )


@contextmanager
def _engine_errors(of: str) -> Iterator[None]:
    """Translates an engine's errors about rows that it cannot compute, as beyond 64 bits."""
    try:
        yield
    except (FigureError, GraphError, OSError):
        raise
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        raise GraphError(f"{of}: {reason(error)}") from error


def _context(graph: Graph, source: Inputs, engine: Engine, closed: bool) -> Context:
    return Context(engine, source.tables, source.paths, graph.modules, closed)
