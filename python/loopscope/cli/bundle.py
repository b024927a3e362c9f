"""``loopscope bundle``: runs as one archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.terminal import TerminalProgress

HELP = "Pack runs into one archive, from which every table and figure can be made again."


def bundle(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run directories, for example runs/pipeline/latest.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Default: EXPERIMENT-RUN.tar.gz, here."
        ),
    ] = None,
) -> None:
    from loopscope.export import write_bundle
    from loopscope.timeline import RunError, open_run, points_of

    try:
        opened = [open_run(run, points_of(run)[0]) for run in runs]
    except RunError as error:
        exits.end(exits.USAGE, str(error))
    file = output or Path(f"{opened[0].path.parent.name}-{opened[0].path.name}.tar.gz")
    try:
        with TerminalProgress(verbose=False) as progress:
            files, size = write_bundle([run.path for run in opened], file, progress.stage)
    except OSError as error:
        exits.end_of_file_error(error)
    packed = file.stat().st_size
    reports = [f"loopscope report runs/{run.path.parent.name}/{run.path.name}" for run in opened]
    typer.echo(f"{file}: {files} files, {size / 1e6:.1f} MB in {packed / 1e6:.1f} MB")
    typer.echo(f"elsewhere: tar -xzf {file.name}, then {'; '.join(reports)}")
