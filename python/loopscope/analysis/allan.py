"""Stability of a clock: the overlapping Allan deviation (IEEE 1139, NIST SP 1065 §5.2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_SAMPLES = 4096


def allan_deviation(seconds: Floats, offset_ns: Floats) -> tuple[Floats, Floats]:
    """Averaging times in s, each twice the one before, and the deviation at each.

    The offset is known at rising instants and linear between them.

    The longest is a third of the time; nothing of fewer than four instants, or of no time at all.
    """
    if len(seconds) < 4 or seconds[0] == seconds[-1]:
        return np.empty(0), np.empty(0)
    count = min(_SAMPLES, len(seconds))
    grid = np.linspace(seconds[0], seconds[-1], count)
    spacing = float(seconds[-1] - seconds[0]) / (count - 1)
    x = np.interp(grid, seconds, offset_ns) * 1e-9
    taus, deviations = [], []
    m = 1
    while 3 * m <= count:
        second = x[2 * m :] - 2 * x[m:-m] + x[: -2 * m]
        tau = m * spacing
        taus.append(tau)
        deviations.append(float(np.sqrt(np.mean(second**2) / 2)) / tau)
        m *= 2
    return np.array(taus), np.array(deviations)
