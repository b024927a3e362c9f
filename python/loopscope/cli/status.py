"""``loopscope status``: how far runs are, from any terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.control.standing import Standing

HELP = """Show how far a run is: its phase, and what each component does.

loopscope status

Without RUN: every run below the folder of runs that goes on, or else the newest one.
"""


def status(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest.", show_default=False
        ),
    ] = None,
    runs: Annotated[
        Path, typer.Option("--runs", metavar="DIR", help="Where run directories are.")
    ] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as a JSON array.")] = False,
) -> None:
    from loopscope.control.standing import runs_below, standing_of
    from loopscope.timeline import RunError, read_manifest

    try:
        if run is not None:
            found = [standing_of(existing(run), read_manifest(run))]
        else:
            every = [standing_of(each, read_manifest(each)) for each in runs_below(runs)]
            found = [each for each in every if each.goes_on] or every[-1:]
    except RunError as error:
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
    if not found:
        exits.end(exits.USAGE, f"there is no run below {runs}; --runs names another folder")
    if as_json:
        typer.echo(to_json([each.to_json() for each in found], indent=2))
        return
    typer.echo("\n\n".join("\n".join(_lines(each)) for each in found))


def existing(run: Path) -> Path:
    """The directory of a run. Ends the command where it is none."""
    if not (run / "manifest.json").is_file():
        exits.end(exits.USAGE, f"{run} is no run: it has no manifest.json")
    return run.resolve() if run.is_symlink() else run


def _lines(standing: Standing) -> list[str]:
    how = "goes on" if standing.goes_on else standing.status
    if standing.verdict is not None:
        how += f", {standing.verdict}"
    lines = [f"{standing.experiment}: {how}", f"  {standing.run}"]
    if standing.repeat is not None:
        point, repeat = standing.repeat.parts[-2:]
        place = f"repeat {repeat}" if point == "base" else f"point {point}, repeat {repeat}"
        if standing.goes_on and standing.stage_since_s is not None:
            elapsed = max(time.time() - standing.stage_since_s, 0)
            limit = f" of at most {standing.timeout_s:g} s" if standing.timeout_s else ""
            lines.append(f"  {place}: {standing.stage}, {elapsed:.0f} s{limit}")
        else:
            lines.append(f"  {place}: {standing.stage} was the last stage")
    components = sorted(standing.components.values(), key=lambda c: (c.host, c.component))
    wide = max((len(c.host) for c in components), default=0)
    wider = max((len(c.component) for c in components), default=0)
    lines += [f"  {c.host:{wide}}  {c.component:{wider}}  {c.status}" for c in components]
    lines += [f"  note: {line}" for note in standing.notes for line in note.splitlines()]
    if standing.failure is not None:
        lines += [f"  {line}" for line in standing.failure.splitlines()]
    return lines
