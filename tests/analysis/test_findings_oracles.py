"""Numbers that findings are made of, against scipy and ruptures."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import ruptures
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, stats
from scipy.fft import next_fast_len
from scipy.optimize import isotonic_regression
from scipy.signal import find_peaks
from scipy.special import betainc, ndtri, stdtr
from scipy.stats import rankdata

from loopscope.analysis.findings.chances import (
    fast_length,
    incomplete_beta,
    log_gamma_tail,
    running_medians,
    smoothed,
    student_below,
)
from loopscope.analysis.findings.distribution import _peaks
from loopscope.analysis.findings.segments import changes
from loopscope.analysis.findings.series import log_binomial_tail, normal_scores
from loopscope.analysis.isotonic import rising


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60))
def test_scores_are_those_of_the_ranks(values: list[int]) -> None:
    some = np.array(values, dtype=np.float64)
    np.testing.assert_allclose(normal_scores(some), ndtri((rankdata(some) - 0.5) / len(some)))


@settings(deadline=None)
@given(st.integers(-1, 400), st.integers(0, 400), st.integers(1, 1024))
def test_the_tail_of_a_binomial_distribution(least: int, count: int, share: int) -> None:
    """By whole numbers: scipy's has an error of 1e-9 where the probability is small."""
    ways = (
        math.comb(count, n) * share**n * (1024 - share) ** (count - n)
        for n in range(max(least, 0), count + 1)
    )
    among, exact = 1024**count, sum(ways)
    found = log_binomial_tail(least, count, share / 1024)
    if exact * 10**300 < among:
        assert found < -690
    else:
        expected = math.log(exact) - math.log(among)
        assert math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-10)


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


@settings(deadline=None)
@given(st.floats(0.5, 1e6), st.floats(-40, 40))
def test_the_tail_of_students_t(freedom: float, value: float) -> None:
    expected = float(stdtr(freedom, value))
    assert math.isclose(student_below(freedom, value), expected, rel_tol=1e-8, abs_tol=1e-300)


@settings(deadline=None)
@given(st.floats(0.5, 1e5), st.floats(0.5, 1e5), st.floats(1e-300, 1))
def test_the_incomplete_beta_function(a: float, b: float, x: float) -> None:
    expected = float(betainc(a, b, x))
    assert math.isclose(incomplete_beta(a, b, x), expected, rel_tol=1e-8, abs_tol=1e-300)


@settings(deadline=None)
@given(st.integers(1, 64), st.floats(0, 600))
def test_the_tail_of_a_gamma_distribution(shape: int, value: float) -> None:
    expected = float(stats.gamma.logsf(value, shape))
    assert math.isclose(log_gamma_tail(shape, value), expected, rel_tol=1e-9, abs_tol=1e-12)


@given(st.integers(1, 10**7))
def test_the_lengths_that_transforms_are_fast_at(least: int) -> None:
    assert fast_length(least) == next_fast_len(least, real=True)


@settings(deadline=None)
@given(st.integers(8, 4000), st.sampled_from([3, 15]), st.integers(0, 99))
def test_running_medians(count: int, width: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 50, count) / 7
    expected = ndimage.median_filter(values, width, mode="reflect")
    assert running_medians(values, width).tolist() == expected.tolist()


@settings(deadline=None)
@given(st.integers(1, 600), st.floats(1, 200), st.integers(0, 99))
def test_smoothing(count: int, deviation: float, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 50, count).astype(np.float64)
    expected = ndimage.gaussian_filter1d(values, deviation, mode="constant")
    np.testing.assert_allclose(smoothed(values, deviation), expected, rtol=1e-10, atol=1e-12)


def test_findings_do_not_import_scipy() -> None:
    code = """
import sys
import numpy as np
from loopscope.analysis.findings.series import Series
from loopscope.analysis.findings.stepwise import search
random = np.random.default_rng(0)
at = np.arange(2000) * 1e6
search(Series(at, random.gamma(3, size=2000) + (np.arange(2000) % 50 == 0) + (at > 1e9)))
print("scipy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")
