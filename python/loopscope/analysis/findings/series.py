"""The times of a path's messages as a series, and what tests on it need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings.chances import incomplete_beta, normal_quantiles

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]

CERTAIN = 1e-4
"""A pattern is certain where the tests leave noise less than this share of the searches.

Tests are approximate: tests/analysis/test_findings.py counts how often noise shows a pattern.
"""
SUGGESTED = 1e-2
"""The same for patterns that are only suggested."""
LEAST = 0.05
"""A certain pattern explains at least this share of the variance."""
LEAST_SUGGESTED = 0.01
SEARCHES = 5
"""Kinds of searches, each of which may be misled by noise."""
_FEW_BATCHES = 20


@dataclass(frozen=True)
class Series:
    """Messages in the order in which they set out."""

    at: Floats
    """When each set out, ns since the first."""
    took: Floats
    """How long each took, ns."""

    def __len__(self) -> int:
        return len(self.at)

    @property
    def interval(self) -> float:
        """The usual time from one message to the next, ns."""
        return float(np.median(np.diff(self.at)))


def is_certain(log_p: float) -> bool:
    """Whether noise seldom shows a pattern of this probability, all kinds of searches counted."""
    return log_p + math.log(SEARCHES) < math.log(CERTAIN)


def normal_scores(values: Floats) -> Floats:
    """The values by their ranks, as a normal distribution has them: heavy tails are gone."""
    # Equal values share the mean of their ranks.
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return normal_quantiles(((ranks - 0.5) / len(values)).tolist())[place]


def log_binomial_tail(least: int, count: int, share: float) -> float:
    """Logarithm of the probability that ``least`` or more of ``count`` trials succeed.

    Each does with the probability ``share``.
    """
    if least <= 0:
        return 0.0
    if least > count:
        return -math.inf
    chance = incomplete_beta(least, count - least + 1, share)
    return math.log(chance) if chance > 0 else -math.inf


def independent_share(values: Floats) -> float:
    """By what to multiply a number of messages to get that of independent ones, at most 1.

    It is the ratio of the variance to the long-run variance. That is the larger one of two
    estimates: as of an autoregressive series of order 1, and by the means of batches of growing
    length, which sees slower correlations.
    """
    centred = values - values.mean()
    variance = float(np.mean(centred**2))
    if variance == 0:
        return 1.0
    lag = float(np.mean(centred[1:] * centred[:-1])) / variance
    lag = min(max(lag, 0.0), 0.999)
    ratio = (1 + lag) / (1 - lag)
    size = 2
    while len(values) // size >= _FEW_BATCHES:
        batches = centred[: len(values) // size * size].reshape(-1, size).mean(axis=1)
        ratio = max(ratio, size * float(np.var(batches)) / variance)
        size *= 2
    return 1 / ratio


def explained(whole: Floats, before: Floats, after: Floats) -> float:
    """The share of the variance of ``whole`` that is in ``before`` and no more in ``after``."""
    variance = float(np.var(whole))
    if variance == 0:
        return 0.0
    return min(max((float(np.var(before)) - float(np.var(after))) / variance, 0.0), 1.0)
