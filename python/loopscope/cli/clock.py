"""``loopscope clock``: one time for all hosts, with no experiment around it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import exits, host

HELP = "Give all hosts one time, which programs read without a system call."
HELP_SERVE = """Be the reference, whose counter is the time of all hosts, until Ctrl-C.

loopscope clock serve --key clock.key
"""
HELP_JOIN = """Follow a reference until Ctrl-C; waits for it as long as it takes.

loopscope clock join reference:27182 --key clock.key
"""
HELP_STATUS = """Say what is known of the time on this host.

loopscope clock status

Exit codes: 0 synchronised, 3 holdover or unknown, 2 no clock.
"""
HELP_VERIFY = """Score the clocks on the local testbed against a hidden truth; wants root.

loopscope clock verify idle loaded

Exit codes: 0 every target met and no bound wrong, 1 else, 2 no such scenario.
"""

app = typer.Typer(help=HELP, no_args_is_help=True)

Key = Annotated[
    Path,
    typer.Option(
        metavar="FILE",
        help="The secret that all hosts share, of mode 0600. serve makes it where there is none; "
        "copy it to the others.",
        show_default=False,
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="What programs read. [default: /dev/shm/loopscope-clock]",
        show_default=False,
    ),
]
Log = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Keep every probe's stamps in this new directory. [default: nowhere]",
        show_default=False,
    ),
]


@app.command("serve", help=HELP_SERVE)
def serve(
    key: Key,
    address: Annotated[str, typer.Option(metavar="A", help="Answer on this address.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(metavar="N", help="And this UDP port.")] = 27182,
    page: Page = None,
    log: Log = None,
) -> None:
    where = ["--address", address, "--port", str(port)]
    host.become(["clock", "serve", *where, *_terms(key, page, log)])


@app.command("join", help=HELP_JOIN)
def join(
    reference: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where it serves.", show_default=False)
    ],
    key: Key,
    page: Page = None,
    log: Log = None,
    rate: Annotated[str, typer.Option(metavar="RATE", help="Exchanges a second.")] = "100Hz",
    wander: Annotated[
        str,
        typer.Option(
            metavar="RATIO",
            help="How far an oscillator's rate may wander from its mean: the widths rest on it.",
        ),
    ] = "1ppm",
    answer: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Answer other followers on this UDP port, so that they can check their time "
            "against this host's. [default: none]",
            show_default=False,
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Check this host's time against that of a follower which answers there, ten times "
            "a second; may be given for several.",
            show_default=False,
        ),
    ] = None,
) -> None:
    words = [*_terms(key, page, log), "--rate", rate, "--wander", wander]
    words += _option("--answer", None if answer is None else str(answer))
    words += [word for each in peer or [] for word in ("--peer", each)]
    host.become(["clock", "join", *words, "--", reference])


@app.command("status", help=HELP_STATUS)
def status(
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Of this page. [default: the one that LOOPSCOPE_CLOCK names, else "
            "/dev/shm/loopscope-clock]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    words = [*_option("--page", page), *(["--json"] if as_json else [])]
    host.become(["clock", "status", *words])


@app.command("verify", help=HELP_VERIFY)
def verify(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCENARIO]...", help="By name. [default: all]", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Of the hidden clocks, faults and instants.")
    ] = 1,
    long: Annotated[
        bool, typer.Option("--long", help="Three minutes of each, not less than one.")
    ] = False,
    duration: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Measured time of each, as in 10s, 3s at least. [default: 25s]",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write errors and widths over time to SCENARIO.csv in this directory, and draw "
            "them as SCENARIO.svg, .pdf and .png.",
            show_default=False,
        ),
    ] = None,
) -> None:
    switches = [*(["--json"] if as_json else []), *(["--long"] if long else [])]
    words = [*switches, "--seed", str(seed)]
    words += _option("--duration", duration) + _option("--output", output)
    words += ["--", *(scenarios or [])]
    if output is None:
        host.become(["clock", "verify", *words])
    code = host.attend(["clock", "verify", *words])
    if code in (exits.PASS, exits.FAIL):
        from loopscope.report.scored_files import draw_scored

        draw_scored(output)
    raise typer.Exit(code)


def _terms(key: Path, page: Path | None, log: Path | None) -> list[str]:
    return ["--key", str(key), *_option("--page", page), *_option("--log", log)]


def _option(name: str, value: Path | str | None) -> list[str]:
    return [] if value is None else [name, str(value)]
