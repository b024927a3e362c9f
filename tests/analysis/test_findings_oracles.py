"""Numbers that findings are made of, against scipy.stats, scipy.signal and ruptures."""

from __future__ import annotations

import math

import numpy as np
import ruptures
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.signal import find_peaks
from scipy.special import ndtri
from scipy.stats import binom, rankdata

from loopscope.analysis.findings.distribution import _peaks
from loopscope.analysis.findings.segments import changes
from loopscope.analysis.findings.series import log_binomial_tail, normal_scores
from loopscope.analysis.isotonic import rising


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60))
def test_scores_are_those_of_the_ranks(values: list[int]) -> None:
    some = np.array(values, dtype=np.float64)
    np.testing.assert_allclose(normal_scores(some), ndtri((rankdata(some) - 0.5) / len(some)))


@given(st.integers(-1, 400), st.integers(0, 400), st.floats(0.001, 1.0))
def test_the_tail_of_a_binomial_distribution(least: int, count: int, share: float) -> None:
    with np.errstate(divide="ignore"):
        expected = math.log(p) if (p := float(binom.sf(least - 1, count, share))) > 0 else -math.inf
    found = log_binomial_tail(least, count, share)
    assert found == expected or math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_peaks(heights: list[int]) -> None:
    smooth = np.array(heights, dtype=np.float64)
    expected = find_peaks(np.concatenate([[0.0], smooth, [0.0]]))[0] - 1
    assert _peaks(smooth).tolist() == expected.tolist()


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 5)), min_size=1, max_size=40))
def test_isotonic_regression(weighted: list[tuple[int, int]]) -> None:
    values, weights = zip(*weighted, strict=True)
    np.testing.assert_allclose(
        rising(values, weights), isotonic_regression(values, weights=weights).x, atol=1e-12
    )


def test_changes_are_where_the_squared_distances_are_least() -> None:
    random = np.random.default_rng(3)
    for least in (1, 3, 10):
        for _ in range(20):
            values = random.normal(size=int(random.integers(5 * least, 12 * least + 40)))
            values += 2.0 * (np.arange(len(values)) > len(values) / 3)
            model = ruptures.KernelCPD(kernel="linear", min_size=least).fit(values[:, None])
            found = list(changes(values, 4, least))
            assert found == [model.predict(n_bkps=number)[:-1] for number in range(1, 5)]
