"""``loopscope fetch``: collects what a run left on its hosts."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscope.cli import exits
from loopscope.cli.interrupt import endings_too
from loopscope.cli.status import existing
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.testbed.upkeep import Fetched

HELP = """Collect what a run of testbed ssh left on its hosts, and remove it from them.

loopscope fetch runs/pipeline/latest

What hosts measured stays on them when their network was cut, when they were rebooted, and when the
controller was killed. This copies it into the run's directory; loopscope report then judges the run
as far as it goes. It can be interrupted and repeated.
"""


def fetch(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest.", show_default=False
        ),
    ],
    quota: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Take so much of each host at most, such as 40GB. "
            "[default: as the experiment has it]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was fetched as JSON.")
    ] = False,
) -> None:
    from loopscope.control import settle
    from loopscope.control.collection import Collection, collected_later
    from loopscope.experiment.quantity import SIZE, QuantityError, parse_whole
    from loopscope.testbed import upkeep
    from loopscope.timeline import RunError, goes_on, read_manifest

    try:
        quota_bytes = None if quota is None else parse_whole(quota, SIZE)
    except QuantityError as error:
        exits.end(exits.USAGE, f"--quota: {error.message}")
    path = existing(run)
    outcomes: dict[str, Fetched] = {}
    try:
        read_manifest(path)
        if goes_on(path):
            exits.end(exits.USAGE, f"{path} goes on: it collects from its hosts when it ends")
        with endings_too():
            for note in sorted(path.glob(f"*/*/{upkeep.SPOOLS}")):
                repeat = note.parent
                work = upkeep.fetch(repeat, quota_bytes, lambda text: typer.echo(text, err=True))
                outcome = outcomes[str(repeat.relative_to(path))] = asyncio.run(work)
                collection = Collection(outcome.left_out)
                collection.leave_out(settle(repeat))
                collection.left_out = {h: e for h, e in collection.left_out.items() if e.count}
                outcome.left_out = collection.left_out
                collected_later(path, repeat, collection, list(outcome.bytes))
    except (RunError, ValueError) as error:
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
    if as_json:
        typer.echo(
            to_json({repeat: _described(each) for repeat, each in outcomes.items()}, indent=2)
        )
    else:
        _show(path, outcomes)
    if any(each.problems for each in outcomes.values()):
        raise typer.Exit(exits.RUN_FAILED)


def _described(outcome: Fetched) -> dict[str, Any]:
    left_out = {host: found.to_manifest() for host, found in outcome.left_out.items()}
    return {**asdict(outcome), "left_out": left_out}


def _show(run: Path, outcomes: dict[str, Any]) -> None:
    for repeat, outcome in outcomes.items():
        for host, size in sorted(outcome.bytes.items()):
            typer.echo(f"fetched: {size} bytes of host {host} into {run / repeat}/hosts/{host}")
        for host in sorted(outcome.gone):
            typer.echo(f"host {host} has nothing of {repeat} any more")
        for host, left_out in sorted(outcome.left_out.items()):
            typer.echo(left_out.note(host), err=True)
        for problem in outcome.problems:
            typer.echo(f"not fetched: {problem}", err=True)
    if not outcomes:
        typer.echo("nothing to fetch: no host has anything of this run")
    elif any(outcome.bytes for outcome in outcomes.values()):
        typer.echo(f"to judge the run as far as it goes: loopscope report {run}")
