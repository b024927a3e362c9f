"""``loopscope analyse``: a graph of steps on the tables of runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscope import layout
from loopscope.cli import exits
from loopscope.cli.terminal import TerminalProgress
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.experiment import Experiment, Graph, Problem
    from loopscope.graph.build import Found
    from loopscope.graph.engine import Engine
    from loopscope.graph.execution import Written

HELP = "Make tables and figures of runs, by a graph of steps."


def analyse(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN…",
            help="Run directories, for example runs/pipeline/latest.",
            show_default=False,
        ),
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(
            "--graph",
            metavar="FILE",
            help="A file of pipelines. Default: what the (first) run's experiment has in analyse.",
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            help="duckdb, local-spark (all of this machine), or a Spark master such as "
            "spark://HOST:PORT.",
        ),
    ] = "duckdb",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where to. Default, of one run: analysis/NAME in its directory.",
        ),
    ] = None,
    point: Annotated[
        str | None, typer.Option("--point", metavar="NAME", help="Of this point of a sweep.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="Print what steps there are, with their options.")
    ] = False,
) -> None:
    from loopscope.control import RunFailed
    from loopscope.graph.execution import check, make, notes_of, read_inputs
    from loopscope.graph.mistake import GraphError
    from loopscope.report import show_analyses
    from loopscope.timeline import RunError

    if steps:
        typer.echo(
            to_json(_steps(), indent=2) if as_json else _steps_for_people(),
            nl=False,
        )
        return
    if not runs:
        exits.end(exits.USAGE, "analyse: name a run directory, or ask for --steps")
    if output is not None and output.exists() and not (output / "graph.json").exists():
        exits.end(exits.USAGE, f"{output} exists and is no output of analyse: give another")
    if output is None and len(runs) > 1:
        exits.end(exits.USAGE, "of several runs say where to with --output")
    try:
        name, chosen, file = _graph(runs[0], graph)
        folder = output or runs[0].resolve() / "analysis" / name
        shared = folder.parent
        shared.mkdir(parents=True, exist_ok=True)
        with TerminalProgress(verbose=False) as progress, _engine(engine, shared) as opened:
            _prepare(runs, opened, progress)
            source = read_inputs(runs, point)
            if mistakes := check(chosen, source):
                tell(file, mistakes)
                raise typer.Exit(exits.USAGE)
            notes = notes_of(chosen, source)
            written = make(chosen, name, source, opened, folder, progress.stage)
        if output is None:
            show_analyses(runs[0])
    except (GraphError, RunError, RunFailed) as error:
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
    _show(folder, written, notes, as_json)


def tell(file: Path, mistakes: Sequence[Found]) -> None:
    """Prints mistakes with their places."""
    from loopscope.graph.stored_analyses import placed

    for problem in placed(file, mistakes):
        typer.echo(_formatted(problem), err=True)


def _formatted(problem: Problem) -> str:
    from loopscope.experiment import format_problem

    return format_problem(problem)


def _experiment(run: Path) -> Experiment:
    from loopscope.timeline import described, read_manifest

    return described(run, read_manifest(run))


def _graph(run: Path, file: Path | None) -> tuple[str, Graph, Path]:
    """A graph, its name, and the file in which its mistakes are."""
    from loopscope.experiment import ExperimentErrors, load_graph
    from loopscope.graph.mistake import GraphError
    from loopscope.timeline import points_of

    if file is not None:
        try:
            return file.stem, load_graph(file), file
        except ExperimentErrors as errors:
            for problem in errors.problems:
                typer.echo(_formatted(problem), err=True)
            raise typer.Exit(exits.USAGE) from None
    points_of(run)  # says where it is no run
    experiment = _experiment(run)
    if not experiment.analyse.pipelines:
        raise GraphError(f"the experiment of {run} has no analyse: give a file with --graph")
    return experiment.name, experiment.analyse, run / "experiment.yaml"


def _engine(name: str, shared: Path) -> AbstractContextManager[Engine]:
    """An engine by its name. All executors of one can write to ``shared``."""
    from loopscope.experiment.problem import nearest
    from loopscope.graph.mistake import GraphError

    if name == "duckdb":
        from loopscope.graph.engine import DuckDB

        return DuckDB()
    if name == "local-spark" or name.startswith(("spark://", "local[", "local-cluster[")):
        from loopscope.graph.spark import Spark

        return Spark("local[*]" if name == "local-spark" else name, shared)
    close = nearest(name, ("duckdb", "local-spark"))
    hint = f" (did you mean {close}?)" if close else ""
    raise GraphError(
        f"there is no engine {name!r}{hint}: they are duckdb, local-spark, spark://HOST:PORT"
    )


def _prepare(runs: Sequence[Path], engine: Engine, progress: TerminalProgress) -> None:
    """Makes the time lines of repeats that have none, and the paths of points that lack one."""
    from loopscope.control import make_timeline, make_timelines
    from loopscope.timeline import open_run, points_of

    repeats: list[tuple[Experiment, Path]] = []
    points: list[tuple[str, str]] = []
    for run in {run.resolve(): run for run in runs}.values():
        for name in points_of(run):
            opened = open_run(run, name)
            directories = opened.repeats.values()
            missing = [each for each in directories if not layout.summary(each).exists()]
            experiment = opened.specification
            if opened.incomplete or experiment is None:
                continue
            paths = {path.name for path in experiment.paths}
            if missing or any(paths - layout.path_tables(each).keys() for each in directories):
                points.append((str(run.resolve()), name))
            repeats += [(experiment, directory) for directory in missing]
    if engine.spreads and repeats:
        make_timelines(engine.each, repeats, progress)
    else:
        for number, (experiment, directory) in enumerate(repeats, start=1):
            progress.stage(f"making time line {number} of {len(repeats)}")
            make_timeline(experiment, directory, progress)
    if points:
        progress.stage(f"paths, points: {len(points)}")
        engine.each(_make_paths, points)


def _make_paths(place: tuple[str, str]) -> None:
    from loopscope.analysis import analyse as measure
    from loopscope.analysis import write_path_tables
    from loopscope.timeline import open_run

    run = open_run(*place)
    write_path_tables(run, measure(run))


def _show(folder: Path, written: Sequence[Written], notes: Sequence[str], as_json: bool) -> None:
    here = Path.cwd()
    shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
    if as_json:
        outputs: list[dict[str, Any]] = [
            {
                "kind": each.kind,
                "name": each.name,
                "pipeline": each.pipeline,
                "rows": each.rows,
                "files": [str(file) for file in each.files],
                "columns": dict(each.columns),
                "units": dict(each.units),
                "problem": each.problem,
            }
            for each in written
        ]
        typer.echo(
            to_json(
                {"folder": str(folder), "outputs": outputs, "notes": list(notes)},
                indent=2,
            )
        )
        return
    from loopscope.analysis.quantity_text import number

    for note in notes:
        typer.echo(f"loopscope: {note}", err=True)
    width = max((len(each.name) for each in written), default=0)
    for each in written:
        files = ", ".join(str(file.relative_to(folder)) for file in each.files)
        what = f"{each.kind:<6}  {number(each.rows):>9} rows"
        typer.echo(f"{each.name:<{width}}  {what}  {each.problem or files}")
    typer.echo(f"analysis: {shown}")


def _steps() -> list[dict[str, Any]]:
    from loopscope.experiment.pipelines import options_of, steps
    from loopscope.experiment.steps import description_of

    return [
        {
            "step": name,
            "what": description_of(step),
            "takes": step.takes,
            "gives": step.gives,
            "options": [
                {"name": each.name, "what": each.what, "default": each.default}
                for each in options_of(step)
            ],
        }
        for name, step in steps().items()
    ]


def _steps_for_people() -> str:
    from loopscope.experiment.pipelines import documentation

    return documentation()
