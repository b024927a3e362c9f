"""``loopscope doctor``: what machines offer and lack, and what each absence costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.interrupt import endings_too
from loopscope.cli.machines import machines
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.testbed.examination import Examined, Finding

HELP = """List what this machine, or others, offer and lack, and what each absence costs.

loopscope doctor pipeline.yaml

Without FILE and HOST it is this machine; with them it is machines of testbed ssh, as a run would
find them. The host program is sent to them if they lack it; nothing else on them is changed.
"""


def doctor(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|HOST…",
            help="Machines: those of an experiment file, or one that ssh can connect to.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    from loopscope.testbed.examination import examine_here

    if hosts:
        _on_hosts(hosts, as_json)
        return
    findings = list(examine_here())
    if as_json:
        typer.echo(to_json({"findings": [asdict(each) for each in findings]}))
    else:
        _show(findings)


def _on_hosts(named: list[str], as_json: bool) -> None:
    with endings_too():
        examined = _examine(named)
    if as_json:
        found = {
            host: {"findings": [asdict(finding) for finding in each.findings]}
            for host, each in examined.items()
        }
        typer.echo(to_json({"machines": found}))
    else:
        for host, each in examined.items():
            typer.echo(f"host {host}:")
            _show(each.findings)
    incomplete = [host for host, each in examined.items() if not each.complete]
    if incomplete:
        exits.end(exits.RUN_FAILED, f"could not be examined: {', '.join(incomplete)}")


def _examine(named: list[str]) -> dict[str, Examined]:
    from loopscope.cli.terminal import TerminalProgress
    from loopscope.testbed.examination import examine_machines

    found = machines(named, "doctor")
    with TerminalProgress(verbose=False) as progress:
        return asyncio.run(examine_machines(found, progress.stage))


def _show(findings: Iterable[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    # A file or a pipe has no width.
    console.soft_wrap = not console.is_terminal
    for finding in findings:
        mark = "[green]has[/]  " if finding.ok else "[yellow]lacks[/]"
        console.print(f"{mark} {escape(finding.what)}: {escape(finding.found)}")
        if finding.cost:
            console.print(f"        {escape(finding.cost)}")
