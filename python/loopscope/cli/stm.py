"""``loopscope stm``: the channels that the programs of this machine share."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscope.cli import exits, host, live
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from fractions import Fraction

    from loopscope.experiment import quantity
    from loopscope.stm import Service

HELP = "Channels of space-time memory, which the programs of this machine share."
HELP_SERVE = """Give programs of this user channels by their names, until Ctrl-C.

loopscope stm serve
loopscope stm serve --listen 192.168.1.5:7421 --key secret
loopscope stm serve --home frames=192.168.1.5:7421 --key secret
"""
HELP_CREATE = """Make a channel, unless there is one of these options.

loopscope stm create frames --item 300kB
loopscope stm create frames --item 300kB --capacity 8 --full drop --lifespan 100ms
"""
HELP_LIST = """Show the channels, and what they have.

loopscope stm list
"""
HELP_TOP = """Show what the channels have and do, again and again, until Ctrl-C.

loopscope stm top
"""
HELP_REMOVE = """Have the service forget a channel; programs that use it go on.

loopscope stm remove frames
"""

app = typer.Typer(help=HELP, no_args_is_help=True)

Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="The service's socket; @NAME: one without a file. [default: LOOPSCOPE_STM, or in the "
        "user's runtime directory]",
        show_default=False,
    ),
]
Channel = dict[str, Any]


@app.command("serve", help=HELP_SERVE)
def serve(
    socket: Socket = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Where services of other hosts get items of these channels; needs --key.",
            show_default=False,
        ),
    ] = None,
    home: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANNEL=ADDRESS:PORT",
            help="A channel whose home is another host, and where that listens; needs --key. "
            "May be given several times.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The secret of all these services: 16 bytes or more, for its owner alone.",
            show_default=False,
        ),
    ] = None,
    congestion: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="TCP's congestion control for their connections, such as reno; needs --key. "
            "Default: the system's.",
            show_default=False,
        ),
    ] = None,
) -> None:
    given = {"--socket": socket, "--listen": listen, "--key": key, "--congestion": congestion}
    arguments = [f"{name}={value}" for name, value in given.items() if value is not None]
    host.become(["stm", "serve", *arguments, *(f"--home={each}" for each in home or [])])


@app.command("create", help=HELP_CREATE)
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="1 to 100 bytes.", show_default=False)
    ],
    item: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="What an item may have, as in 300kB.", show_default=False
        ),
    ],
    capacity: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000_000, help="Items that it may have.")
    ] = 16,
    full: Annotated[
        str,
        typer.Option(
            metavar="refuse|drop",
            help="What a put does where all inputs want all items: it waits, or the item of the "
            "lowest time is dropped and counts as lost.",
        ),
    ] = "refuse",
    orphans: Annotated[
        str,
        typer.Option(
            metavar="keep|discard",
            help="What becomes of items while there is no input connection.",
        ),
    ] = "keep",
    lifespan: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long after their put items are of use on other hosts, where they go in "
            "datagrams then. Default: always, over TCP.",
            show_default=False,
        ),
    ] = None,
    inputs: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=10_000, help="Connections that get items, at most."),
    ] = 16,
    outputs: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=10_000, help="Connections that put items, at most."),
    ] = 4,
    loans: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=1000, help="Items that an output may fill at one time."
        ),
    ] = 1,
    processes: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=4000, help="Programs that may use it at one time."),
    ] = 16,
    socket: Socket = None,
) -> None:
    from loopscope.experiment import quantity

    item_bytes = int(_quantity("--item", item, quantity.SIZE))
    lifespan_s = None
    if lifespan is not None:
        lifespan_s = float(_quantity("--lifespan", lifespan, quantity.DURATION)) / 1e9
    with _service(socket) as service:
        try:
            # It checks the two words, too.
            channel = service.create(
                name,
                item_bytes=item_bytes,
                capacity=capacity,
                full=full,  # type: ignore[arg-type]
                orphans=orphans,  # type: ignore[arg-type]
                lifespan=lifespan_s,
                inputs=inputs,
                outputs=outputs,
                loans=loans,
                processes=processes,
            )
        except (ValueError, OverflowError) as error:
            exits.end(exits.USAGE, str(error))
    typer.echo(f"channel {name}: {channel.capacity} items of up to {item}")


@app.command("list", help=HELP_LIST)
def list_(socket: Socket = None, as_json: live.AsJson = False) -> None:
    with _service(socket) as service:
        channels = service.list()
    if as_json:
        typer.echo(to_json(channels, indent=2))
    else:
        typer.echo("\n".join(_lines(channels, None)))


@app.command("top", help=HELP_TOP)
def top(
    socket: Socket = None,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="Time between two looks, as in 500ms.")
    ] = "1s",
    count: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="End after so many looks.", show_default=False),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each look as a line of JSON.")
    ] = False,
) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    pause_s = _time(every)
    console = Console(highlight=False)
    shows = console.is_terminal and not as_json
    screen = Live(console=console, auto_refresh=False, screen=count is None)
    with _service(socket) as service:
        looks = _looks(service, pause_s, count)
        if shows:
            with screen:
                for channels, rates in looks:
                    text = Text("\n".join(_lines(channels, rates)), no_wrap=True)
                    screen.update(text, refresh=True)
            return
        for number, (channels, rates) in enumerate(looks):
            if as_json:
                told = [each | {"rates": rates.get(each["name"])} for each in channels]
                typer.echo(to_json(told))
            else:
                typer.echo("\n" * (number > 0) + "\n".join(_lines(channels, rates)))


@app.command("remove", help=HELP_REMOVE)
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    socket: Socket = None,
) -> None:
    with _service(socket) as service:
        service.remove(name)
    typer.echo(f"the service has forgotten channel {name}")


@contextmanager
def _service(socket: Path | None) -> Iterator[Service]:
    """The service. Ends the command with exit 2 where it does not do what is asked for."""
    from loopscope.stm import Service, StmError

    try:
        with Service(socket) as service:
            yield service
    except StmError as error:
        exits.end(exits.USAGE, str(error))


def _quantity(option: str, text: str, dimension: quantity.Dimension) -> Fraction:
    """A value with its unit. Ends the command with exit 2 where it is none."""
    from loopscope.experiment import quantity

    try:
        return quantity.parse(text, dimension)
    except quantity.QuantityError as error:
        exits.end(exits.USAGE, f"{option}: {error}")


def _time(text: str) -> float:
    from loopscope.experiment import quantity

    pause_s = float(_quantity("--every", text, quantity.DURATION)) / 1e9
    if not pause_s:
        exits.end(exits.USAGE, "--every: there has to be a time between two looks")
    return pause_s


Rates = dict[str, dict[str, float]]
"""Items put, collected and dropped a second, by channels; not of one that was not there before."""


def _looks(
    service: Service, pause_s: float, count: int | None
) -> Iterator[tuple[list[Channel], Rates]]:
    before: dict[str, Channel] = {}
    at = time.monotonic()
    for number in itertools.count() if count is None else range(count):
        channels, now = service.list(), time.monotonic()
        rates = {
            each["name"]: {
                of: (each[of] - before[each["name"]][of]) / (now - at)
                for of in ("put", "collected", "dropped")
            }
            for each in channels
            # A channel of the same name may be another one.
            if each["name"] in before and each["put"] >= before[each["name"]]["put"]
        }
        yield channels, rates
        before, at = {each["name"]: each for each in channels}, now
        if count is None or number + 1 < count:
            time.sleep(pause_s)


def _lines(channels: Sequence[Channel], rates: Rates | None) -> list[str]:
    from loopscope.analysis.quantity_text import quantity
    from loopscope.cli.text_table import text_table

    if not channels:
        return ["there are no channels"]
    names = ["channel", "items", "bytes", "lost", "gets", "puts", "oldest item"]
    right = [False, True, True, True, False, False, False]
    if rates is not None:
        names[3:3], right[3:3] = ["put/s", "dropped/s"], [True, True]
    rows = []
    for each in channels:
        row: list[object] = [
            each["name"] + (f" (home {each['home']})" if "home" in each else ""),
            f"{each['items']} of {each['capacity']}",
            quantity(each["bytes"], "B"),
            sum(of["lost"] for of in each["inputs"]),
            _processes(of["process"] for of in each["inputs"]),
            "" if "home" in each else _processes(each["outputs"]),
            _oldest(each["oldest"]),
        ]
        if rates is not None:
            of = rates.get(each["name"])
            row[3:3] = ["", ""] if of is None else [f"{of['put']:.1f}", f"{of['dropped']:.1f}"]
        rows.append(row)
    return list(text_table(names, right, rows))


def _oldest(item: Mapping[str, Any] | None) -> str:
    from loopscope.analysis.quantity_text import duration

    if item is None:
        return ""
    lines = [f"time {item['time']}, put {duration(max(item['age_ns'], 0))} ago"]
    for what in ("wanted", "held"):
        if by := _processes(item[f"{what}_by"]):
            lines += [f"{what} by {by}"]
    return ", ".join(lines)


def _processes(numbers: Any) -> str:
    """Processes by name and number, each once."""
    return ", ".join(dict.fromkeys(map(_process, numbers)))


def _process(number: int | None) -> str:
    if number is None:
        return "a process that has ended"
    try:
        name = Path(f"/proc/{number}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"process {number}"
    return f"{name} ({number})"
