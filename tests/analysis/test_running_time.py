"""For how long a thread had a processor, against a plain sum over its times there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loopscope.analysis.running_time import running_time

LARGE = 1_795_900_906_066_561_119


def instants(*numbers):
    return np.array(numbers, dtype=np.int64)


@given(
    st.lists(st.integers(1, 1000), min_size=2, max_size=40),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 20_000)), min_size=1, max_size=20),
    st.sampled_from([0, LARGE]),
)
def test_it_is_the_sum_of_what_lies_in_the_intervals(lengths, intervals, base):
    edges = (base + np.cumsum(lengths)).tolist()
    came, went = edges[::2], edges[1::2]
    last = base + 30_000
    running = running_time(instants(*came), instants(*went), last)
    asked = [(base + min(pair), base + max(pair)) for pair in intervals]
    on = [*zip(came, [*went, last], strict=False)]
    expected = sum(
        max(0, min(end, until) - max(begin, since)) for begin, end in asked for since, until in on
    )
    begins, ends = (instants(*each) for each in zip(*asked, strict=True))
    assert running.in_all(begins, ends) == expected
    assert running.untold_in(base, last) == 0


def test_where_an_event_is_missing_the_time_is_not_known():
    # It came at 10 and 40, and left at 20, 60 and 70: it came once more, or left at 60 only.
    running = running_time(instants(10, 40), instants(20, 60, 70), 100)
    assert running.in_all(instants(0), instants(100)) == 10 + 20
    assert running.untold_in(0, 100) == 10
    assert running.untold_in(0, 60) == 0
    came_twice = running_time(instants(10, 30), instants(50), 100)
    assert (came_twice.in_all(instants(0), instants(100)), came_twice.untold_in(0, 100)) == (20, 20)
    assert running_time(instants(), instants(), 100) is None
