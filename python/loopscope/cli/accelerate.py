"""``loopscope accelerate``: runs a program whose TCP connections the user-mode stack transfers."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from loopscope import port_ranges
from loopscope.cli import exits

HELP = (
    "Run a program whose TCP connections are transferred in its own process.\n\n"
    "loopscope accelerate -- redis-server --port 6379\n\n"
    "loopscope accelerate --only 6379 --explain -- redis-benchmark -h 10.0.0.2\n\n"
    "The program needs no change and no rights. The machine's service has to run (loopscope-host "
    "stack serve). Connections over loopback, and those that do what the stack does not support, "
    "stay with the kernel.\n\n"
    "--install makes it so for one program: a launcher of its name, in ~/.local/bin, that needs no "
    "command and no variable.\n\n"
    "loopscope accelerate --install redis-server --only 6379\n\n"
    "The exit code is the program's; 127 where it is not there, 126 where it cannot be executed."
)

WAYS_TO_RECEIVE = ("adaptive", "spin", "block")
TESTED = "x86_64"
ALSO_BUILT = "aarch64"
# Python ignores these signals, and a program would inherit that.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def accelerate(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The program and its arguments.", show_default=False),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="PORTS",
            help="Only connections with one of these ports at either end, as in 80,8000-8010. "
            "Default: LOOPSCOPE_STACK_ONLY, or all.",
            show_default=False,
        ),
    ] = None,
    service: Annotated[
        Path | None,
        typer.Option(
            "--service",
            metavar="PATH",
            help="The socket of the machine's service. Default: LOOPSCOPE_STACK, or "
            "/run/loopscope/stack.sock.",
            show_default=False,
        ),
    ] = None,
    receive: Annotated[
        str | None,
        typer.Option(
            "--receive",
            metavar="adaptive|spin|block",
            help="How threads wait: they look until something is there (spin), sleep at once "
            "(block), or look for some 50 µs where that has helped before (adaptive). "
            "Default: LOOPSCOPE_STACK_RECEIVE, or adaptive.",
            show_default=False,
        ),
    ] = None,
    rto_min: Annotated[
        str | None,
        typer.Option(
            "--rto-min",
            metavar="DURATION",
            help="The least time after which what was not acknowledged is sent again; 1ms is above "
            "the round trips of a local network. Default: LOOPSCOPE_STACK_RTO_MIN, or the kernel's "
            "(net.ipv4.tcp_rto_min_us, 200 ms).",
            show_default=False,
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="When the program has ended, list its sockets on standard error: whether each "
            "was accelerated, and why not.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="With --explain: print the list as one JSON object on standard output."
        ),
    ] = False,
    install: Annotated[
        str | None,
        typer.Option(
            "--install",
            metavar="PROGRAM",
            help="Run nothing, but make a launcher that runs this program accelerated.",
            show_default=False,
        ),
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option(
            "--remove",
            metavar="PROGRAM",
            help="Remove the launcher that --install has made.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--in",
            metavar="FOLDER",
            help="Where the launcher is. Default: ~/.local/bin.",
            show_default=False,
        ),
    ] = None,
) -> None:
    from loopscope.cli.executable import ExecutableError, cannot_execute, find

    if (command is not None) + (install is not None) + (remove is not None) != 1:
        exits.end(exits.USAGE, "give a program to run (-- CMD…), or --install, or --remove")
    if as_json and not explain:
        exits.end(exits.USAGE, "--json is the form of what --explain prints: give both")
    if folder is not None and command is not None:
        exits.end(exits.USAGE, "--in is where --install and --remove have their launcher")
    if explain and command is None:
        exits.end(exits.USAGE, "--explain is for a program that is run (-- CMD…)")
    if command is None:
        _change_launcher(install, remove, folder, _variables(only, service, receive, rto_min))
        return
    environment = _environment(_variables(only, service, receive, rto_min))
    name, *_ = command
    try:
        program = find(name)
        _warn(name, program, environment)
        try:
            if explain:
                _explained(program, command, environment, as_json)
            _become(program, command, environment)
        except OSError as error:
            raise cannot_execute(program, error) from None
    except ExecutableError as error:
        exits.end(error.code, str(error))


def _change_launcher(
    install: str | None,
    remove: str | None,
    folder: Path | None,
    variables: dict[str, str],
) -> None:
    """Makes or removes the launcher of a program."""
    from loopscope.cli import launcher
    from loopscope.cli.executable import ExecutableError

    place = folder or launcher.default_folder()
    try:
        if remove is not None:
            typer.echo(f"removed {launcher.remove(remove, place)}")
        if install is None:
            return
        program = launcher.install(install, place, _library(), variables)
        name = Path(install).name
        typer.echo(f"{place / name} runs {program} with the library; its connections are")
        typer.echo("accelerated where the machine's service runs, and the kernel's where not")
        if not launcher.comes_first(name, place):
            _complain(f"a shell does not find it by the name {name}: put {place} first in PATH")
    except launcher.LauncherError as error:
        exits.end(exits.USAGE, str(error))
    except ExecutableError as error:
        exits.end(error.code, str(error))
    except OSError as error:
        exits.end_of_file_error(error)


def _variables(
    only: str | None, service: Path | None, receive: str | None, rto_min: str | None
) -> dict[str, str]:
    """What options say, as the library's variables. Ends the command where it cannot be read."""
    variables = {}
    if service is not None:
        # The program may change its folder.
        variables["LOOPSCOPE_STACK"] = os.path.abspath(service)
    if only is not None:
        variables["LOOPSCOPE_STACK_ONLY"] = _ports("--only", only)
    if receive is not None:
        variables["LOOPSCOPE_STACK_RECEIVE"] = _way_to_receive("--receive", receive)
    if rto_min is not None:
        variables["LOOPSCOPE_STACK_RTO_MIN"] = _least_timeout("--rto-min", rto_min)
    return variables


def _ports(option: str, text: str) -> str:
    try:
        return port_ranges.read(text)
    except ValueError as error:
        exits.end(exits.USAGE, f"{option}: {error}")


def _way_to_receive(option: str, text: str) -> str:
    if text not in WAYS_TO_RECEIVE:
        exits.end(exits.USAGE, f"{option}: {text!r} should be one of {', '.join(WAYS_TO_RECEIVE)}")
    return text


def _least_timeout(option: str, text: str) -> str:
    from pydantic_core import PydanticCustomError

    from loopscope.experiment.model_components import RTO_MIN
    from loopscope.experiment.values import Names

    try:
        return f"{int(RTO_MIN.read(text, Names())) // 1000}us"
    except PydanticCustomError as error:
        exits.end(exits.USAGE, f"{option}: {error.message()}")


def _library() -> Path:
    """The library for LD_PRELOAD. Ends the command where there is none for it to name."""
    from loopscope.testbed import TestbedError, preload_library

    machine = os.uname().machine
    if machine not in (TESTED, ALSO_BUILT):
        exits.end(exits.USAGE, f"there is no accelerating library for this processor ({machine})")
    try:
        library = preload_library()
    except TestbedError as error:
        exits.end(exits.USAGE, str(error))
    if re.search(r"[\s:]", str(library)):
        what = "its path has a space or a colon, which LD_PRELOAD takes for an end"
        exits.end(exits.USAGE, f"{library} cannot be loaded: {what}; install loopscope elsewhere")
    return library


def _environment(asked: dict[str, str]) -> dict[str, str]:
    """The program's variables, with those that options ask for.

    It ends the command where the program cannot be accelerated at all.
    """
    from loopscope.cli import stack_service

    environment = os.environ | asked
    # In the C locale Python sets this variable for itself and for all that it starts.
    if b"\0LC_CTYPE=" not in b"\0" + Path("/proc/self/environ").read_bytes():
        environment.pop("LC_CTYPE", None)
    # The library would say what is wrong with them to those alone who ask for its reasons.
    for name, read in (
        ("LOOPSCOPE_STACK_ONLY", _ports),
        ("LOOPSCOPE_STACK_RECEIVE", _way_to_receive),
        ("LOOPSCOPE_STACK_RTO_MIN", _least_timeout),
    ):
        if environment.get(name):
            environment[name] = read(name, environment[name])
    library = str(_library())
    before = [each for each in re.split("[ :]", environment.get("LD_PRELOAD", "")) if each]
    environment["LD_PRELOAD"] = ":".join([library, *(each for each in before if each != library)])
    path = Path(os.path.abspath(environment.get("LOOPSCOPE_STACK") or stack_service.DEFAULT))
    environment["LOOPSCOPE_STACK"] = str(path)
    try:
        stack_service.ask(path)
    except stack_service.ServiceError as error:
        exits.end(exits.USAGE, str(error))
    return environment


def _warn(name: str, program: Path, environment: dict[str, str]) -> None:
    """Says on standard error why nothing of a program will be accelerated, where that is known.

    The library is left out where the program would not start with it.
    """
    from loopscope.cli.executable import obstacle

    if os.uname().machine != TESTED:
        _complain(f"acceleration is not tested on this processor ({os.uname().machine})")
    if (found := obstacle(program)) is None:
        return
    effect = "its connections stay with the kernel"
    if found.breaks:
        environment["LD_PRELOAD"] = environment["LD_PRELOAD"].partition(":")[2]
        effect = "it is started without the library, and its connections stay with the kernel"
    shown = name if name == str(found.file) else f"{name} ({found.file})"
    _complain(f"{shown} {found.why}; {effect}")


def _complain(what: str) -> None:
    typer.echo(f"loopscope: warning: {what}", err=True)


def _become(program: Path, command: list[str], environment: dict[str, str]) -> NoReturn:
    """Goes on as the program, whose exit code and signals are this command's then."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = [signal.signal(number, signal.SIG_DFL) for number in _IGNORED_BY_PYTHON]
    try:
        os.execve(program, command, environment)
    finally:
        for number, handler in zip(_IGNORED_BY_PYTHON, before, strict=True):
            signal.signal(number, handler)


def _explained(
    program: Path, command: list[str], environment: dict[str, str], as_json: bool
) -> NoReturn:
    """Runs the program and says what became of its sockets."""
    from loopscope.cli.socket_table import Lines, json_of, table_of

    with Lines() as lines:
        environment["LOOPSCOPE_STACK_EXPLAIN"] = str(lines.path)
        status = _attend(program, command, environment)
        explained = lines.read()
    code = 128 - status if status < 0 else status
    if as_json:
        typer.echo(json_of(explained, code))
    else:
        ended_by = signal.Signals(-status).name if status < 0 else None
        for line in table_of(explained, ended_by):
            typer.echo(line, err=True)
    raise typer.Exit(code)


def _attend(program: Path, command: list[str], environment: dict[str, str]) -> int:
    """Runs the program to its end and passes on signals that are sent to this process alone.

    Returns its exit code, or the negative number of the signal that has ended it.
    """
    passed = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    watched = passed | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD}
    # Where it is ignored the kernel forgets how the program has ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        # Unlike subprocess, it closes no descriptors that this process has inherited.
        process = os.posix_spawn(
            program, command, environment, setsigmask=before, setsigdef=_IGNORED_BY_PYTHON
        )
        while True:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            came = signal.sigwaitinfo(watched)
            # The terminal sends Ctrl-C to the program, too; the kernel's code is above 0. Of a lost
            # terminal SIGHUP may tell this process alone, the leader of its session.
            was_sent = came.si_code <= 0 or came.si_signo == signal.SIGHUP
            if was_sent and came.si_signo != signal.SIGCHLD:
                os.kill(process, came.si_signo)
    finally:
        # What has come too late for the program is for nobody.
        while signal.sigtimedwait(watched, 0):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
