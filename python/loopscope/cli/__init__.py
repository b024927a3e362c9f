"""The command line: one module per verb. Each parses, calls the library, prints."""

from __future__ import annotations

import codecs
import gc
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

# An interrupt during the imports below has nothing to clean up: it ends the program without a
# traceback. `main` hands the signal back to Python.
_python_interrupt = signal.getsignal(signal.SIGINT)
if _python_interrupt is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from loopscope.cli import interrupt  # noqa: E402
from loopscope.cli.commands import application  # noqa: E402
from loopscope.cli.exits import INTERRUPTED, USAGE, file_error  # noqa: E402

if TYPE_CHECKING:
    import typer

    app: typer.Typer
    """The application with all commands, for other processes than a command's own."""

_YOUNG = 50_000
"""New objects between two searches for garbage.

With the interpreter's 700 it searches a hundred times among what imports and tables make, none of
which is garbage.
"""


# mypy would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, application((), own_process=False))


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
    gc.set_threshold(_YOUNG)
    try:
        _speak_utf8()
        app = application(sys.argv[1:], own_process=True)
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
