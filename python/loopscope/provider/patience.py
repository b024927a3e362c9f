"""Waiting no longer than a time, or to the end whatever comes, without losing an interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Result of ``work``. Raises asyncio.TimeoutError where it takes longer.

    ``asyncio.wait_for`` of Python 3.10 and 3.11 drops a cancellation that comes just when the work
    is done (cpython issue 86296): a Ctrl-C would do nothing.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


async def to_the_end(work: Coroutine[Any, Any, T], interruptions: int | None = None) -> T:
    """Result of ``work``, although this is cancelled meanwhile.

    So many times (None: any number of times); one time more cancels the work as well.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if interruptions == 0:
                task.cancel()
                await asyncio.wait({task})
                raise
            if interruptions is not None:
                interruptions -= 1
    return task.result()
