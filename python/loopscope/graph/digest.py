"""A t-digest: the distribution of any number of values in little memory, fine at both ends.

T. Dunning, O. Ertl, "Computing Extremely Accurate Quantiles Using t-Digests", 2019: sorted values
are put together into centroids that each span at most one unit of the scale
k₁(q) = δ/(2π)·asin(2q − 1).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.bounded_statistics import exact_sum, quantile
from loopscope.analysis.quantity_text import UNKNOWN_NS

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[Any]

DELTA = 5000
"""Centroids, about. The rank of a percentile q is off by some π·√(q(1−q))/δ of all values."""


class Digest:
    """Values and their maximum errors in ns. The same values in the same order give the same."""

    def __init__(self) -> None:
        self.count = 0
        self._means: Values = np.empty(0)
        self._weights: Values = np.empty(0)
        self._least = math.inf
        self._most = -math.inf
        self._total: int | float = 0
        self._mean = 0.0
        self._squares = 0.0
        self._width = 0

    def add(self, values: Values, widths: Values) -> None:
        """Takes more values in."""
        if len(values) == 0:
            return
        real = values.astype(np.float64)
        whole = np.issubdtype(values.dtype, np.integer)
        self._total += exact_sum(values) if whole else math.fsum(values)
        # The squares' sum about the mean, of both parts together (Chan, Golub, LeVeque 1979).
        mean, n = float(real.mean()), len(real)
        apart = mean - self._mean
        self._squares += float(np.square(real - mean).sum())
        self._squares += apart**2 * self.count * n / (self.count + n)
        self.count += n
        self._mean += apart * n / self.count
        self._least = min(self._least, float(real.min()))
        self._most = max(self._most, float(real.max()))
        self._width = max(self._width, int(widths.max()))
        means = np.concatenate([self._means, real])
        weights = np.concatenate([self._weights, np.ones(n)])
        order = np.argsort(means, kind="stable")
        means, weights = means[order], weights[order]
        middle = (np.cumsum(weights) - weights / 2) / self.count
        scale = np.floor(DELTA / (2 * np.pi) * np.arcsin(2 * middle - 1))
        first = np.flatnonzero(np.diff(scale, prepend=-np.inf))
        self._weights = np.add.reduceat(weights, first)
        self._means = np.add.reduceat(means * weights, first) / self._weights

    def quantile(self, share: float) -> float:
        """The value below which this share of all is, between centroids on a straight line."""
        ends = np.concatenate([[0.0], np.cumsum(self._weights)])
        middle = (ends[1:] + ends[:-1]) / 2
        x = np.concatenate([[0.5], middle, [self.count - 0.5]])
        y = np.concatenate([[self._least], self._means, [self._most]])
        return float(np.interp(share * self.count, x, y))

    def statistic(self, name: str, confidence: float) -> dict[str, float | None]:
        """The statistic as `value`, `low`, `high` (null where there is no interval) and `err`.

        `err` is the largest maximum error, by which the clock moves none of these more.
        """
        low: float | None = None
        high: float | None = None
        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        deviation = math.sqrt(self._squares / self.count)
        share = quantile(name)
        if share is not None:
            q = float(share)
            value = self.quantile(q)
            apart = z * math.sqrt(q * (1 - q) / self.count)
            low, high = self.quantile(max(0, q - apart)), self.quantile(min(1, q + apart))
        elif name == "mean":
            value = self._total / self.count
            apart = z * deviation / math.sqrt(self.count)
            low, high = value - apart, value + apart
        else:
            value = {"min": self._least, "max": self._most, "deviation": deviation}[name]
        err = None if self._width >= UNKNOWN_NS else float(self._width)
        return {"value": value, "low": low, "high": high, "err": err}
