"""``loopscope stack``: the machine's service of the user-mode TCP stack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import host

HELP = "The service that transfers TCP connections of programs in their own processes."
HELP_SERVE = """Serve programs of all users, until Ctrl-C. It has to be root.

sudo loopscope stack serve

`loopscope accelerate` runs programs that use it. When it ends, connections go back to the kernel.
"""
HELP_STATUS = """Show the connections that programs transfer by themselves now.

loopscope stack status

Bytes that came since the takeover, as the kernel has counted them; bytes that are written and not
acknowledged (unacked), that came and are not read (unread), of the largest segment (mss); and the
round trip with its variation.
"""

app = typer.Typer(help=HELP, no_args_is_help=True)

Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="The service's socket. Default: /run/loopscope/stack.sock",
        show_default=False,
    ),
]


@app.command("serve", help=HELP_SERVE)
def serve(socket: Socket = None) -> None:
    host.become(["stack", "serve", *_at(socket)])


@app.command("status", help=HELP_STATUS)
def status(
    socket: Socket = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object: the connections, and more of each."),
    ] = False,
) -> None:
    host.become(["stack", "status", *_at(socket), *(["--json"] if as_json else [])])


def _at(socket: Path | None) -> list[str]:
    return [] if socket is None else [f"--socket={socket}"]
