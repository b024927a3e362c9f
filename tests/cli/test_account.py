"""Quantiles of histograms against the values themselves."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest

from loopscope.cli.recording_summary import quantile


def log_bucket(value: int) -> int:
    """As crates/trace/c/layout.h defines it."""
    if value < 32:
        return value
    e = value.bit_length() - 1
    return 32 * (e - 4) + (value >> (e - 5)) % 32


def nearest_rank(values: list[int], share: Fraction) -> int:
    return sorted(values)[-(-share * len(values) // 1) - 1]


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(99, 100), Fraction(1)])
def test_log_linear(share: Fraction) -> None:
    chance = random.Random(7)
    values = [int(chance.lognormvariate(9, 2)) for _ in range(5000)]
    buckets = Counter(map(log_bucket, values))
    found = quantile(share, buckets, 0, len(values), None)
    assert found is not None
    # A bucket is no wider than a 32nd of what is in it.
    assert abs(found - nearest_rank(values, share)) <= found / 60


def test_linear_with_values_outside() -> None:
    # 0 to 100 in tens; two below, one above.
    buckets = {0: 3, 4: 3, 9: 1}
    of = lambda share: quantile(share, buckets, 2, 10, (0, 100, 10))  # noqa: E731
    assert of(Fraction(1, 5)) is None
    assert of(Fraction(3, 10)) == 4.5
    assert of(Fraction(6, 10)) == 44.5
    assert of(Fraction(9, 10)) == 94.5
    assert of(Fraction(1)) is None
    assert quantile(Fraction(1, 2), {}, 0, 0, None) is None
