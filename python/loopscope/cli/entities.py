"""``loopscope entities``: which entities a program or a process has."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any

import typer

from loopscope.cli import exits

WIDTH = 120

HELP = "List the entities of a program, without running it, or of a running process."


def entities(
    target: Annotated[
        str,
        typer.Argument(
            metavar="BINARY-or-PID",
            help="A program, a shared library, or a process id (./123 for a file of that name).",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list of call sites as JSON.")
    ] = False,
) -> None:
    from loopscope.testbed import TestbedError, host_binary

    try:
        binary = host_binary()
    except TestbedError as error:
        exits.end(exits.USAGE, str(error))
    done = subprocess.run(
        [binary, "entities", "--json", "--", target],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        exits.end(exits.USAGE, done.stderr.strip().removeprefix("loopscope-host: "))
    if as_json:
        typer.echo(done.stdout.strip())
    else:
        _print(json.loads(done.stdout))


def _print(sites: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("entity", "kind", "carries", "place"):
        table.add_column(heading, overflow="fold", no_wrap=heading != "carries")
    shown = ""
    for site in sites:
        entity = f"{site['group']}:{site['name']}"
        carries = Text(_carries(site))
        if entity != shown and site["description"]:
            carries.append("\n" if carries else "").append(site["description"], style="dim")
        label = Text("" if entity == shown else entity, style="bold")
        shown = entity
        table.add_row(label, site["kind"], carries, Text(f"{site['file']}:{site['line']}"))
    # A file or a pipe has no width of its own.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for group, description in sorted({(s["group"], s["group_description"]) for s in sites}):
        if description:
            console.print(Text(f"{group}: {description}"))
    console.print(table)


def _carries(site: dict[str, Any]) -> str:
    """Content of a record or of the entity's state: fields, buckets, unit."""
    parts = [f"{field['type']} {field['name']}" for field in site["fields"]]
    if site.get("scale") == "linear":
        parts.append(f"{site['low']} to {site['high']} in {site['buckets']}")
    elif site.get("scale") == "log":
        parts.append("log-linear")
    if site["unit"]:
        parts.append(site["unit"])
    return ", ".join(parts)
