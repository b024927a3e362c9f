"""Work in spare time: each step once and in order, none while a run measures."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopscope.control.spare_time import SpareTime


@given(st.integers(0, 6), st.sets(st.integers(0, 5)), st.lists(st.booleans(), max_size=6))
def test_steps_are_done_once_and_in_order_whatever_fails(
    number: int, failing: set[int], orders: list[bool]
) -> None:
    done: list[int] = []

    def step(which: int) -> None:
        done.append(which)
        if which in failing:
            raise ValueError(which)

    spare = SpareTime(partial(step, which) for which in range(number))

    async def use() -> None:
        for begins in orders:
            if begins:
                spare.begin()
            else:
                await spare.pause()
                before = list(done)
                await asyncio.sleep(0)
                assert done == before

    asyncio.run(use())
    spare.end()
    assert done == list(range(len(done)))
    if True not in orders:
        assert not done
    before = list(done)
    spare.begin()
    spare.end()
    assert done == before


def test_all_steps_are_done_if_there_is_time() -> None:
    done: list[int] = []
    last = threading.Event()
    steps = [partial(done.append, which) for which in range(100)]
    spare = SpareTime([*steps, last.set])
    spare.begin()
    assert last.wait(60)
    spare.end()
    assert done == list(range(100))


def test_a_pause_waits_for_the_step_that_is_under_way() -> None:
    """The event loop goes on meanwhile."""
    begun, may_end, done = threading.Event(), threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        may_end.wait(60)
        done.set()

    async def use() -> None:
        spare = SpareTime([step])
        spare.begin()
        await asyncio.to_thread(begun.wait, 60)
        pause = asyncio.ensure_future(spare.pause())
        await asyncio.sleep(0)
        assert not pause.done()
        may_end.set()
        await pause
        assert done.is_set()

    asyncio.run(use())


def test_nothing_is_left_behind() -> None:
    def forever() -> Iterator[Any]:
        for _ in count():
            yield lambda: None

    before = threading.active_count()
    spare = SpareTime(forever())
    spare.begin()
    spare.end()
    assert threading.active_count() == before
