"""A Unix socket for the client of an agent that speaks over a process's input and output."""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path

from loopscope.provider.patience import within
from loopscope.testbed.ssh_machine import END_S, end, skip_to_mark

CHUNK = 1 << 16
# An agent asks for a sign of life every second, which is one of its own.
SILENCE_S = 5.0


class Relay:
    """Passes bytes on between one connection to a socket and a process.

    It ends when either side ends, and when nothing has come from the process for SILENCE_S, after
    which ``silent`` is set.
    """

    def __init__(self, process: Process, lost: Callable[[], None]) -> None:
        self.silent = False
        self.came_ns = 0
        """When anything came from the process last, by CLOCK_MONOTONIC."""
        self._lost = lost
        self._closing = False
        self._process = process
        self._server: asyncio.Server | None = None
        self._passing: asyncio.Task[None] | None = None

    @classmethod
    async def listen(cls, socket: Path, process: Process, lost: Callable[[], None]) -> Relay:
        """A relay that has one connection, the first, on ``socket``.

        ``lost`` is called when the process falls silent or ends.
        """
        relay = cls(process, lost)
        relay._server = await asyncio.start_unix_server(relay._connected, socket)
        return relay

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._passing is not None:
            writer.close()
            return
        self._passing = asyncio.current_task()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            await skip_to_mark(process.stdout)
            there = asyncio.ensure_future(_copy(reader, process.stdin))
            back = asyncio.ensure_future(self._back(process.stdout, writer))
            # When one side has ended, the other has nobody to speak to.
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            if not self._closing:
                self._lost()
            there.cancel()
            back.cancel()
            await asyncio.wait({there, back})
        except EOFError:
            pass
        finally:
            process.stdin.close()
            writer.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await within(END_S, process.wait())

    async def _back(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                while data := await within(SILENCE_S, source.read(CHUNK)):
                    self.came_ns = time.monotonic_ns()
                    target.write(data)
                    await target.drain()
            except asyncio.TimeoutError:
                self.silent = True

    def expect_end(self) -> None:
        """From now on an end is no loss."""
        self._closing = True

    async def close(self) -> None:
        """Ends the process, by its input or by force, and the socket."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            await within(END_S, process.wait())
        except asyncio.TimeoutError:
            process.kill()
        if self._passing is not None:
            await asyncio.wait({self._passing})
        await end(process)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    # An error is an end: the side that it comes from is gone.
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
