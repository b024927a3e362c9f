"""``loopscope report``: tables, verdicts, figures of a run, made again from its streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import exits

HELP = "Make a run's tables, verdicts and figures again from its streams."


def report(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest.", show_default=False
        ),
    ],
    point: Annotated[
        str | None,
        typer.Option(
            "--point", metavar="NAME", help="One point of a sweep: its own report, in its folder."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as one JSON object.")
    ] = False,
) -> None:
    from loopscope.analysis import AnalysisError
    from loopscope.cli.analyse import analyse_again
    from loopscope.cli.results import judge, show
    from loopscope.cli.terminal import TerminalProgress
    from loopscope.control import RunFailed, make_timeline
    from loopscope.experiment import from_manifest
    from loopscope.timeline import RunError, open_run, points_of

    try:
        with TerminalProgress(verbose=False, plain=False) as progress:
            points = points_of(run) if point is None else [point]
            for name in points:
                opened = open_run(run, name)
                manifest = opened.manifest.get("experiment")
                if manifest is None:
                    what = "has no manifest.json that describes its experiment"
                    exits.end(exits.USAGE, f"{run} {what}")
                try:
                    experiment = from_manifest(manifest)
                except ValueError as error:
                    exits.end(exits.USAGE, f"{run}/manifest.json: experiment: {error}")
                if point is None and name != "base" and opened.incomplete:
                    continue  # a point that failed is judged by nothing
                progress.point(name if len(points) > 1 else "")
                for directory in opened.repeats.values():
                    progress.stage("making the time line")
                    make_timeline(experiment, directory, progress)
            progress.point("")
            progress.stage("analysing")
            results, place = judge(run, point)
        (place.parent / "results.json").write_text(results.to_json())
    except (AnalysisError, RunError, RunFailed) as error:
        exits.end(exits.USAGE, str(error))
    if as_json:
        typer.echo(results.to_json(), nl=False)
    else:
        show(results, place)
    if point is None:
        analyse_again(run)
    raise typer.Exit(exits.of_verdict(results.verdict))
