"""The command line: one module per verb. Each parses, calls the library, prints."""

from __future__ import annotations

import codecs
import gc
import io
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

# An interrupt during the imports below has nothing to clean up: it ends the program without a
# traceback. `main` hands the signal back to Python.
_python_interrupt = signal.getsignal(signal.SIGINT)
if _python_interrupt is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import typer  # noqa: E402

from loopscope import __version__  # noqa: E402
from loopscope.cli import (  # noqa: E402
    analyse,
    attach,
    bundle,
    check,
    clock,
    doctor,
    entities,
    export,
    fetch,
    figure,
    findings,
    import_,
    interrupt,
    live,
    logs,
    net,
    query,
    record,
    report,
    reset,
    resume,
    run,
    setup,
    status,
    stm,
    why,
)
from loopscope.cli.exits import INTERRUPTED, USAGE, file_error  # noqa: E402

_own_process = False
"""Whether this process only runs a command, and is not another's that calls `app`."""


def _without_pandas(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which makes tables and needs no pandas."""

    @wraps(command)
    def run_it(**options: Any) -> None:
        from loopscope.pandas_import import avoid_pandas

        if _own_process:
            avoid_pandas()
        command(**options)

    return run_it


app = typer.Typer(
    name="loopscope",
    help="Builds, runs, instruments and judges distributed control loops: does my loop meet its "
    "deadlines, and if not, what stops it?",
    epilog="Exit codes: 0 every expectation PASS, 1 one FAIL, 3 one UNKNOWN and none FAIL, "
    "4 the run itself failed, 2 usage or file error, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", help=run.HELP)(run.run)
app.command("check", help=check.HELP)(check.check)
app.command("status", help=status.HELP)(status.status)
app.command("logs", help=logs.HELP)(logs.logs)
app.command("fetch", help=fetch.HELP)(fetch.fetch)
app.command("record", help=record.HELP, context_settings={"allow_interspersed_args": False})(
    record.record
)
app.command("attach", help=attach.HELP)(attach.attach)
app.command("resume", help=resume.HELP)(resume.resume)
app.command("trigger", help=live.HELP_TRIGGER)(live.trigger)
app.command("enable", help=live.HELP_ENABLE)(live.enable)
app.command("disable", help=live.HELP_DISABLE)(live.disable)
app.command("entities", help=entities.HELP)(entities.entities)
app.add_typer(net.app, name="net", help=net.HELP)
app.add_typer(clock.app, name="clock", help=clock.HELP)
app.add_typer(stm.app, name="stm", help=stm.HELP)
app.command("query", help=query.HELP)(_without_pandas(query.query))
app.command("report", help=report.HELP)(_without_pandas(report.report))
app.command("why", help=why.HELP)(_without_pandas(why.why))
app.command("findings", help=findings.HELP)(_without_pandas(findings.findings))
app.command("analyse", help=analyse.HELP)(analyse.analyse)
app.command("figure", help=figure.HELP)(_without_pandas(figure.figure))
app.command("bundle", help=bundle.HELP)(bundle.bundle)
app.command("export", help=export.HELP)(_without_pandas(export.export))
app.command("import", help=import_.HELP)(import_.import_)
app.command("reset", help=reset.HELP)(reset.reset)
app.add_typer(setup.app, name="host", help=setup.HELP)
app.command("doctor", help=doctor.HELP)(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loopscope {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def _speak_utf8() -> None:
    """Has stdout and stderr write UTF-8 where the locale is ASCII.

    Terminals know it, results have µ and → in them, and what the host side prints is UTF-8 anyway.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name == "ascii":
            # Names of files come as what is no text there, and go out as the bytes that they were.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def main() -> None:
    """The console script."""
    global _own_process
    _own_process = True
    try:
        _speak_utf8()
        # A shell that runs this in the background may have it ignored, and that is left so.
        if _python_interrupt is signal.default_int_handler:
            interrupt.heed()
        try:
            app()
        finally:
            sys.stdout.flush()
            # Python looks for garbage when it ends, of which this process' memory is none. That
            # takes some 0.4 s after a run was judged.
            gc.freeze()
    except SystemExit as end:
        # Typer makes an exit code of the interrupt, and says nothing.
        if end.__context__ is not None and isinstance(end.__context__.__cause__, KeyboardInterrupt):
            print("loopscope: interrupted", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        print("loopscope: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away (`loopscope … | head`); there is nobody to tell.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        # Nothing more can be said on a disk that is full, so what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"loopscope: {file_error(error)}", file=sys.stderr)
        sys.exit(USAGE)
    except Exception as error:
        from loopscope.extras import missing_extra
        from loopscope.timeline import is_interrupt, table_error

        if is_interrupt(error):
            print("loopscope: interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)
        if (what := missing_extra(error) or table_error(error)) is None:
            raise
        print(f"loopscope: {what}", file=sys.stderr)
        sys.exit(USAGE)
