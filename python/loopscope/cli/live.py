"""``loopscope trigger``, ``enable`` and ``disable``: to recordings that go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import exits

HELP_TRIGGER = """Write the flight recorders of a record, an attach or a run that goes on.

loopscope trigger

PID is of the recording, of the run, or of the program that was attached to; a run is also called by
the end of its folder's name.
"""
HELP_ENABLE = """Record entities from now on in a recording that goes on.

loopscope enable 'pipe:*'
"""
HELP_DISABLE = """Record entities no longer in a recording that goes on.

loopscope disable 'pipe:noise'
"""

AsJson = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]
Patterns = Annotated[
    list[str], typer.Argument(metavar="GLOB…", help="Patterns on group:name.", show_default=False)
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="PID",
        help="The recording, or the program that was attached to. [default: the only one]",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Option("--stream", metavar="NAME", help="In which of its streams.")]


def trigger(
    pid: Annotated[
        str | None,
        typer.Argument(metavar="[PID]", help="Which. [default: the only one]", show_default=False),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this flight recorder.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    words = ["trigger", *([] if stream is None else ["--stream", stream])]
    host([*words, *([] if pid is None else [pid])], as_json)


def enable(
    patterns: Patterns, to: To = None, stream: Name = "main", as_json: AsJson = False
) -> None:
    _choose("enable", patterns, to, stream, as_json)


def disable(
    patterns: Patterns, to: To = None, stream: Name = "main", as_json: AsJson = False
) -> None:
    _choose("disable", patterns, to, stream, as_json)


def _choose(verb: str, patterns: Sequence[str], to: str | None, stream: str, as_json: bool) -> None:
    from loopscope.experiment import check_pattern

    try:
        for pattern in patterns:
            check_pattern(pattern)
    except ValueError as error:
        exits.end(exits.USAGE, str(error))
    target = [] if to is None else ["--to", to]
    host([verb, *target, "--stream", stream, "--", *patterns], as_json)


def host(words: Sequence[str], as_json: bool) -> None:
    """Has loopscope-host do what these words say, and prints what it prints."""
    typer.echo(answer([words[0], *(["--json"] if as_json else []), *words[1:]]), nl=False)


def answer(words: Sequence[str]) -> str:
    """Output of loopscope-host with these arguments. Ends the command where it fails."""
    done = ran(words)
    if done.stderr:
        print(done.stderr.replace("loopscope-host: ", "loopscope: "), end="", file=sys.stderr)
    if done.returncode:
        typer.echo(done.stdout, nl=False)
        raise typer.Exit(exits.USAGE)
    return done.stdout


def ran(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The exit status and output of loopscope-host with these arguments."""
    from loopscope.testbed import TestbedError, dormant, host_binary

    try:
        binary = host_binary()
    except TestbedError as error:
        exits.end(exits.USAGE, str(error))
    command: list[str | Path] = [binary, *words]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, env=dormant()
    )
