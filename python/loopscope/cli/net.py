"""``loopscope net``: the emulated links of a run that goes on."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from loopscope.cli import exits, live

HELP = "Show and change the emulated links of a run that goes on."
HELP_SHOW = """Show what each emulated link was asked for and what it has done so far.

loopscope net show
"""
HELP_SET = """Change settings of an emulated link from now on; its others stay.

loopscope net set 'h2 -> h3' delay=200ms loss=1%

Settings are written as in an experiment file, in one word: jitter='{uniform: 1ms}'. none takes one
back: loss=none.
"""

app = typer.Typer(help=HELP, no_args_is_help=True)

To = Annotated[
    int | None,
    typer.Option(
        "--to", metavar="PID", help="Which router. [default: the only one]", show_default=False
    ),
]


@app.command("show", help=HELP_SHOW)
def show(to: To = None, as_json: live.AsJson = False) -> None:
    typer.echo(
        live.answer(["net", *_router(to), "show", *(["--json"] if as_json else [])]), nl=False
    )


@app.command("set", help=HELP_SET)
def set_settings(
    link: Annotated[str, typer.Argument(metavar="LINK", help="'A -> B', or 'A <-> B'.")],
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE…", help="What changes.", show_default=False)
    ],
    to: To = None,
    as_json: live.AsJson = False,
) -> None:
    from loopscope.experiment import link_change

    try:
        pairs, change = link_change(link, settings)
    except ValueError as error:
        exits.end(exits.USAGE, str(error))
    in_force = {}
    for source, target in pairs:
        name = f"{source} -> {target}"
        said = live.answer(["net", *_router(to), "set", name, json.dumps(change)])
        in_force[name] = json.loads(said)
        if not as_json:
            typer.echo(f"{name}: {' '.join(settings)}")
    if as_json:
        typer.echo(json.dumps(in_force))


def _router(to: int | None) -> list[str]:
    return [] if to is None else ["--to", str(to)]
