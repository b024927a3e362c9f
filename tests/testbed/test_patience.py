"""``within``: what is done, what takes too long, and interruptions at any moment."""

import asyncio

import pytest

from loopscope.provider.patience import within


@pytest.mark.parametrize("turns", range(6))
def test_an_interruption_is_never_lost(turns):
    """Whether the work is about to be done, is done, or its result is on the way."""

    async def main() -> bool:
        event = asyncio.Event()
        ended = asyncio.Event()

        async def waits() -> None:
            await within(3600, event.wait())
            ended.set()
            await asyncio.sleep(3600)

        task = asyncio.ensure_future(waits())
        for _ in range(5):
            await asyncio.sleep(0)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        # One that was lost would leave the task asleep.
        await asyncio.wait({task}, timeout=5)
        return task.cancelled()

    assert asyncio.run(main())


def test_what_takes_too_long_is_ended_before_it_is_told():
    async def main() -> None:
        condition = asyncio.Condition()
        async with condition:
            with pytest.raises(asyncio.TimeoutError):
                await within(0.01, condition.wait())
            # Given up, the wait has taken the lock back, as who holds it expects.
            assert condition.locked()

    asyncio.run(main())


def test_result_and_error_come_through():
    async def fails() -> None:
        raise OSError("no")

    assert asyncio.run(within(5, asyncio.sleep(0, "done"))) == "done"
    with pytest.raises(OSError, match="no"):
        asyncio.run(within(5, fails()))
