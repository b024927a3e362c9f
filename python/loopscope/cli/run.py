"""``loopscope run``: one experiment from its file to its verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope import __version__
from loopscope.cli import exits
from loopscope.cli.experiment_file import load_or_end
from loopscope.cli.terminal import TerminalProgress

if TYPE_CHECKING:
    from loopscope.analysis import Results, SweepResults

HELP = "Run an experiment and judge it."


def run(
    file: Annotated[Path, typer.Argument(help="The experiment file.", show_default=False)],
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="Set a parameter of the file; one that is swept "
            "in a grid to a list, as in delay=0ms,10ms.",
        ),
    ] = None,
    runs: Annotated[
        Path, typer.Option("--runs", metavar="DIR", help="Where run directories are made.")
    ] = Path("runs"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as one JSON object.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End a sweep at the first point that fails.")
    ] = False,
    junit: Annotated[
        Path | None,
        typer.Option(
            "--junit",
            metavar="FILE",
            help="Write the verdicts as JUnit XML, for a CI system: UNKNOWN is an error there.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the components print.")
    ] = False,
) -> None:
    experiment = load_or_end(file, param or [])
    if junit is not None and not junit.absolute().parent.is_dir():
        exits.end(exits.USAGE, f"--junit {junit}: there is no such folder")
    if junit is not None and junit.is_dir():
        exits.end(exits.USAGE, f"--junit {junit}: this is a folder: name a file")
    # Slow imports come after the file is known to be good.
    from loopscope.cli.analyse import analyse_again
    from loopscope.control import RunFailed, RunInterrupted, run_experiment

    source = file.read_bytes()
    failed: tuple[int, str] | None = None
    with TerminalProgress(verbose) as progress:
        try:
            directory = run_experiment(experiment, source, runs, __version__, progress, stop)
        except RunFailed as error:
            failed = exits.RUN_FAILED, str(error)
        except RunInterrupted as error:
            failed = exits.INTERRUPTED, f"interrupted; {error}"
        except OSError as error:
            failed = exits.RUN_FAILED, str(error)
        else:
            progress.stage("analysing")
            from loopscope.analysis import AnalysisError
            from loopscope.cli.results import judge
            from loopscope.timeline import RunError

            try:
                results, report = judge(directory.path)
            except (AnalysisError, RunError) as error:
                failed = exits.RUN_FAILED, f"{error}\nwhat was measured is in {directory.path}"
            else:
                directory.write_results(results.to_json())
                directory.describe(verdict=results.to_dict()["verdict"])
    if failed:
        code, why = failed
        if junit is not None:
            _write_junit(junit, experiment.name, why)
        if as_json:
            typer.echo(json.dumps({"verdict": None, "error": why}))
        exits.end(code, why)
    told = junit is None or _write_junit(junit, experiment.name, results)
    if as_json:
        typer.echo(results.to_json(), nl=False)
    else:
        from loopscope.cli.results import show

        show(results, report)
    analyse_again(directory.path)
    if directory.failed_points:
        some = f"{len(directory.failed_points)} of {len(experiment.points)} points failed"
        exits.end(exits.RUN_FAILED, f"{some}: {', '.join(directory.failed_points)}")
    # A CI system that has no verdicts to read must not take the run for passed.
    raise typer.Exit(exits.of_verdict(results.verdict) or (exits.PASS if told else exits.USAGE))


def _write_junit(file: Path, experiment: str, outcome: Results | SweepResults | str) -> bool:
    """Of results, or of why there are none. Whether it could be written."""
    from loopscope.report.junit import write_junit, write_junit_of_failure

    try:
        if isinstance(outcome, str):
            write_junit_of_failure(file, experiment, outcome)
        else:
            write_junit(file, outcome)
    except OSError as error:
        # What the run itself has to say is not lost to this.
        typer.echo(f"loopscope: cannot write {file}: {error.strerror or error}", err=True)
        return False
    return True
