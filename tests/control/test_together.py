"""Many requests at the same time: the first are answered while the others are still being made."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from loopscope.control.stages import BEGUN_AT_ONCE, _together

MANY = 20 * BEGUN_AT_ONCE


def run(*work: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        await _together(*work)

    asyncio.run(main())


def test_the_first_are_answered_before_the_last_are_asked() -> None:
    log: list[str] = []

    async def ask(number: int) -> None:
        log.append(f"asked {number}")
        # The request leaves, and its answer comes.
        for _ in range(3):
            await asyncio.sleep(0)
        log.append(f"answered {number}")

    run(*map(ask, range(MANY)))
    assert [line for line in log if "asked" in line] == [f"asked {n}" for n in range(MANY)]
    assert len(log) == 2 * MANY
    assert log.index("answered 0") < log.index(f"asked {MANY - 1}")


def test_the_error_of_the_first_that_fails_is_raised_when_all_are_over() -> None:
    over: list[int] = []

    async def ask(number: int) -> None:
        try:
            if number == 3:
                raise ValueError("no answer")
            await asyncio.sleep(60)
        finally:
            over.append(number)

    with pytest.raises(ValueError, match="no answer"):
        run(*map(ask, range(MANY)))
    assert sorted(over) == list(range(MANY))


def test_an_interruption_while_they_are_being_asked_leaves_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    begun: list[int] = []
    over: list[int] = []

    async def main() -> None:
        async def ask(number: int) -> None:
            begun.append(number)
            if number == 2 * BEGUN_AT_ONCE:
                task.cancel()
            try:
                await asyncio.sleep(60)
            finally:
                over.append(number)

        task = asyncio.ensure_future(_together(*map(ask, range(MANY))))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert 0 < len(begun) < MANY
    assert sorted(over) == begun
    gc.collect()
    # Python warns of a coroutine that never began and was not closed.
    assert not [each for each in recwarn if "never awaited" in str(each.message)]
