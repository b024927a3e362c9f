"""Exit codes, and how a command ends with one."""

from __future__ import annotations

from typing import NoReturn

import typer

PASS = 0
FAIL = 1
USAGE = 2
UNKNOWN = 3
RUN_FAILED = 4
INTERRUPTED = 130


def of_verdict(verdict: str | None) -> int:
    """The exit code of a run's verdict."""
    return {"FAIL": FAIL, "UNKNOWN": UNKNOWN}.get(verdict or "PASS", PASS)


def end(code: int, message: str) -> NoReturn:
    """Ends the command with ``message`` on stderr."""
    typer.echo(f"loopscope: {message}", err=True)
    raise typer.Exit(code)


def file_error(error: OSError) -> str:
    """Message that says what cannot be read or written, and why."""
    file = f"{error.filename}: " if error.filename else ""
    return f"{file}{error.strerror or error}"


def end_of_file_error(error: OSError) -> NoReturn:
    """Ends the command with what cannot be read or written and why."""
    if error.filename is None:
        raise error  # of our own output: its reader went away, or its disk is full; `main` tells
    end(USAGE, file_error(error))
