"""The commands, and the application of one of them or of all.

A command's module is imported where the command is asked for: all of them take some 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer

from loopscope import __version__


class _Command(NamedTuple):
    module: str
    """Below this package."""
    function: str = ""
    """Empty: the module is of several commands, its ``app``."""
    help: str = "HELP"
    """Name of the module's text."""
    makes_tables: bool = False
    """Whether it makes tables, and needs no pandas for that."""
    takes_a_command: bool = False
    """Whether options that come after the first word are another program's."""


COMMANDS: Final = {
    "run": _Command("run", "run"),
    "check": _Command("check", "check"),
    "status": _Command("status", "status"),
    "logs": _Command("logs", "logs"),
    "fetch": _Command("fetch", "fetch"),
    "record": _Command("record", "record", takes_a_command=True),
    "attach": _Command("attach", "attach"),
    "resume": _Command("resume", "resume"),
    "trigger": _Command("live", "trigger", "HELP_TRIGGER"),
    "enable": _Command("live", "enable", "HELP_ENABLE"),
    "disable": _Command("live", "disable", "HELP_DISABLE"),
    "entities": _Command("entities", "entities"),
    "query": _Command("query", "query", makes_tables=True),
    "report": _Command("report", "report", makes_tables=True),
    "why": _Command("why", "why", makes_tables=True),
    "findings": _Command("findings", "findings", makes_tables=True),
    "analyse": _Command("analyse", "analyse"),
    "figure": _Command("figure", "figure", makes_tables=True),
    "bundle": _Command("bundle", "bundle"),
    "export": _Command("export", "export", makes_tables=True),
    "import": _Command("import_", "import_"),
    "reset": _Command("reset", "reset"),
    "doctor": _Command("doctor", "doctor"),
    "accelerate": _Command("accelerate", "accelerate", takes_a_command=True),
    "net": _Command("net"),
    "clock": _Command("clock"),
    "stm": _Command("stm"),
    "stack": _Command("stack"),
    "host": _Command("setup"),
}
"""In the order of the help."""


def application(words: Sequence[str], *, own_process: bool) -> typer.Typer:
    """The application, with the command that ``words`` begin with; with all if it is none of them.

    ``own_process``: this process only runs a command, and is not another's.
    """
    app = typer.Typer(
        name="loopscope",
        help="Builds, runs, instruments and judges distributed control loops: does my loop meet "
        "its deadlines, and if not, what stops it?",
        epilog="Exit codes: 0 every expectation PASS, 1 one FAIL, 3 one UNKNOWN and none FAIL, "
        "4 the run itself failed, 2 usage or file error, 130 interrupted.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in [word for word in words[:1] if word in COMMANDS] or COMMANDS:
        _add(app, name, COMMANDS[name], own_process)
    return app


def _add(app: typer.Typer, name: str, command: _Command, own_process: bool) -> None:
    module = import_module(f"{__package__}.{command.module}")
    text: str = getattr(module, command.help)
    if not command.function:
        app.add_typer(module.app, name=name, help=text)
        return
    function: Callable[..., None] = getattr(module, command.function)
    if command.makes_tables and own_process:
        function = _without_pandas(function)
    settings = {"allow_interspersed_args": False} if command.takes_a_command else None
    app.command(name, help=text, context_settings=settings)(function)


def _without_pandas(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which makes tables and needs no pandas."""

    @wraps(command)
    def run_it(**options: Any) -> None:
        from loopscope.pandas_import import avoid_pandas

        avoid_pandas()
        command(**options)

    return run_it


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loopscope {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass
