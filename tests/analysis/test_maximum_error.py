"""Maximum errors of times between stamps of one host, against the truth and their definitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loopscope.analysis.maximum_error import (
    COUNTER,
    NO_COUNTER,
    maximum_errors,
    nearest,
    on_one_host,
)


@settings(deadline=None)
@given(st.integers(-1000, 1000), st.integers(0, 500), st.integers(0, 10**9), st.floats(0.0, 100.0))
def test_the_truth_between_two_processors_is_inside(shift, more, length, ppm):
    """The second stamp is of a processor whose counter is `shift` ns ahead."""
    measured, sums = np.array([length + shift]), np.array([10**9])
    counter = np.array([(ppm, abs(shift) + more)], COUNTER)
    [width] = maximum_errors(measured, sums, counter, np.array([True]))
    assert abs(measured[0] - length) <= width
    alone = on_one_host(measured, np.array([(ppm, 0)], COUNTER))
    assert width == alone[0] + abs(shift) + more
    assert maximum_errors(measured, sums, counter, np.array([False])) == sums
    unknown = np.array([NO_COUNTER], COUNTER)
    assert maximum_errors(measured, sums, unknown, np.array([True])) == sums


@settings(deadline=None)
@given(st.sampled_from([0.0, 0.01, 1.0, 50.0, 500.0, 123_456.0, 345_678.0]), st.integers(0, 300))
def test_order_is_open_up_to_the_half_width(ppm, apart):
    counter = np.array([(ppm, apart)], COUNTER)
    near = nearest(counter)
    assert near <= on_one_host(near, counter)
    assert near + 1 > on_one_host(near + 1, counter)
