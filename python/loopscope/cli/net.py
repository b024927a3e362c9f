"""``loopscope net``: the emulated links of a run that goes on."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from loopscope.cli import exits, live
from loopscope.strict_json import to_json

HELP = "Show and change the emulated links of a run that goes on."
HELP_SHOW = """Show what each emulated link was asked for and what it has done so far.

loopscope net show
"""
HELP_SET = """Change settings of an emulated link from now on; its others stay.

loopscope net set 'h2 -> h3' delay=200ms loss=1%

Settings are written as in an experiment file, in one word: jitter='{uniform: 1ms}'. none takes one
back: loss=none.
"""

# Raised for what a host says that is no description of links.
UNUSABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)

app = typer.Typer(help=HELP, no_args_is_help=True)

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="RUN",
        help="Of which run: the end of its folder's name, or a process id. [default: the only one]",
        show_default=False,
    ),
]

Runs = Annotated[
    Path,
    typer.Option("--runs", metavar="DIR", help="Where directories of runs of testbed ssh are."),
]


@app.command("show", help=HELP_SHOW)
def show(to: To = None, runs: Runs = Path("runs"), as_json: live.AsJson = False) -> None:
    repeat = _on_machines(to, runs)
    answers = _ask(repeat, to, ["show"], _router(repeat))
    try:
        links = [link for said in answers for link in json.loads(said)]
        rows = [_cells(link) for link in links]
    except UNUSABLE:
        exits.end(exits.USAGE, f"this does not tell of links: {' '.join(answers)[:200]}")
    if as_json:
        typer.echo(to_json(links, indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("link", "asked", "in", "out", "dropped", "delay p50", "p99", "max"):
        table.add_column(heading, justify="left" if heading in ("link", "asked") else "right")
    for row in rows:
        table.add_row(*row)
    # A file or a pipe has no width of its own.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(table, markup=False)


def _cells(link: dict[str, Any]) -> list[str]:
    from loopscope.analysis.quantity_text import duration

    now = link["segments"][-1]
    dropped = ", ".join(f"{cause} {n}" for cause, n in now["dropped"].items() if n)
    delays = [now["delay_ns"][name] for name in ("p50", "p99", "max")]
    return [
        f"{link['from']} -> {link['to']}",
        _asked(now["asked"]),
        str(now["in"]["packets"]),
        str(now["out"]["packets"]),
        dropped or "0",
        *("–" if ns is None else duration(round(ns)) for ns in delays),
    ]


def _asked(settings: dict[str, Any]) -> str:
    """Settings as the file has them: `delay=20ms loss=1%`; those of several numbers as JSON."""
    from loopscope.experiment import quantity
    from loopscope.experiment.quantity import DURATION, RATE

    words = []
    for name, value in settings.items():
        if not value:
            continue
        if name == "delay_ns":
            words.append(f"delay={quantity.format(value, DURATION)}")
        elif name == "rate_bps":
            words.append(f"rate={quantity.format(value, RATE)}")
        elif name in ("duplicate", "corrupt"):
            words.append(f"{name}={_share(value)}")
        elif name == "loss" and value["kind"] == "independent" and not value["correlation"]:
            words.append(f"loss={_share(value['probability'])}")
        elif name == "jitter" and value["distribution"] == "normal" and not value["correlation"]:
            words.append(f"jitter={quantity.format(value['ns'], DURATION)}")
        else:
            words.append(f"{name}={to_json(value)}")
    return " ".join(words) or "–"


def _share(probability: float) -> str:
    return f"{100 * probability:.6g}%"


@app.command("set", help=HELP_SET)
def set_settings(
    link: Annotated[str, typer.Argument(metavar="LINK", help="'A -> B', or 'A <-> B'.")],
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE…", help="What changes.", show_default=False)
    ],
    to: To = None,
    runs: Runs = Path("runs"),
    as_json: live.AsJson = False,
) -> None:
    from loopscope.experiment import link_change

    try:
        pairs, change = link_change(link, settings)
    except ValueError as error:
        exits.end(exits.USAGE, str(error))
    in_force = {}
    repeat = _on_machines(to, runs)
    for source, target in pairs:
        name = f"{source} -> {target}"
        (said,) = _ask(repeat, to, ["set", name, to_json(change)], _router(repeat) or source)
        try:
            in_force[name] = json.loads(said)
        except ValueError:
            exits.end(exits.USAGE, f"{name}: these are no settings of a link: {said[:200]}")
        if not as_json:
            typer.echo(f"{name}: {' '.join(settings)}")
    if as_json:
        typer.echo(to_json(in_force))


def _on_machines(to: str | None, runs: Path) -> Path | None:
    """The repeat that is meant, where its links are on machines of testbed ssh.

    None: they are on this machine. Ends the command where several could be meant.
    """
    from loopscope.control.standing import repeats_of, runs_below
    from loopscope.testbed.spools import SPOOLS
    from loopscope.timeline import goes_on

    found = {}
    for run in runs_below(runs):
        if (to is None or run.name.endswith(to)) and goes_on(run):
            for repeat in repeats_of(run)[-1:]:
                if (repeat / SPOOLS).exists():
                    found[run] = repeat
    if len(found) > 1:
        exits.end(exits.USAGE, f"name one by --to and its run: {', '.join(map(str, found))}")
    if found and to is None and live.ran(["net", "show"]).returncode == 0:
        (run,) = found
        exits.end(exits.USAGE, f"links are emulated here and in {run}: name one by --to")
    return next(iter(found.values()), None)


def _router(repeat: Path | None) -> str | None:
    """The host that emulates all links of a repeat; None: each does it for what it sends."""
    from loopscope.timeline import RunError, read_manifest

    if repeat is None:
        return None
    try:
        experiment = read_manifest(repeat.parents[1])["experiment"]
        return (experiment["network"]["emulation"] or {}).get("router")
    except (RunError, KeyError, TypeError) as error:
        exits.end(exits.USAGE, f"{repeat.parents[1]}: its manifest tells no network: {error}")


def _ask(
    repeat: Path | None, to: str | None, words: list[str], host: str | None = None
) -> list[str]:
    """Answers to ``loopscope-host net`` of a repeat's hosts, or of the one named.

    Without a repeat, this machine's. Ends the command where one fails.
    """
    if repeat is None:
        return [live.answer(["net", *([] if to is None else ["--to", to]), *words])]
    from loopscope.testbed import TestbedError, upkeep

    try:
        return asyncio.run(upkeep.net(repeat, words, host))
    except (TestbedError, ValueError) as error:
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
