"""Chances and quantiles of distributions, and what smooths a series.

scipy has all of this, too, and its import takes four times as long as NumPy's.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loopscope.analysis.findings.series import Floats

_EXACT = 1e-15
_ROWS = 1 << 10
"""Windows of which the medians are taken at a time: each is a copy."""


def normal_quantiles(shares: Iterable[float]) -> Floats:
    """Values of the standard normal distribution that these shares of it are below."""
    return np.fromiter(map(NormalDist().inv_cdf, shares), dtype=np.float64)


def student_below(freedom: float, value: float) -> float:
    """Probability that Student's t of so many degrees of freedom is below a value."""
    both = freedom + value * value
    tail = incomplete_beta(freedom / 2, 0.5, freedom / both, value * value / both) / 2
    return tail if value < 0 else 1 - tail


def incomplete_beta(a: float, b: float, x: float, rest: float | None = None) -> float:
    """The regularised incomplete beta function (DLMF 8.17). ``rest`` is 1 - x, more exactly."""
    y = 1 - x if rest is None else rest
    if x <= 0 or y <= 0:
        return float(x > 0)
    both = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    factor = math.exp(both + a * math.log(x) + b * math.log(y))
    # The fraction converges fast on this side of the mean.
    if x < (a + 1) / (a + b + 2):
        return factor * _beta_fraction(a, b, x) / a
    return 1 - factor * _beta_fraction(b, a, y) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300
    above, below = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    found = below
    step, change = 0, 0.0
    while abs(change - 1) > _EXACT and step < 1_000_000:
        step += 1
        for term in (
            step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step)),
            -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1)),
        ):
            below = 1 / ((1 + term * below) or tiny)
            above = (1 + term / above) or tiny
            change = above * below
            found *= change
    return found


def log_gamma_tail(shape: int, value: float) -> float:
    """Logarithm of the probability that a gamma distribution of a shape exceeds a value.

    It is that of fewer events than ``shape`` where ``value`` are expected (DLMF 8.4.10).
    """
    if value <= 0:
        return 0.0
    terms = [n * math.log(value) - math.lgamma(n + 1) for n in range(shape)]
    largest = max(terms)
    total = math.fsum(math.exp(each - largest) for each in terms)
    return min(largest + math.log(total) - value, 0.0)


def fast_length(least: int) -> int:
    """The least length from ``least`` on that a Fourier transform is fast at: of 2, 3 and 5."""
    best = 1 << (least - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << (-(-least // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best


def running_medians(values: Floats, width: int) -> Floats:
    """The median of the values around each, ``width`` of them, which is odd; ends are mirrored."""
    around = np.pad(values, width // 2, mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(around, width)
    parts = (windows[first : first + _ROWS] for first in range(0, len(windows), _ROWS))
    middle = width // 2
    return np.concatenate([np.partition(part, middle, axis=1)[:, middle] for part in parts])


def smoothed(values: Floats, deviation: float) -> Floats:
    """The values with a Gaussian of a standard deviation, in places; 0 is around them."""
    radius = int(4 * deviation + 0.5)
    weights = np.exp(-((np.arange(-radius, radius + 1) / deviation) ** 2) / 2)
    whole: Floats = np.convolve(values, weights / weights.sum())
    return whole[radius : radius + len(values)]
