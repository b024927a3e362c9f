"""``loopscope figure``: figures of a run as files for papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscope.cli import exits
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.report.catalogue import Wanted
    from loopscope.report.figure_source import FigureSource

HELP = (
    "Draw figures of a run, a recording or an import as SVG, PDF and PNG, each with its numbers "
    "as CSV."
)


def _complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """Kinds, the experiment's own figures, and what figures can be of."""
    from loopscope.report.catalogue import names
    from loopscope.report.figure_source import FigureSource
    from loopscope.report.samples import FigureError
    from loopscope.timeline import RunError

    try:
        known = names(FigureSource(Path(ctx.params["run"]), ctx.params.get("point")))
    except (FigureError, RunError, KeyError, TypeError):
        return []
    return [name for name in known if name.startswith(incomplete)]


def figure(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest; a recording or an import.",
            show_default=False,
        ),
    ],
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND [OF…]",
            help="ccdf loop, for example: a kind of figure, then what it is to be of (a path, "
            "'PATH[EVENT -> EVENT]', either with .age or .packets, a value, group:name.field); or "
            "one of the experiment's own. Default: all. --list shows what there is.",
            show_default=False,
            autocompletion=_complete,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where the files go. Default: figures/ of the run.",
            show_default=False,
        ),
    ] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="LIST", help="Of svg, pdf and png.")
    ] = "svg,pdf,png",
    width: Annotated[
        str, typer.Option("--width", help="Columns of a page: one (3.5 in) or two (7.16 in).")
    ] = "two",
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            metavar="KEY",
            help="Of waterfall and timeline: the message with this key; of several fields as "
            "'7, left'.",
        ),
    ] = None,
    repeat: Annotated[
        int | None, typer.Option("--repeat", metavar="N", help="Only this repeat.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Without what came before, such as 30s."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Without what came after.")
    ] = None,
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="AXES", help="Logarithmic axes: x, y, x,y or none."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="PARAM", help="Of mean-deviation: the parameter."),
    ] = None,
    finding: Annotated[
        int | None,
        typer.Option(
            "--finding",
            metavar="N",
            help="Of findings: the N-th of `loopscope findings`. Default: the strongest.",
        ),
    ] = None,
    point: Annotated[
        str | None,
        typer.Option(
            "--point",
            metavar="NAME",
            help="Of this point of a sweep. Default: of each, in its folder; what compares points, "
            "of all together.",
        ),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Say what can be drawn, and draw nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    from loopscope.cli.terminal import TerminalProgress
    from loopscope.report.catalogue import Choice, draw, duration_ns, parse, places
    from loopscope.report.figure_source import FigureSource
    from loopscope.report.samples import FigureError
    from loopscope.timeline import RunError, is_recorded, points_of

    try:
        if not is_recorded(run):
            points_of(run)  # says what is wrong with a path that is no run
        source = FigureSource(run.resolve(), point)
        if listing:
            _print_listing(source, as_json)
            return
        choice = Choice(
            message=message,
            repeat=repeat,
            from_ns=duration_ns("--from", from_),
            until_ns=duration_ns("--until", until),
            log=log,
            against=against,
            finding=finding,
            width=width,  # type: ignore[arg-type]  # parse says what there is
            formats=formats.split(","),  # type: ignore[arg-type]
        )
        wanted = parse(source, name or [], choice)
        drawn = []
        with TerminalProgress(verbose=False) as progress:
            for number, each in enumerate(wanted, start=1):
                if len(wanted) > 1:
                    progress.stage(f"figure {number} of {len(wanted)}: {each.stem}")
                for of, folder in places(source, each, output):
                    drawn.append((each, draw(of, each, folder, choice)))
    except (FigureError, RunError) as error:
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
    if as_json:
        typer.echo(to_json({"figures": [_json_entry(*each) for each in drawn]}, indent=2))
        return
    for _, files in drawn:
        kinds = ", ".join(file.suffix[1:] for file in files[1:])
        typer.echo(f"{_here(files[0])}" + (f" (and {kinds})" if kinds else ""))


def _json_entry(wanted: Wanted, files: tuple[Path, ...]) -> dict[str, object]:
    of = wanted.of or None
    return {"kind": wanted.kind, "of": of, "files": [str(_here(file)) for file in files]}


def _here(file: Path) -> Path:
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def _print_listing(source: FigureSource, as_json: bool) -> None:
    from loopscope.report.catalogue import KINDS

    subjects = source.subjects
    own = [each.name for each in source.whole.figures] if source.whole else []
    if as_json:
        kinds = {
            name: {"what": kind.what, "of": kind.of, "takes": [f"--{each}" for each in kind.takes]}
            for name, kind in KINDS.items()
        }
        typer.echo(to_json({"kinds": kinds, "of": subjects, "own": own}, indent=2))
        return
    wide = max(map(len, KINDS))
    typer.echo("kinds, and what they are of")
    for name, kind in KINDS.items():
        takes = f" ({', '.join(f'--{each}' for each in kind.takes)})" if kind.takes else ""
        typer.echo(f"  {name:<{wide}}  {kind.of}: {kind.what}{takes}")
    typer.echo("\nsamples")
    wide = max(map(len, subjects), default=0)
    for name, what in subjects.items():
        typer.echo(f"  {name:<{wide}}  {what}")
    if own:
        typer.echo("\nthe experiment's own\n" + "\n".join(f"  {name}" for name in own))
