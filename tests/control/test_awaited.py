"""Components that somebody waits for."""

from __future__ import annotations

from loopscope.control.awaited import Awaited


def test_the_one_that_is_still_awaited_is_found_wherever_it_is() -> None:
    done: set[str] = set()
    awaited = Awaited("abcd", lambda name: name not in done)
    for name in "bdac":
        assert awaited.any() and name in awaited
        done.add(name)
        assert name not in awaited
        assert awaited.all() == [each for each in "abcd" if each not in done]
        assert awaited.any() == bool(awaited.all())
    done.remove("a")
    assert awaited.any() and "a" in awaited and "e" not in awaited
    assert not Awaited((), lambda _: True).any()
