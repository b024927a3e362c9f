"""The bracket of a statistic holds the true value, and no more than it must."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopscope.analysis.bounded_statistics import Bracket, Sample, quantile

STATISTICS = ("min", "mean", "p50", "p90", "p99", "p999", "max")


def plain(statistic, values):
    """The definition, as simply as it can be said."""
    ordered = sorted(values)
    if statistic == "mean":
        return Fraction(sum(ordered), len(ordered))
    q = {"min": Fraction(0), "max": Fraction(1)}.get(statistic)
    if q is None:
        q = Fraction(int(statistic[1:]), 10 ** len(statistic[1:]))
    return ordered[max(1, math.ceil(q * len(ordered))) - 1]


def sample(measured, hidden=0):
    lengths = np.array([x for x, _ in measured], dtype=np.int64)
    errors = np.array([e for _, e in measured], dtype=np.int64)
    return Sample(lengths, errors, hidden)


MEASURED = st.lists(st.tuples(st.integers(-50, 200), st.integers(0, 40)), min_size=1, max_size=40)


@given(MEASURED)
def test_without_hidden_messages_the_ends_are_the_statistics_of_the_ends(measured):
    for statistic in STATISTICS:
        assert sample(measured).bracket(statistic) == Bracket(
            value=plain(statistic, [x for x, _ in measured]),
            lower=plain(statistic, [x - e for x, e in measured]),
            upper=plain(statistic, [x + e for x, e in measured]),
        )


@settings(max_examples=300)
@given(st.data(), MEASURED, st.integers(0, 6))
def test_the_true_statistic_is_within_whatever_was_hidden(data, measured, hidden):
    true = [data.draw(st.integers(x - e, x + e)) for x, e in measured]
    unseen = st.sampled_from([0, 1, 60, 10**12])
    true += data.draw(st.lists(unseen, max_size=hidden))
    for statistic in STATISTICS:
        bracket = sample(measured, hidden).bracket(statistic)
        truth = plain(statistic, true)
        assert bracket.lower <= truth, statistic
        assert bracket.upper is None or truth <= bracket.upper, statistic
        assert bracket.lower <= bracket.value


def test_hidden_messages_move_a_percentile_by_as_many_ranks():
    measured = [(10 * i, 0) for i in range(1, 1001)]
    assert sample(measured).bracket("p99") == Bracket(9900, 9900, 9900)
    # The 995th of 1005 values: five hidden ones first, or none of them before it.
    assert sample(measured, hidden=5).bracket("p99") == Bracket(9900, 9900, 9950)
    assert sample(measured, hidden=11).bracket("p99").upper is None
    assert sample(measured, hidden=1).bracket("max") == Bracket(10000, 10000, None)
    assert sample(measured, hidden=1).bracket("min") == Bracket(10, 0, 10)
    assert sample(measured, hidden=1).bracket("mean").upper is None


def test_nothing_is_measured_of_no_message():
    for statistic in STATISTICS:
        assert sample([]).bracket(statistic) is None
    assert sample([]).largest_error is None


def test_sums_are_exact_beyond_64_bits():
    large = 2**62
    mean = sample([(large, 0), (large, 0), (large - 1, 0)]).bracket("mean")
    assert mean.value == Fraction(3 * large - 1, 3)
    assert sample([(-large, 1), (-large, 1)]).bracket("mean").lower == -large - 1


def test_the_error_is_the_farther_end_rounded_up():
    assert Bracket(Fraction(21, 2), 10, 11).err == 1
    assert Bracket(10, 3, 12).err == 7
    assert Bracket(10, 3, None).err is None


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("p50", Fraction(1, 2)),
        ("p5", Fraction(5, 100)),
        ("p99", Fraction(99, 100)),
        ("p999", Fraction(999, 1000)),
        ("p9999", Fraction(9999, 10000)),
        ("p0", None),
        ("p", None),
        ("p99.9", None),
        ("median", None),
    ],
)
def test_percentiles_are_read_as_written(word, expected):
    assert quantile(word) == expected


def test_an_unknown_statistic_is_an_error_even_of_no_message():
    with pytest.raises(ValueError, match="no statistic 'median'"):
        sample([]).bracket("median")
