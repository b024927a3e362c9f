"""Ctrl-C as an exception that cannot get lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 0.02
"""After this time an interrupt that was swallowed comes again."""


def heed() -> None:
    """Makes SIGINT raise KeyboardInterrupt from now on, again where a destructor has swallowed it.

    Python ignores what is raised in ``__del__``, and says so to ``sys.unraisablehook`` only: a
    Ctrl-C that came just then would do nothing.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = sys.unraisablehook

    def ignored(what: sys.UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            # From here it would be swallowed as well.
            again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            before(what)

    sys.unraisablehook = ignored


@contextmanager
def endings_too() -> Iterator[None]:
    """SIGTERM and SIGHUP are the same as SIGINT here."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    endings = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in endings}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
