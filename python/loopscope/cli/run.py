"""``loopscope run``: one experiment from its file to its verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits, schedule
from loopscope.cli.experiment_file import load_or_end
from loopscope.cli.interrupt import endings_too
from loopscope.cli.terminal import TerminalProgress
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.analysis import Results, SweepResults
    from loopscope.experiment import Experiment
    from loopscope.pipeline import Judged

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
        bool, typer.Option("--json", help="Print the results, or the schedule, as one JSON object.")
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
    dry: Annotated[
        bool,
        typer.Option("--dry", help="Only print the schedule: who starts and takes part when."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the components print.")
    ] = False,
) -> None:
    experiment = load_or_end(file, param or [], as_json)
    if dry:
        schedule.show(experiment, as_json)
        return
    if junit is not None and not junit.absolute().parent.is_dir():
        exits.end(exits.USAGE, f"--junit {junit}: there is no such folder")
    if junit is not None and junit.is_dir():
        exits.end(exits.USAGE, f"--junit {junit}: this is a folder: name a file")
    with endings_too():
        try:
            judged = _run(experiment, file.read_bytes(), runs, stop, verbose)
        except _Ended as end:
            if junit is not None:
                _write_junit(junit, experiment.name, end.why)
            if as_json:
                typer.echo(to_json({"verdict": None, "error": end.why}))
            exits.end(end.code, end.to_show)
        # Slow imports, as below.
        from loopscope.analysis import FAILED, SweepResults
        from loopscope.cli.results import show

        told = junit is None or _write_junit(junit, experiment.name, judged.results)
        show(judged, "json" if as_json else "text")
    points = judged.results.points if isinstance(judged.results, SweepResults) else ()
    if failed := [point.name for point in points if point.status == FAILED]:
        some = f"{len(failed)} of {len(points)} points failed"
        exits.end(exits.RUN_FAILED, f"{some}: {', '.join(failed)}")
    # A CI system that has no verdicts to read must not take the run for passed.
    code = exits.of_verdict(judged.results.verdict)
    raise typer.Exit(code or (exits.PASS if told and judged.whole else exits.USAGE))


class _Ended(Exception):
    """A run that came to no verdict. ``to_show``: what of ``why`` was not shown yet."""

    def __init__(self, code: int, why: str, to_show: str | None = None) -> None:
        self.code, self.why, self.to_show = code, why, why if to_show is None else to_show
        super().__init__(why)


def _run(experiment: Experiment, source: bytes, runs: Path, stop: bool, verbose: bool) -> Judged:
    """Runs and judges. Raises _Ended."""
    # Slow imports come after the file is known to be good.
    from loopscope import pipeline
    from loopscope.control import RunFailed, RunInterrupted
    from loopscope.pandas_import import avoid_pandas

    with TerminalProgress(verbose) as progress:
        try:
            return pipeline.run(experiment, source, runs, progress, stop, avoid_pandas)
        except RunFailed as error:
            raise _Ended(exits.RUN_FAILED, str(error), error.to_show) from None
        except RunInterrupted as error:
            raise _Ended(exits.INTERRUPTED, f"interrupted; {error}") from None
        except OSError as error:
            raise _Ended(exits.RUN_FAILED, exits.file_error(error)) from None


def _write_junit(file: Path, experiment: str, outcome: Results | SweepResults | str) -> bool:
    """Writes the results, or why there are none; returns whether the file could be written."""
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
