"""``loopscope reset``: removes what crashed runs left on this machine."""

from __future__ import annotations

import json
import subprocess
from typing import Annotated

import typer

from loopscope.cli import exits
from loopscope.strict_json import to_json

HELP = "Remove what any crashed run or recorder left: processes, namespaces, links, directories."


def reset(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was removed as JSON.")
    ] = False,
) -> None:
    from loopscope.testbed import TestbedError, host_binary

    try:
        binary = host_binary()
    except TestbedError as error:
        exits.end(exits.RUN_FAILED, str(error))
    # Only the host side changes a machine; it also owns the ledger that says what was made.
    done = subprocess.run(
        [binary, "reset", "--json"], capture_output=True, encoding="utf-8", check=False
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        exits.end(exits.RUN_FAILED, f"reset failed: {done.stderr.strip() or done.returncode}")
    if as_json:
        typer.echo(to_json(report))
    else:
        for kind, title in (("removed", "removed"), ("in_use", "left alone, in use")):
            for item in report[kind]:
                typer.echo(f"{title}: {item}")
        for item in report["problems"]:
            typer.echo(f"not removed: {item}", err=True)
        if not any(report.values()):
            typer.echo("nothing to remove")
    if report["problems"]:
        raise typer.Exit(exits.RUN_FAILED)
