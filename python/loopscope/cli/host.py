"""The host side's program, as verbs run it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from loopscope.cli import exits


def binary() -> Path:
    """``loopscope-host``; ends with exit 2 where there is none."""
    from loopscope.testbed import TestbedError, host_binary

    try:
        return host_binary()
    except TestbedError as error:
        exits.end(exits.USAGE, str(error))


def attend(words: Sequence[str | Path], descriptors: Sequence[int] = ()) -> int:
    """Runs ``loopscope-host WORDS`` to its end, whatever this program is told.

    Returns its exit code, as a shell tells it. It gets these descriptors.
    """
    from loopscope.testbed import dormant

    program = binary()
    # Ctrl-C has gone to the whole foreground group: the program ends by it, and this one then.
    # A handler that does nothing, because a signal that is ignored would be so in the program too.
    signal.signal(signal.SIGINT, lambda number, _: None)
    process = subprocess.Popen([program, *words], env=dormant(), pass_fds=descriptors)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, _: process.send_signal(number))
    code = process.wait()
    return 128 - code if code < 0 else code


def become(words: Sequence[str]) -> NoReturn:
    """Goes on as ``loopscope-host WORDS``, whose exit code and signals are this command's then."""
    from loopscope.testbed import dormant

    program = binary()
    os.execve(program, [str(program), *words], dormant())
