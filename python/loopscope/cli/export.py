"""``loopscope export``: a run for other tools."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.terminal import TerminalProgress

if TYPE_CHECKING:
    from loopscope.timeline import Run

HELP = "Write a run in a form of other tools."


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
            help="A run directory, for example runs/pipeline/latest.", show_default=False
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
        str | None, typer.Option("--point", metavar="NAME", help="Of this point of a sweep.")
    ] = None,
) -> None:
    from loopscope.timeline import RunError, open_run

    if repeat is not None and to not in (Form.perfetto, Form.ctf):
        exits.end(exits.USAGE, f"--repeat: {to.value} has all repeats, in the column repeat")
    try:
        opened = open_run(run, point)
        if to is Form.perfetto:
            _perfetto(opened, repeat, output or Path(f"{opened.experiment}.perfetto-trace"))
        elif to is Form.ctf:
            _ctf(opened, repeat, output or Path(f"{opened.experiment}-ctf"))
        else:
            _tables(opened, to.value, output or Path(f"{opened.experiment}-tables"))
    except RunError as error:
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)


def _perfetto(run: Run, repeat: int | None, file: Path) -> None:
    from loopscope.experiment import from_manifest
    from loopscope.export import write_perfetto

    chosen = _repeat(run, repeat)
    if file.exists() and not file.is_file():
        what = "is a folder" if file.is_dir() else "is no regular file"
        exits.end(exits.USAGE, f"{file} {what}: name a file with --output")
    if not file.absolute().parent.is_dir():
        exits.end(exits.USAGE, f"--output {file}: there is no such folder")
    manifest = run.manifest.get("experiment")
    try:
        paths = from_manifest(manifest).paths if manifest else ()
    except ValueError as error:
        exits.end(exits.USAGE, f"{run.path}/manifest.json: experiment: {error}")
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
        exits.end(exits.USAGE, f"{run.path} has no manifest.json that describes its experiment")
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

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        exits.end(exits.USAGE, f"{folder} exists: give another with --output, or remove it")
    with TerminalProgress(verbose=False) as progress:
        written = write_tables(run, form, folder, progress.stage)
    typer.echo(f"{folder}: {len(written)} tables")
