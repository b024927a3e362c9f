"""Work that is done while a run waits for its hosts, and never while it measures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress


class SpareTime:
    """Steps that can be done at any time, one after the other in a thread of their own.

    Where a step raises an exception, it is left to the code that needs what it was to do.
    """

    def __init__(self, steps: Iterable[Callable[[], object]] | None = None) -> None:
        self._steps = iter(steps or ())
        self._ended = steps is None
        self._goes_on = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Has the steps done from now on."""
        if self._thread is None and not self._ended:
            self._goes_on = True
            self._thread = threading.Thread(target=self._work, name="loopscope spare time")
            self._thread.start()

    async def pause(self) -> None:
        """Returns when no step is under way; the others wait for the next `begin`."""
        self._goes_on = False
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def end(self) -> None:
        """Returns when no step is under way. No further one begins."""
        self._goes_on = False
        self._ended = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while self._goes_on:
            with suppress(Exception):
                step = next(self._steps, None)
                if step is None:
                    self._ended = True
                    return
                step()
