"""``loopscope why``: what held the messages of a path, and which causes held most of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.explained import explained
from loopscope.cli.text_table import printable_lines, text_table
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopscope.analysis.messages import Messages
    from loopscope.analysis.ranking import RankedCause, WithoutCause
    from loopscope.analysis.why import WhyMessage
    from loopscope.experiment import MessagePath
    from loopscope.timeline import Run

HELP = (
    "Explain what held messages of a path: each hop in parts, with the cause of each. Or what "
    "delayed the clocks' probes."
)

RANKED = 10
"""Causes that are listed."""

WORST = 5


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
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="EVENT",
            help="Of a path that branches: from this event, component/group:name. Default: its "
            "beginning.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="EVENT", help="The same: to this one. Default: its end."),
    ] = None,
    through: Annotated[
        str | None,
        typer.Option("--through", metavar="EVENT", help="The same: on a way that has this one."),
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
    lost: Annotated[
        bool,
        typer.Option("--lost", help="Those that were lost: where, and by what."),
    ] = False,
    packets: Annotated[
        bool,
        typer.Option(
            "--packets",
            help="List the packets that each message was in, with the bytes of it in each, where "
            "the class tcp or udp was recorded.",
        ),
    ] = False,
    datagrams: Annotated[
        bool,
        typer.Option(
            "--datagrams",
            help="Mean and deviation of the times of single packets on each hop between two hosts, "
            "of the messages there and of the whole path, where the class tcp or udp was recorded; "
            "of a sweep at each point.",
        ),
    ] = False,
    rank: Annotated[
        bool,
        typer.Option(
            "--rank",
            help="List the causes by how many late messages would be in time without each. Late is "
            "what took longer than --over, or than the experiment expects.",
        ),
    ] = False,
    without: Annotated[
        str | None,
        typer.Option(
            "--without",
            metavar="CAUSE",
            help="Estimate the path's times without the causes that contain this text.",
        ),
    ] = None,
    clock: Annotated[
        bool,
        typer.Option(
            "--clock",
            help="What delayed the clocks' probes instead: causes of the slowest 1 % of each leg, "
            "or of what took more than --over above the least; with --worst the slowest exchanges.",
        ),
    ] = False,
    point: Annotated[
        str | None, typer.Option("--point", metavar="NAME", help="Of this point of a sweep.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON object for each message, or for the whole list."),
    ] = False,
) -> None:
    from loopscope.analysis.recorded_kernels import NothingRecordedError
    from loopscope.cli.datagrams import lines_of
    from loopscope.cli.why_clock import of_probes
    from loopscope.report.catalogue import duration_ns
    from loopscope.report.samples import FigureError
    from loopscope.timeline import RunError, open_run

    if message is not None and (worst is not None or over is not None):
        exits.end(exits.USAGE, "--message excludes --worst and --over")
    others = (worst, message, over, without)
    if lost and (rank or any(each is not None for each in others)):
        exits.end(exits.USAGE, "--lost excludes --worst, --message, --over, --rank and --without")
    if message is not None and (rank or without is not None):
        exits.end(exits.USAGE, "--rank and --without are of many messages, --message of one")
    if packets and (lost or rank or without is not None):
        exits.end(exits.USAGE, "--packets excludes --lost, --rank and --without")
    if datagrams and (lost or packets or rank or any(each is not None for each in others)):
        exits.end(
            exits.USAGE,
            "--datagrams is of all messages: it excludes --worst, --message, --over, --lost, "
            "--packets, --rank and --without",
        )
    if rank and without is not None:
        exits.end(exits.USAGE, "--rank excludes --without")
    if without is not None and (worst is not None or over is not None):
        exits.end(exits.USAGE, "--without is of all messages: it excludes --worst and --over")
    of_path = (path, start, end, through, message, without)
    if clock and (
        datagrams or lost or packets or rank or any(each is not None for each in of_path)
    ):
        exits.end(exits.USAGE, "--clock goes with --worst, --over, --point and --json alone")
    try:
        over_ns = duration_ns("--over", over)

        def messages_of(opened: Run) -> Messages:
            return _messages(opened, path, (start, end, through))

        if datagrams:
            for line in lines_of(run, point, as_json, messages_of):
                typer.echo(line)
            return
        opened = open_run(run, point)
        if clock:
            for line in of_probes(opened, over_ns, worst, as_json):
                typer.echo(line)
            return
        messages = messages_of(opened)
        if lost:
            lines = _lost(opened, messages, as_json)
        elif rank:
            lines = _ranked(opened, messages, over_ns, worst, as_json)
        elif without is not None:
            lines = _without(opened, messages, without, as_json)
        else:
            rows = _rows(messages, message, worst, over_ns)
            lines = _explained(opened, messages, rows, over, packets, as_json)
        for line in lines:
            typer.echo(line)
    except (FigureError, NothingRecordedError, RunError) as error:
        exits.end(exits.USAGE, str(error))


def _messages(
    run: Run, name: str | None, along: tuple[str | None, str | None, str | None]
) -> Messages:
    """The messages of a path; of one that branches those ``along`` a way, see `messages_along`."""
    from loopscope.analysis.messages import read_messages
    from loopscope.analysis.ways import messages_along

    chosen = _path(run, name)
    if chosen.edges:
        return messages_along(run, chosen, *along)
    if any(along):
        exits.end(exits.USAGE, "--from, --to and --through are of paths that branch")
    return read_messages(run, chosen)[0]


def _path(run: Run, name: str | None) -> MessagePath:
    from loopscope.timeline import RunError

    experiment = run.specification
    paths = {} if experiment is None else {each.name: each for each in experiment.paths}
    if not paths:
        raise RunError(f"{run.path} has no paths: `measure: paths` of an experiment gives them")
    if name is not None and name not in paths:
        raise RunError(f"there is no path {name!r}; there is: {', '.join(paths)}")
    return next(iter(paths.values())) if name is None else paths[name]


def _rows(
    messages: Messages, message: str | None, count: int | None, over_ns: int | None
) -> list[int]:
    from loopscope.analysis.why import slowest
    from loopscope.timeline import RunError

    if message is None:
        every = None if over_ns is not None else WORST
        found: list[int] = slowest(messages, messages.path.loop, over_ns)[: count or every].tolist()
        return found
    numbers = messages.keys.numbers_of(message)
    rows = [row for row, number in enumerate(messages.id.tolist()) if number in numbers]
    if not rows:
        raise RunError(f"path {messages.path.name} has no message {message}")
    return rows


def _explained(
    run: Run,
    messages: Messages,
    rows: list[int],
    over: str | None,
    packets: bool,
    as_json: bool,
) -> Iterator[str]:
    from loopscope.analysis.message_verdict import expected
    from loopscope.analysis.why import why as explain

    path = messages.path
    found = explain(run, messages, rows, packets=packets)
    if as_json:
        yield from _as_json(run, path, found)
        return
    if not found:
        yield f"no message of {path.name} took longer than {over}"
    wanted = expected(run, path)
    for each in found:
        for line in explained(path.name, each, verdict=wanted.verdict(each)):
            yield "\n".join(printable_lines(line))


def _as_json(run: Run, path: MessagePath, found: list[WhyMessage]) -> Iterator[str]:
    from loopscope.analysis.message_verdict import expected

    wanted = expected(run, path)
    for each in found:
        content = {"path": path.name, "verdict": wanted.verdict(each), **each.to_dict()}
        yield to_json(content, ensure_ascii=False)


def _lost(run: Run, messages: Messages, as_json: bool) -> Iterator[str]:
    """Those that were lost, by where and by what."""
    from loopscope.analysis.why import lost
    from loopscope.analysis.why import why as explain

    path = messages.path
    found = explain(run, messages, lost(messages, path.loop).tolist())
    if as_json:
        yield from _as_json(run, path, found)
        return
    yield f"{len(found)} of {len(messages)} messages of {path.name} were lost"
    causes: dict[str, list[str]] = {}
    for each in found:
        causes.setdefault(each.loss or "", []).append(str(each.id))
    for cause, keys in sorted(causes.items(), key=lambda item: -len(item[1])):
        more = ", …" if len(keys) > WORST else ""
        line = f"{len(keys):>7}  {cause}; {path.key} {', '.join(keys[:WORST])}{more}"
        yield "\n".join(printable_lines(line))


def _ranked(
    run: Run, messages: Messages, over_ns: int | None, count: int | None, as_json: bool
) -> Iterator[str]:
    from loopscope.analysis.message_verdict import expected
    from loopscope.analysis.quantity_text import duration
    from loopscope.analysis.ranking import rank
    from loopscope.analysis.why import slowest
    from loopscope.analysis.why import why as explain
    from loopscope.timeline import RunError

    path = messages.path
    limit = over_ns if over_ns is not None else expected(run, path).limit_ns
    if limit is None:
        name = path.name
        raise RunError(f"the experiment expects no time of {name}: say with --over what is late")
    late = slowest(messages, path.loop, limit)
    explained = late[:count].tolist()
    causes = rank(explain(run, messages, explained), limit)
    if as_json:
        content = {
            "path": path.name,
            "over_ns": limit,
            "late": len(late),
            "explained": len(explained),
            "causes": [each.to_dict() for each in causes],
        }
        yield to_json(content, ensure_ascii=False)
        return
    arrived = len(slowest(messages, path.loop))
    yield f"{len(late)} of {arrived} messages of {path.name} took longer than {duration(limit)}"
    if len(explained) < len(late):
        yield f"the {len(explained)} slowest are explained"
    if causes:
        yield from _of_causes(causes, len(explained))


def _of_causes(causes: list[RankedCause], late: int) -> Iterator[str]:
    from loopscope.analysis.quantity_text import duration

    rows = [
        (
            f"{each.in_time}",
            f"{100 * each.in_time / late:.0f} %",
            f"{each.messages}",
            duration(each.ns / each.messages),
            str(each),
        )
        for each in causes[:RANKED]
    ]
    names = ("in time without it", "share", "held", "mean time", "cause")
    yield from text_table(names, (True, True, True, True, False), rows)
    if len(causes) > RANKED:
        yield f"and {len(causes) - RANKED} more, which --json has"


def _without(run: Run, messages: Messages, cause: str, as_json: bool) -> Iterator[str]:
    from loopscope.analysis.ranking import without
    from loopscope.analysis.why import slowest
    from loopscope.analysis.why import why as explain
    from loopscope.timeline import RunError

    path = messages.path
    rows = slowest(messages, path.loop).tolist()
    try:
        found = without(explain(run, messages, rows), cause)
    except ValueError as error:
        raise RunError(str(error)) from error
    if as_json:
        yield to_json({"path": path.name, **found.to_dict()}, ensure_ascii=False)
        return
    yield from _of_times(path.name, found)


def _of_times(path: str, found: WithoutCause) -> Iterator[str]:
    from loopscope.analysis.quantity_text import duration

    yield f"{found.held} of {found.messages} messages of {path} were held by {found.cause!r}"
    rows = [
        (name, duration(ns), duration(found.without_it[name])) for name, ns in found.with_it.items()
    ]
    yield from text_table((path, "as it was", "without it"), (False, True, True), rows)
    yield "an estimate: without it a message may have met another cause"
