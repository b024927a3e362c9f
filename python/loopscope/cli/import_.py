"""``loopscope import``: what other tools recorded, as tables of their own or of a run."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer

from loopscope.cli import exits

WIDTH = 120

HELP = (
    "Read the CTF 1.8 traces in a directory (LTTng's, barectf's, any) and say what is in them; "
    "with -o, write each kind of event as a table; with --run, add them, or a capture of packets, "
    "to a run's tables, on its time line."
)
OF_RUN = "Adding to a run"


def import_(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A trace, or a directory of traces; with --run also a pcap or pcapng file.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Write the tables there, as Parquet; must not exist, or be empty.",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Add to the tables of this run, in which it was recorded.",
            rich_help_panel=OF_RUN,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST", help="The host that it was recorded on.", rich_help_panel=OF_RUN
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What to call it: the process of events whose own is not known. Default: DIR's.",
            rich_help_panel=OF_RUN,
        ),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(
            metavar="CLOCK",
            help="The clock of its stamps: realtime, monotonic, ptp0, … Default: the one that a "
            "trace names, realtime for packets.",
            rich_help_panel=OF_RUN,
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Of this repeat; to be given where there are several.",
            rich_help_panel=OF_RUN,
        ),
    ] = None,
    point: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of this point of a sweep.", rich_help_panel=OF_RUN),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object.")
    ] = False,
) -> None:
    from rich.progress import DownloadColumn

    from loopscope._native import import_ctf
    from loopscope.cli.terminal import amount_progress

    of_run = {
        "--host": host,
        "--name": name,
        "--clock": clock,
        "--repeat": repeat,
        "--point": point,
    }
    if run is not None:
        from loopscope.cli.import_run import import_into_run

        if out is not None:
            exits.end(exits.USAGE, "-o and --run exclude each other: a run has its tables in it")
        import_into_run(directory, run, host, name, clock, repeat, point, as_json)
        return
    for option, given in of_run.items():
        if given is not None:
            exits.end(exits.USAGE, f"{option} is of a run: give --run too")
    if directory.is_file():
        exits.end(
            exits.USAGE,
            f"{directory} is a file: of a CTF trace name the directory with the file `metadata`; "
            "a capture of packets needs a run, with --run",
        )
    if not directory.is_dir():
        exits.end(exits.USAGE, f"{directory}: no such directory; name one that a tracer wrote")
    try:
        with amount_progress("reading", DownloadColumn()) as seen:
            text = import_ctf(directory, out, seen)
    except ValueError as error:
        exits.end(exits.USAGE, str(error))
    if as_json:
        typer.echo(text)
    else:
        _show(json.loads(text))


def _show(summary: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # A file or a pipe has no width of its own.
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(highlight=False, soft_wrap=True, width=width)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("table", overflow="fold")
    for heading in ("rows", "from", "lasts"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in summary["tables"]:
        begin, end = each["from_ns"], each["until_ns"]
        table.add_row(each["table"], _number(each["rows"]), _time(begin), _lasts(begin, end))
    console.print(table)
    count, kinds = summary["events"], len(summary["tables"])
    lasts = _lasts(summary["from_ns"], summary["until_ns"])
    lasted = f" in {lasts}" if lasts else ""
    traces = len(summary["traces"])
    of = f"{traces} trace" + ("s" if traces != 1 else "")
    of_kinds = f"{kinds} kind" + ("s" if kinds != 1 else "")
    typer.echo(f"{_number(count)} events of {of_kinds}{lasted}, {of}")
    lost = summary["lost"]
    typer.echo(
        f"lost: {_number(lost['events'])} events, {_number(lost['packets'])} packets"
        + _before(lost["events_before"])
    )
    for each in summary["losses"]:
        typer.echo(
            f"  {each['stream']}: {_number(each['events'])} events, "
            f"{_number(each['packets'])} packets{_before(each['events_before'])}"
        )
    for problem in summary["problems"]:
        typer.echo(f"! {problem}", err=True)
    if not summary["tables"]:
        typer.echo("no events: there is no table")
    elif summary["out"] is None:
        typer.echo("no table was written: name a directory for them with -o")
    else:
        typer.echo(f"tables: {summary['out']}/timeline")


def _before(events: int) -> str:
    return f", up to {_number(events)} events before the first packets" if events else ""


def _number(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _lasts(begin: int | None, end: int | None) -> str:
    return "" if begin is None or end is None else f"{(end - begin) * 1e-9:.6f} s"


def _time(ns: int | None) -> str:
    """A date where it can be one, else seconds."""
    if ns is None:
        return "no clock"
    seconds, rest = divmod(ns, 1_000_000_000)
    if seconds < 86_400 * 365:
        return f"{ns * 1e-9:.9f} s"
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}.{rest:09}"
