"""How well packets keep time, from the instants at which they passed."""

from __future__ import annotations

import numpy as np

from network.capture import Nanoseconds


def errors(stamps: Nanoseconds, interval_ns: int) -> Nanoseconds:
    """How far each interval between two packets is from what was asked."""
    return np.abs(np.diff(stamps) - interval_ns)


def percentiles(values: Nanoseconds) -> dict[str, float]:
    """In µs; all of them ``nan`` of nothing."""
    names = {"p50": 50.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
    if not len(values):
        return dict.fromkeys(names, float("nan"))
    # Nearest rank: always a value that was measured.
    found = np.percentile(values, list(names.values()), method="inverted_cdf")
    return {name: round(float(ns) / 1e3, 2) for name, ns in zip(names, found, strict=True)}


def longest_burst(stamps: Nanoseconds, interval_ns: int) -> int:
    """The most packets in a row that follow each other by less than half the interval."""
    close = np.diff(stamps) < interval_ns // 2
    ends = np.flatnonzero(np.diff(np.concatenate(([0], close.view(np.int8), [0]))))
    return 1 + int(np.max(ends[1::2] - ends[::2], initial=0)) if len(stamps) else 0
