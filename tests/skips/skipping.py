"""Tests that skip, for `test_skips.py`: pytest does not find them by itself."""

import pytest


def test_that_may() -> None:
    pytest.skip("an example of a skip that is allowed")


def test_that_may_not() -> None:
    pytest.skip("an example of a skip that is not allowed")


@pytest.mark.parametrize("each", [])
def test_of_nothing(each: int) -> None:
    raise AssertionError(each)


def test_that_passes() -> None:
    pass
