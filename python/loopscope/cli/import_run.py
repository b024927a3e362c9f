"""``loopscope import --run``: what other tools recorded, added to a run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from loopscope import layout
from loopscope.cli import exits
from loopscope.cli.terminal import TerminalProgress
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.timeline import Run

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"


def import_into_run(
    trace: Path,
    run: Path,
    host: str | None,
    name: str | None,
    clock: str | None,
    repeat: int | None,
    point: str | None,
    as_json: bool,
) -> None:
    """Copies the trace into the run and makes the run's tables again, with it."""
    from loopscope.control import CannotAdd, RunFailed, add_foreign, make_timeline
    from loopscope.timeline import RunError, described, open_run

    if host is None:
        exits.end(exits.USAGE, "--host: name the host that it was recorded on")
    if not trace.exists():
        exits.end(exits.USAGE, f"{trace}: no such file or directory; name what a tracer wrote")
    called = name or re.sub(r"[^A-Za-z0-9_.-]", "_", trace.resolve().name).lstrip("_.-") or "trace"
    if not re.fullmatch(NAME, called):
        exits.end(
            exits.USAGE,
            f"--name {called}: use letters, digits, - _ and ., a letter or a digit first",
        )
    added = None
    try:
        opened = open_run(run, point)
        directory = _repeat(opened, repeat)
        experiment = described(run, opened.manifest)
        with TerminalProgress(verbose=False) as progress:
            progress.stage("copying the trace")
            added = add_foreign(directory, trace, host, called, clock)
            progress.stage("making the time line")
            make_timeline(experiment, directory, progress)
    except (CannotAdd, RunError, RunFailed, ValueError) as error:
        if added is not None:
            shutil.rmtree(added, ignore_errors=True)
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
    summary = json.loads(layout.summary(directory).read_text(encoding="utf-8"))
    prefix = f"imports/{called}/"
    (found,) = (
        each
        for each in summary["foreign"]
        if each["host"] == host and each["source"].startswith(prefix)
    )
    if as_json:
        typer.echo(to_json(found))
    else:
        _show(found, run, directory)


def _repeat(run: Run, repeat: int | None) -> Path:
    known = ", ".join(map(str, run.repeats))
    if repeat is None and len(run.repeats) > 1:
        exits.end(exits.USAGE, f"the run has several repeats: give --repeat, one of {known}")
    chosen = next(iter(run.repeats)) if repeat is None else repeat
    if chosen not in run.repeats:
        exits.end(exits.USAGE, f"--repeat {chosen}: the run has {known}")
    return run.repeats[chosen]


def _show(found: dict[str, Any], run: Path, directory: Path) -> None:
    tables = ", ".join(found["tables"]) or "no table"
    clock = f"by {found['host']}'s clock {found['clock']}" if found["clock"] else "of no clock"
    typer.echo(f"{found['events']} events {clock}: {tables}")
    lost = found["lost"]
    typer.echo(
        f"lost: {lost['events']} events, {lost['packets']} packets"
        + (f", up to {lost['events_before']} events before" if lost["events_before"] else "")
    )
    for problem in found["problems"]:
        typer.echo(f"! {problem}", err=True)
    typer.echo(f"kept: {directory}/hosts/{found['host']}/{Path(found['source']).parent}")
    typer.echo(f"to judge the run again with it: loopscope report {run}")
