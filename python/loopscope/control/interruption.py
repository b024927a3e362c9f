"""SIGINT, SIGTERM and SIGHUP while a testbed exists."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent import futures
from types import FrameType
from typing import Any, TypeVar

from loopscope.control.failure import RunInterrupted
from loopscope.control.progress import Progress

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Effect of signals on a run.

    The first one cancels the work, which then collects what was measured; the second one cancels
    that; the third one leaves all to the agents.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._count = 0
        self._task: asyncio.Future[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._received = False

    @property
    def asked(self) -> bool:
        """Whether there was one."""
        return self._count > 0

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Result of ``work()``, also where it came to its end although it was ``asked`` to stop.

        Raises RunInterrupted where it did not.

        Where an event loop runs already, as in a notebook, the work has a thread of its own. Python
        raises KeyboardInterrupt there instead, which does what the signals do.
        """
        self._loop = None
        try:
            if _loop_runs():
                return self._in_thread(work)
            if threading.current_thread() is not threading.main_thread():
                return asyncio.run(self._run(work(), ()))
            return self._with_signals(work)
        except asyncio.CancelledError:
            raise RunInterrupted from None

    def _with_signals(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        def receive(number: int, frame: FrameType | None) -> None:
            self._received = True

        before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            # The event loop takes signals when it runs; one that comes while it is made waits.
            for number in SIGNALS:
                signal.signal(number, receive)
            return asyncio.run(self._run(work(), SIGNALS))
        finally:
            # The loop sets them to the system's.
            for number, handler in before.items():
                signal.signal(number, handler)

    def _in_thread(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        result: futures.Future[T] = futures.Future()

        def run() -> None:
            try:
                result.set_result(asyncio.run(self._run(work(), ())))
            except BaseException as error:
                result.set_exception(error)

        thread = threading.Thread(target=run, name="loopscope run")
        while True:
            try:
                if thread.ident is None:
                    thread.start()
                return result.result()
            except KeyboardInterrupt:
                if result.done():
                    raise
                self._received = True
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self._take_received)

    async def _run(self, work: Coroutine[Any, Any, T], signals: Sequence[signal.Signals]) -> T:
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        self._task = task
        self._loop = asyncio.get_running_loop()
        for number in signals:
            self._loop.add_signal_handler(number, self._interrupt)
        self._take_received()
        return await task

    def _take_received(self) -> None:
        """Does what an interrupt asked for that no loop has taken.

        It came before the loop took signals, or another thread received it.
        """
        if self._received:
            self._received = False
            self._interrupt()

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


def _loop_runs() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
