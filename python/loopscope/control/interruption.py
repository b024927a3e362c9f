"""SIGINT, SIGTERM and SIGHUP while a testbed exists."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from loopscope.control.failure import RunInterrupted
from loopscope.control.progress import Progress

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """What the signals do to a run: the first one cancels the work, which then collects what was
    measured; the second one cancels that; the third one leaves all to the agents."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._count = 0
        self._task: asyncio.Future[Any] | None = None

    @property
    def asked(self) -> bool:
        """Whether there was one."""
        return self._count > 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns, also where it came to its end although it was ``asked`` to stop.
        Raises RunInterrupted where it did not."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            return asyncio.run(self._run(work))
        except asyncio.CancelledError:
            raise RunInterrupted from None
        finally:
            # The loop sets them to the system's.
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(work)
        for number in SIGNALS:
            loop.add_signal_handler(number, self._interrupt)
        task: asyncio.Future[T] = self._task
        return await task

    def _interrupt(self) -> None:
        self._count += 1
        assert self._task is not None
        if self._count == 1:
            self._progress.note("interrupted: collecting what was measured; once more ends that")
            self._task.cancel()
        elif self._count == 2:
            self._progress.note(
                "interrupted again: what is left is not waited for; once more leaves the cleaning "
                "up to the agents, and what they leave to: loopscope reset"
            )
            self._task.cancel()
        else:
            # The agents see their input close, close their files and clean up by themselves.
            if sys.stderr.isatty():
                sys.stderr.write("\x1b[?25h")  # the live line hides the cursor
            os._exit(130)
