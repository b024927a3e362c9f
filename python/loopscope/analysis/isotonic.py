"""Isotonic regression: the numbers in rising order that are closest to some (least squares).

By pooling adjacent violators (Barlow et al., *Statistical Inference under Order Restrictions*,
1972).
"""

from __future__ import annotations

from collections.abc import Sequence


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """For each value a number, none lower than the one before; weights are above 0."""
    # Mean, weight and number of the values of each level.
    levels: list[tuple[float, float, int]] = []
    for mean, weight in zip(values, weights, strict=True):
        count = 1
        while levels and levels[-1][0] > mean:
            other, more, others = levels.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight, count = weight + more, count + others
        levels.append((mean, weight, count))
    return [mean for mean, _, count in levels for _ in range(count)]
