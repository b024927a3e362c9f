"""``loopscope reset``: removes what crashed runs left, here or on hosts."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscope.cli import exits
from loopscope.cli.machines import machines
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.experiment import Machine

HELP = """Remove what any crashed run or recorder left: processes, namespaces, links, directories.

loopscope reset --hosts pipeline.yaml

Without --hosts: on this machine. What runs of testbed ssh measured on a host is not removed unless
it is asked for: loopscope fetch collects it.
"""


def reset(
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--hosts",
            metavar="FILE|HOST",
            help="On these machines instead, over ssh: those of an experiment file, or one that "
            "ssh can connect to; can be repeated.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        bool,
        typer.Option(
            "--data", help="Also delete what runs measured there and no desk has collected."
        ),
    ] = False,
    cache: Annotated[
        bool, typer.Option("--cache", help="Also delete the programs that desks have sent there.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was removed as JSON.")
    ] = False,
) -> None:
    report = _on_hosts(machines(hosts, "--hosts"), data, cache) if hosts else _here(data, cache)
    if as_json:
        typer.echo(to_json(report))
    else:
        titles = {"removed": "removed", "in_use": "left alone, in use", "left": "left alone"}
        for kind, title in titles.items():
            for item in report[kind]:
                typer.echo(f"{title}: {item}")
        for item in report["problems"]:
            typer.echo(f"not removed: {item}", err=True)
        if not any(report.values()):
            typer.echo("nothing to remove")
    if report["problems"]:
        raise typer.Exit(exits.RUN_FAILED)


def _here(data: bool, cache: bool) -> dict[str, Any]:
    from loopscope.testbed import TestbedError, host_binary
    from loopscope.testbed.scratch import sweep

    try:
        binary = host_binary()
    except TestbedError as error:
        exits.end(exits.RUN_FAILED, str(error))
    words = ["--json", *(["--data"] if data else []), *(["--cache"] if cache else [])]
    # Only the host side changes a machine; it also owns the ledger that says what was made.
    done = subprocess.run(
        [binary, "reset", *words], capture_output=True, encoding="utf-8", check=False
    )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        exits.end(exits.RUN_FAILED, f"reset failed: {done.stderr.strip() or done.returncode}")
    report["removed"] += [f"{path}, of a controller that was killed" for path in sweep()]
    return report


def _on_hosts(named: dict[str, Machine], data: bool, cache: bool) -> dict[str, Any]:
    from loopscope.testbed import upkeep

    return asdict(asyncio.run(upkeep.reset(named, data, cache)))
