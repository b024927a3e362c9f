"""``loopscope record``: runs any instrumented program and keeps its trace."""

from __future__ import annotations

from typing import Annotated

import typer

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

HELP = """Run an instrumented program and keep its trace. Returns the program's exit code.

loopscope record -o out -- ./loop 1000

loopscope record -o out -e 'pipe:*' --where 'pipe:sent: id % 100 == 0' -- ./loop 1000

While it runs: loopscope trigger, loopscope enable, loopscope disable.
"""


def record(
    command: Annotated[
        list[str], typer.Argument(help="The program and its arguments.", show_default=False)
    ],
    output: Output,
    enable: Enable = None,
    where: Where = None,
    every: Every = None,
    rate: Rate = None,
    streams: Streams = None,
    as_json: AsJson = False,
) -> None:
    asked = streams_of(enable or [], where or [], every or [], rate or [], streams)
    code = run_host("record", ["-o", output, "--", *command], asked)
    report(output, [stream.name for stream in asked], code, as_json)
    raise typer.Exit(code)
