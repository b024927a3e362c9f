"""``loopscope findings``: the patterns in the times of a run's messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.text_table import printable_lines
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.analysis.findings.result import PathFindings
    from loopscope.experiment import MessagePath
    from loopscope.timeline import Run

HELP = (
    "Find patterns in the times of a path's messages: what repeats, drifts, steps, warms up, lies "
    "on a grid or has several modes, and the kernel activity that goes with it."
)


def _complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """The run's paths."""
    from loopscope.timeline import RunError, open_run

    try:
        known = _paths(open_run(Path(ctx.params["run"]), ctx.params.get("point")))
    except (RunError, KeyError, TypeError):
        return []
    return [name for name in known if name.startswith(incomplete)]


def findings(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest.", show_default=False
        ),
    ],
    path: Annotated[
        str | None,
        typer.Option(
            "--path", metavar="NAME", help="Only this path. Default: all.", autocompletion=_complete
        ),
    ] = None,
    point: Annotated[
        str | None, typer.Option("--point", metavar="NAME", help="Of this point of a sweep.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each path.")
    ] = False,
) -> None:
    from loopscope.analysis.findings.result import lines
    from loopscope.report.samples import FigureError, missing
    from loopscope.timeline import RunError, open_run

    try:
        opened = open_run(run, point)
        paths = _paths(opened)
        if not paths:
            raise RunError(
                f"{opened.path} has no paths: `measure: paths` of an experiment gives them"
            )
        if path is not None and path not in paths:
            raise FigureError(f"--path: {missing('path', path, paths)}")
        for each in [paths[path]] if path is not None else paths.values():
            found = _of(opened, each)
            if as_json:
                typer.echo(to_json(found.to_dict(), ensure_ascii=False))
                continue
            for line in lines(found):
                typer.echo("\n".join(printable_lines(line)))
    except (FigureError, RunError) as error:
        exits.end(exits.USAGE, str(error))


def _paths(run: Run) -> dict[str, MessagePath]:
    experiment = run.specification
    return {} if experiment is None else {each.name: each for each in experiment.paths}


def _of(run: Run, path: MessagePath) -> PathFindings:
    from loopscope.analysis.findings.read import branches, findings
    from loopscope.analysis.messages import read_messages

    if path.edges:
        return branches(path.name)
    return findings(run, read_messages(run, path)[0])
