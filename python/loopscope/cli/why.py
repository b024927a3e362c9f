"""``loopscope why``: what held the messages of a path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.text_table import printable_lines
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopscope.analysis.messages import Messages
    from loopscope.analysis.why import WhyHop, WhyMessage
    from loopscope.experiment import MessagePath
    from loopscope.timeline import Run

HELP = "Explain what held messages of a path: each hop in parts, with the cause of each."

WORST = 5
_BAR = 30
"""Columns of the longest bar."""
_SMALL = 0.02
"""Parts of a hop below this share are not listed."""


def why(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest.", show_default=False
        ),
    ],
    path: Annotated[
        str | None,
        typer.Option("--path", metavar="NAME", help="The path. Default: the experiment's first."),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option("--worst", metavar="N", min=1, help=f"The N slowest. Default: {WORST}."),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option("--message", metavar="KEY", help="The message with this key, in each repeat."),
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(
            "--over", metavar="TIME", help="Those that took longer, such as 5ms, slowest first."
        ),
    ] = None,
    point: Annotated[
        str | None, typer.Option("--point", metavar="NAME", help="Of this point of a sweep.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each message.")
    ] = False,
) -> None:
    from loopscope.analysis.messages import read_messages
    from loopscope.analysis.why import NothingRecordedError
    from loopscope.analysis.why import why as explain
    from loopscope.report.catalogue import duration_ns
    from loopscope.report.samples import FigureError
    from loopscope.timeline import RunError, open_run

    if message is not None and (worst is not None or over is not None):
        exits.end(exits.USAGE, "--message excludes --worst and --over")
    try:
        over_ns = duration_ns("--over", over)
        opened = open_run(run, point)
        chosen = _path(opened, path)
        messages, _ = read_messages(opened, chosen)
        rows = _rows(messages, message, worst, over_ns)
        found = explain(opened, messages, rows)
    except (FigureError, NothingRecordedError, RunError) as error:
        exits.end(exits.USAGE, str(error))
    if as_json:
        for each in found:
            typer.echo(to_json({"path": chosen.name, **each.to_dict()}, ensure_ascii=False))
        return
    if not found:
        typer.echo(f"no message of {chosen.name} took longer than {over}")
    for line in (line for each in found for line in _lines(chosen.name, each)):
        typer.echo("\n".join(printable_lines(line)))


def _path(run: Run, name: str | None) -> MessagePath:
    from loopscope.timeline import RunError

    experiment = run.specification
    paths = {} if experiment is None else {each.name: each for each in experiment.paths}
    if not paths:
        raise RunError(f"{run.path} has no paths: `measure: paths` of an experiment gives them")
    if name is None:
        return next(iter(paths.values()))
    if name not in paths:
        raise RunError(f"there is no path {name!r}; there is: {', '.join(paths)}")
    return paths[name]


def _rows(
    messages: Messages, message: str | None, count: int | None, over_ns: int | None
) -> list[int]:
    from loopscope.analysis.why import worst
    from loopscope.timeline import RunError

    if message is None:
        every = len(messages) if over_ns is not None else WORST
        return worst(messages, count or every, over_ns)
    numbers = messages.keys.numbers_of(message)
    rows = [row for row, number in enumerate(messages.id.tolist()) if number in numbers]
    if not rows:
        raise RunError(f"path {messages.path.name} has no message {message}")
    return rows


def _lines(path: str, message: WhyMessage) -> Iterator[str]:
    from loopscope.analysis.why import summary

    yield summary(path, message)
    longest = max((part.ns for hop in message.hops for part in hop.parts), default=1)
    for hop in message.hops:
        yield from _of_hop(hop, longest)
    yield ""


def _of_hop(hop: WhyHop, longest: int) -> Iterator[str]:
    from loopscope.analysis.quantity_text import duration, maximum_error

    yield f"  {hop.first} → {hop.last}  {duration(hop.ns)} {maximum_error(hop.err_ns)}"
    if hop.unknown is not None:
        yield f"    unknown: {hop.unknown}"
    small = [part.ns for part in hop.parts if part.ns < _SMALL * hop.ns]
    for part in hop.parts:
        if part.ns >= _SMALL * hop.ns:
            bar = "█" * max(1, round(_BAR * part.ns / longest))
            yield f"    {duration(part.ns):>9}  {part.name:<9}  {bar:<{_BAR}}  {part.cause}"
    if small:
        parts = "1 part" if len(small) == 1 else f"{len(small)} parts"
        yield f"    {duration(sum(small)):>9}  {parts} below {100 * _SMALL:g} % of the hop"
