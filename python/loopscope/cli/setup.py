"""``loopscope host setup``: what sudo starts on machines, installed and removed."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.machines import machines

HELP = "Prepare machines of testbed ssh."
HELP_SETUP = """Let runs have rights on machines that their user does not have, by `become: sudo`.

loopscope host setup h1 h2

Done once for each version of loopscope, by somebody whom sudo on the machines lets be root; it may
ask for the password. It installs the host program where only root can change it, with mode 0750,
and a rule for sudo that allows this one program without a password to the user who logs in. Runs
can then emulate links, have interfaces stamp packets and take real-time priorities; components get
no capability. --remove undoes all of it.
"""

app = typer.Typer(help=HELP, no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `setup` a word of its own while it is the only one."""


@app.command("setup", help=HELP_SETUP)
def setup(
    hosts: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|HOST…",
            help="Machines: those of an experiment file, or one that ssh can connect to.",
        ),
    ],
    user: Annotated[
        str | None,
        typer.Option("--user", help="Whom to allow it instead, by name.", show_default=False),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", help="The group whose members to allow it instead.", show_default=False
        ),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the program and every such rule.")
    ] = False,
) -> None:
    from loopscope.testbed import TestbedError, upkeep

    given = {"--user": user, "--group": group}
    words = [word for key, value in given.items() if value is not None for word in (key, value)]
    if remove + (user is not None) + (group is not None) > 1:
        exits.end(exits.USAGE, "give one of --user, --group and --remove")
    words += ["--remove"] if remove else []
    failed = False
    for host, machine in machines(hosts, "host setup").items():
        typer.echo(f"host {host}:")
        try:
            done = asyncio.run(upkeep.setup(host, machine, *words))
        except TestbedError as error:
            typer.echo(f"loopscope: {error}", err=True)
            done = False
        failed |= not done
    if failed:
        exits.end(exits.RUN_FAILED, "not every machine is prepared")
