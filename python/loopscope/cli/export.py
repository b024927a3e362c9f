"""``loopscope export``: a run for other tools."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.query import print_missing
from loopscope.cli.terminal import TerminalProgress

if TYPE_CHECKING:
    from loopscope.timeline import Run

HELP = "Write a run, a recording or an import in a form of other tools."


TRACE = ".perfetto-trace"


class Form(str, Enum):
    perfetto = "perfetto"
    parquet = "parquet"
    arrow = "arrow"
    csv = "csv"
    ctf = "ctf"


def export(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest; a recording or an import.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Form,
        typer.Option(
            "--to",
            help="perfetto: one trace for ui.perfetto.dev. ctf: one CTF 1.8 trace on the global "
            "clock, for babeltrace2. parquet, arrow, csv: a file per table.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A file of perfetto, a new folder of the others. "
            "Default: EXPERIMENT.perfetto-trace, EXPERIMENT-ctf, EXPERIMENT-tables, here.",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option("--repeat", help="Of perfetto and ctf: which. Default: the first."),
    ] = None,
    point: Annotated[
        str | None,
        typer.Option(
            "--point",
            metavar="NAME",
            help="Of this point of a sweep. Default: all, in the column `point` of tables, in a "
            "folder with a trace for each otherwise.",
        ),
    ] = None,
) -> None:
    from loopscope.timeline import RunError, is_recorded, open_run, open_tables, points_of

    if repeat is not None and to not in (Form.perfetto, Form.ctf):
        exits.end(exits.USAGE, f"--repeat: {to.value} has all repeats, in the column repeat")
    try:
        if to not in (Form.perfetto, Form.ctf):
            opened = open_tables(run, point)
            print_missing(opened)
            _tables(opened, to.value, output or Path(f"{opened.experiment}-tables"))
            return
        points = [] if is_recorded(run) or point is not None else points_of(run)
        if len(points) > 1:
            _each_point([open_run(run, name) for name in points], to, repeat, output)
            return
        opened = open_tables(run, point)
        if is_recorded(run) and (run / "import.json").exists():
            exits.end(
                exits.USAGE,
                f"{run} is an import, whose events are of no processes of loopscope's: "
                "--to parquet, arrow or csv",
            )
        if to is Form.perfetto:
            _perfetto(opened, repeat, output or Path(f"{opened.experiment}{TRACE}"))
        else:
            _ctf(opened, repeat, output or Path(f"{opened.experiment}-ctf"))
    except RunError as error:
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)


def _each_point(runs: list[Run], to: Form, repeat: int | None, output: Path | None) -> None:
    """A trace for each point, in a folder."""
    folder = output or Path(f"{runs[0].experiment}-{to.value}")
    _check_new(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        if to is Form.perfetto:
            _perfetto(run, repeat, folder / f"{run.point}{TRACE}")
        else:
            _ctf(run, repeat, folder / run.point)


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        exits.end(exits.USAGE, f"{folder} exists: give another with --output, or remove it")


def _perfetto(run: Run, repeat: int | None, file: Path) -> None:
    from loopscope.export import write_perfetto

    chosen = _repeat(run, repeat)
    if file.exists() and not file.is_file():
        what = "is a folder" if file.is_dir() else "is no regular file"
        exits.end(exits.USAGE, f"{file} {what}: name a file with --output")
    if not file.absolute().parent.is_dir():
        exits.end(exits.USAGE, f"--output {file}: there is no such folder")
    paths = run.specification.paths if run.specification is not None else ()
    with TerminalProgress(verbose=False) as progress:
        count = write_perfetto(run, chosen, paths, file, progress.stage)
    typer.echo(f"{file}: {count} entries of repeat {chosen} (instants, counts, ends of slices)")


def _repeat(run: Run, repeat: int | None) -> int:
    chosen = next(iter(run.repeats)) if repeat is None else repeat
    if chosen not in run.repeats:
        known = ", ".join(map(str, run.repeats))
        exits.end(exits.USAGE, f"--repeat {chosen}: the run has {known}")
    return chosen


def _ctf(run: Run, repeat: int | None, folder: Path) -> None:
    from rich.progress import MofNCompleteColumn

    from loopscope.cli.terminal import amount_progress
    from loopscope.export import write_ctf

    chosen = _repeat(run, repeat)
    hosts = run.manifest.get("experiment", {}).get("hosts")
    if not hosts:
        exits.end(
            exits.USAGE,
            f"{run.path} has no manifest.json that describes its experiment; a recording is a CTF "
            "trace as it is",
        )
    try:
        with amount_progress("writing", MofNCompleteColumn()) as seen:
            written = write_ctf(run, chosen, hosts[0], folder, seen)
    except ValueError as error:
        exits.end(exits.USAGE, str(error))
    typer.echo(
        f"{folder}: {written.events} events of repeat {chosen} in {written.streams} streams; "
        f"look at it: babeltrace2 {folder}"
    )


def _tables(run: Run, form: str, folder: Path) -> None:
    from loopscope.export import write_tables

    _check_new(folder)
    with TerminalProgress(verbose=False) as progress:
        written = write_tables(run, form, folder, progress.stage)
    typer.echo(f"{folder}: {len(written)} tables")
