"""``loopscope report``: tables, verdicts, figures of a run, made again from its streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.terminal import TerminalProgress

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
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv",
            help="Print the table of paths and hops as CSV: times in ns, and for each point of a "
            "sweep its parameters.",
        ),
    ] = False,
) -> None:
    from loopscope import pipeline
    from loopscope.cli.judge_by import judge_by
    from loopscope.cli.results import show
    from loopscope.control import RunFailed
    from loopscope.timeline import NothingMeasuredError, RunError, read_manifest

    if as_json and as_csv:
        exits.end(exits.USAGE, "--json and --csv exclude each other")
    try:
        if read_manifest(run).get("status") == "running":
            exits.end(exits.USAGE, f"{run} goes on: report it when it has ended")
        judge_by(run, experiment_file)
        with TerminalProgress(verbose=False, plain=False) as progress:
            judged = pipeline.report(run, point, progress)
    except NothingMeasuredError as error:
        exits.end(exits.RUN_FAILED, str(error))
    except (RunError, RunFailed) as error:
        if experiment_file is not None:
            judge_by(run, None)
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
    show(judged, "json" if as_json else "csv" if as_csv else "text")
    raise typer.Exit(
        exits.of_verdict(judged.results.verdict) or (exits.PASS if judged.whole else exits.USAGE)
    )
