"""``loopscope report``: tables, verdicts, figures of a run, made again from its streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.terminal import TerminalProgress
from loopscope.files import write_whole

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
    experiment_file: Annotated[
        Path | None,
        typer.Option(
            "--experiment",
            metavar="FILE",
            help="Judge by this file: its measure, expect and analyse, and its figures. Default: "
            "by the experiment that was run.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as one JSON object.")
    ] = False,
) -> None:
    from loopscope.analysis import AnalysisError
    from loopscope.cli.analyse import analyse_again
    from loopscope.cli.judge_by import judge_by
    from loopscope.cli.results import judge, show
    from loopscope.control import RunFailed
    from loopscope.timeline import RunError

    try:
        with TerminalProgress(verbose=False, plain=False) as progress:
            _take_over(run, progress)
            judge_by(run, experiment_file)
            _make_timelines(run, point, progress)
            progress.stage("analysing")
            judged = judge(run, point)
        with judged.writing():
            write_whole(judged.folder / "results.json", judged.results.to_json())
    except (AnalysisError, RunError, RunFailed) as error:
        if experiment_file is not None:
            judge_by(run, None)
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
    show(judged, as_json)
    whole = point is not None or analyse_again(run)
    whole = whole and not judged.unwritten
    raise typer.Exit(
        exits.of_verdict(judged.results.verdict) or (exits.PASS if whole else exits.USAGE)
    )


def _take_over(run: Path, progress: TerminalProgress) -> None:
    """Does for a run whose controller was killed what that left undone."""
    from loopscope.control import mark_killed, settle
    from loopscope.timeline import KILLED, read_manifest

    status = read_manifest(run).get("status")
    if status == "running":
        exits.end(exits.USAGE, f"{run} goes on: report it when it has ended")
    if status != KILLED:
        return
    progress.note(f"{run}: its controller was killed; what was recorded until then is judged")
    for repeat in run.glob("*/[0-9]*"):
        settle(repeat)
    mark_killed(run)


def _make_timelines(run: Path, point: str | None, progress: TerminalProgress) -> None:
    from loopscope.control import make_timeline
    from loopscope.experiment import from_manifest
    from loopscope.timeline import open_run, points_of

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
