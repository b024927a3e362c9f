"""Ctrl-C that comes where Python swallows it."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """\
import os, signal, time
from loopscope.cli.interrupt import heed


class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # the handler runs here
            pass


heed()
swallows = Swallows()
del swallows
print("goes on", flush=True)
time.sleep(60)
"""


def test_an_interrupt_in_a_destructor_comes_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stdout == "goes on\n", done.stderr
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr
