"""Options and the final account of ``record``, ``attach`` and ``resume``."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from loopscope.cli import exits, host
from loopscope.experiment import Stream, StreamFilter
from loopscope.strict_json import to_json

Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Where the trace goes; a new directory.",
        show_default=False,
    ),
]
Enable = Annotated[
    list[str] | None,
    typer.Option(
        "--enable",
        "-e",
        metavar="GLOB",
        help="Entities to record, as a pattern on group:name such as 'pipe:*'; with ! before it, "
        "entities to leave out. Repeat for more; the last that matches decides. [default: *]",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="'GLOB: CONDITION'",
        help="Record only hits of which the condition holds, such as 'pipe:sent: id % 100 == 0' or "
        "'pipe:*: size > 1000 || duration > 1ms'.",
    ),
]
Every = Annotated[
    list[str] | None,
    typer.Option(metavar="'GLOB: N'", help="Record one hit in N."),
]
Rate = Annotated[
    list[str] | None,
    typer.Option(metavar="'GLOB: N'", help="Record at most N hits in each second."),
]
Streams = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.yaml",
        help="Streams to record: what an experiment file has under trace.streams, and main. "
        "Without main, only these are recorded, unless --enable or a filter asks for it.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the account as one JSON object.")]


def streams_of(
    enable: Sequence[str],
    where: Sequence[str],
    every: Sequence[str],
    rate: Sequence[str],
    file: Path | None,
) -> tuple[Stream, ...]:
    """The streams that the options ask for; ends with exit 2 where one is wrong."""
    from loopscope.experiment import (
        ExperimentErrors,
        check_pattern,
        format_problem,
        load_streams,
        main_stream,
    )

    filters = []
    try:
        for pattern in enable:
            check_pattern(pattern)
        for text in where:
            glob, condition = _split("--where", text, "pipe:sent: id % 100 == 0")
            filters.append(_filter("--where", glob, where=condition))
        for text in every:
            glob, number = _split("--every", text, "pipe:sent: 10")
            filters.append(_filter("--every", glob, every=_count("--every", number)))
        for text in rate:
            glob, number = _split("--rate", text, "pipe:sent: 1000")
            filters.append(_filter("--rate", glob, rate=_count("--rate", number)))
    except ValueError as error:
        exits.end(exits.USAGE, str(error))
    others: tuple[Stream, ...] = ()
    if file is not None:
        try:
            others = load_streams(file)
        except ExperimentErrors as errors:
            for problem in errors.problems:
                typer.echo(format_problem(problem), err=True)
            raise typer.Exit(exits.USAGE) from None
    given = next((stream for stream in others if stream.name == "main"), None)
    others = tuple(stream for stream in others if stream is not given)
    asked = bool(enable or filters)
    if given is None and (asked or file is None):
        given = main_stream(["*"])
    if given is None:
        return others
    entities = tuple(enable) if enable else given.entities
    return (replace(given, entities=entities, filters=(*given.filters, *filters)), *others)


def _split(option: str, text: str, example: str) -> tuple[str, str]:
    match = re.fullmatch(r"\s*(\S+):\s+(\S.*?)\s*", text, re.DOTALL)
    if match is None:
        raise ValueError(
            f"{option} {text!r}: expected a pattern, a colon, a space and the rest, "
            f"for example {option} {example!r}"
        )
    return match[1], match[2]


def _filter(option: str, glob: str, **limit: Any) -> StreamFilter:
    from loopscope.experiment import stream_filter

    try:
        return stream_filter(glob, **limit)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def _count(option: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) == 0:
        raise ValueError(f"{option}: {text!r} should be a whole number above 0 without unit")
    return int(text)


@contextlib.contextmanager
def streams_file(streams: Sequence[Stream]) -> Iterator[int]:
    """A descriptor that the host side reads the streams from."""
    from loopscope.experiment import streams_document

    # Not on its standard input, which is the program's, and not in a file that would stay behind if
    # this program were killed.
    with open(os.memfd_create("loopscope-streams"), "w", encoding="utf-8") as file:
        file.write(streams_document(streams))
        file.flush()
        yield file.fileno()


def run_host(
    verb: str, words: Sequence[str | Path], streams: Sequence[Stream] | None = None
) -> int:
    """Runs a verb of the host side that records; what it returned, as a shell tells it.

    What was recorded until an interrupt is kept.

    ``streams`` is None where the host side knows them.
    """
    with contextlib.ExitStack() as files:
        if streams is None:
            return host.attend([verb, "--quiet", *words])
        descriptor = files.enter_context(streams_file(streams))
        options = ["--streams", f"/proc/self/fd/{descriptor}"]
        return host.attend([verb, "--quiet", *options, *words], [descriptor])


def recorded_streams(output: Path) -> list[str]:
    """The names of the streams that a recording has."""
    main = ["main"] if (output / "trace").exists() else []
    return main + sorted(path.name for path in output.glob("streams/*") if path.is_dir())


def report(output: Path, streams: Iterable[str], code: int, as_json: bool) -> None:
    """Makes the tables of what was recorded and prints the account."""
    from loopscope.cli.recording_summary import account_of, show
    from loopscope.cli.terminal import TerminalProgress

    if (output / ".journal").exists():
        typer.echo(
            f"loopscope: the recording in {output} is not finished; if its recorder was killed, "
            f"go on with it: loopscope resume {output}",
            err=True,
        )
        return
    folders = {name: output if name == "main" else output / "streams" / name for name in streams}
    accounts: dict[str, Any] = {}
    for name, folder in folders.items():
        if not (folder / "trace" / "metadata").exists():
            continue
        try:
            with TerminalProgress(verbose=False, plain=False) as progress:
                progress.stage("making the tables" + (f" of {name}" if len(folders) > 1 else ""))
                accounts[name] = account_of(folder, progress)
        except ValueError as error:
            exits.end(exits.RUN_FAILED, f"the trace in {folder} cannot be read: {error}")
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            exits.end(exits.RUN_FAILED, f"the tables of {folder} cannot be written: {why}")
    if not accounts:
        return
    if as_json:
        # What there is of the main stream stands at the top, for scripts that know no other.
        main = accounts.get("main", {})
        typer.echo(to_json({"output": str(output), "exit": code, **main, "streams": accounts}))
    else:
        show(accounts)
