"""``loopscope resume``: goes on with a recording whose recorder was killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.recording import AsJson, recorded_streams, report, run_host

HELP = """Go on with a recording whose recorder was killed, until its program ends or Ctrl-C.

loopscope resume out

The program has gone on and kept what its memory has room for. On Ctrl-C the recording is finished
and the program goes on. Exit code 2 if there is nothing to go on with.
"""


def resume(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="What record or attach got as --output.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    if sys.stderr.isatty():
        print(f"going on with {directory}; Ctrl-C ends it, the program goes on", file=sys.stderr)
    code = run_host("resume", [directory])
    if code != exits.USAGE:
        report(directory, recorded_streams(directory), code, as_json)
    raise typer.Exit(code)
