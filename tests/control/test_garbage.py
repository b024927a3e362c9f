"""The garbage collector has the settings again after a run that it had before."""

from __future__ import annotations

import gc
import weakref

import pytest

from loopscope.control.garbage import rare_collections


class Circle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_before() -> object:
    threshold = gc.get_threshold()
    # A test of the command line may have frozen what it leaves to the operating system.
    gc.unfreeze()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_all_is_as_before_afterwards() -> None:
    gc.set_threshold(600, 9, 8)
    with pytest.raises(KeyError), rare_collections():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > 600
        raise KeyError
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == (600, 9, 8)


def test_who_looks_less_often_still_does_so() -> None:
    gc.set_threshold(1_000_000, 9, 8)
    with rare_collections():
        assert gc.get_threshold() == (1_000_000, 9, 8)


def test_garbage_is_found_during_and_what_was_there_before_afterwards() -> None:
    gc.collect()
    gc.disable()
    try:
        before = weakref.ref(Circle())
        with rare_collections():
            during = weakref.ref(Circle())
            gc.collect()
            assert during() is None
            assert before() is not None
    finally:
        gc.enable()
    gc.collect()
    assert before() is None


def test_who_has_frozen_objects_keeps_them_so() -> None:
    threshold = gc.get_threshold()
    gc.freeze()
    with rare_collections():
        assert gc.get_threshold() == threshold
    assert gc.get_freeze_count() > 0
