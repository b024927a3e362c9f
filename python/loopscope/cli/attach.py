"""``loopscope attach``: records a program that runs already."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.recording import (
    AsJson,
    Enable,
    Every,
    Output,
    Rate,
    Streams,
    Where,
    report,
    run_host,
    streams_of,
)

HELP = """Record a program that runs already, until it ends, Ctrl-C, or --for is over.

loopscope attach 4711 -o out --for 10s

The program has been started with nothing but the library, and goes on when it is let go.
"""


def attach(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The program.", show_default=False)],
    output: Output,
    enable: Enable = None,
    where: Where = None,
    every: Every = None,
    rate: Rate = None,
    streams: Streams = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="For how long, such as 10s.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    from loopscope.experiment.quantity import DURATION, QuantityError, parse_whole

    words = [str(pid), "-o", str(output)]
    if duration is not None:
        try:
            words += ["--for", f"{parse_whole(duration, DURATION) / 1e9:.9f}"]
        except QuantityError as error:
            hint = f" (did you mean {error.hint}?)" if error.hint else ""
            exits.end(exits.USAGE, f"--for: {error.message}{hint}")
    asked = streams_of(enable or [], where or [], every or [], rate or [], streams)
    if sys.stderr.isatty():
        print(f"recording process {pid}; Ctrl-C ends it, the program goes on", file=sys.stderr)
    code = run_host("attach", words, asked)
    report(output, [stream.name for stream in asked], code, as_json)
    raise typer.Exit(code)
