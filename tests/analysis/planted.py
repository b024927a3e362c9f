"""Series of messages' times with noise, and patterns that are planted in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from loopscope.analysis.findings.series import Series

Floats = npt.NDArray[np.float64]
Random = np.random.Generator
MS = 1e6


def white(drawn: Random, n: int) -> Floats:
    return drawn.normal(3e5, 3e4, n)


def autocorrelated(drawn: Random, n: int) -> Floats:
    noise = lfilter([1.0], [1.0, -drawn.uniform(0.3, 0.95)], drawn.normal(size=n))
    return 5e5 + 4e4 * noise / noise.std()


def heavy_tailed(drawn: Random, n: int) -> Floats:
    return 1e5 * (1 + drawn.pareto(drawn.uniform(1.5, 3), n))


def sporadic(drawn: Random, n: int) -> Floats:
    """Single messages are late, at any time."""
    late = drawn.random(n) < drawn.uniform(0.002, 0.02)
    return drawn.gamma(4, 3e4, n) + late * drawn.exponential(5 * MS, n)


def in_bursts(drawn: Random, n: int) -> Floats:
    """Messages are late in bursts, at any time."""
    times = drawn.gamma(4, 3e4, n)
    for begin in drawn.integers(0, n - 20, drawn.integers(3, 15)):
        times[begin : begin + 20] += np.linspace(drawn.uniform(1, 5) * MS, 0, 20)
    return times


NOISES: tuple[Callable[[Random, int], Floats], ...] = (
    white,
    autocorrelated,
    heavy_tailed,
    sporadic,
    in_bursts,
)


def instants(drawn: Random, n: int) -> Floats:
    """A message every 2 ms, up to 2 % late, from 0 on."""
    at = np.arange(n) * 2 * MS + drawn.uniform(0, 0.04 * MS, n)
    return at - at[0]


def scale(times: Floats) -> float:
    """What a person sees as the width of the noise, ns."""
    quarters = np.quantile(times, [0.25, 0.75])
    return max(float(np.diff(quarters)[0]), 0.5 * float(np.std(times)))


@dataclass(frozen=True)
class Planted:
    """A pattern in a series: its kind, and by how much each number of its evidence may be off."""

    kind: str
    times: Floats
    truth: dict[str, tuple[float, float]]
    """Name of the evidence: its true value and the tolerance."""


def periodic(drawn: Random, at: Floats, times: Floats, unit: float) -> Planted:
    """Two to six messages in a row are late, the first one most, 6 to 40 times."""
    period = at[-1] / drawn.uniform(6, 40)
    begin = drawn.uniform(0, period)
    width = 2 * MS * drawn.uniform(2, 6)
    phase = np.mod(at - begin, period)
    late = (width - phase) * drawn.uniform(0.5, 1.5) + 10 * unit
    times = times + np.where(phase < width, late, 0)
    return Planted("periodic", times, {"period": (period, 0.01 * period)})


def sawtooth(drawn: Random, at: Floats, times: Floats, unit: float) -> Planted:
    period = at[-1] / drawn.uniform(3.5, 30)
    height = drawn.uniform(6, 20) * unit
    sign = drawn.choice([-1, 1])
    times = times + height * np.mod(sign * at / period + drawn.random(), 1.0)
    gain = sign * height * 2 * MS / period
    truth = {
        "period": (period, 0.02 * period),
        "amplitude": (height, 0.15 * height),
        "difference": (gain, 0.2 * abs(gain)),
    }
    return Planted("sawtooth", times, truth)


def quantised(drawn: Random, at: Floats, times: Floats, unit: float) -> Planted:
    """Each message waits for a time of its own, which is rounded up."""
    grid = drawn.uniform(8, 20) * unit
    waits = drawn.uniform(0, drawn.integers(3, 8), len(at))
    return Planted("quantised", times + grid * np.ceil(waits), {"grid": (grid, 0.02 * grid)})


def change(drawn: Random, at: Floats, times: Floats, unit: float) -> Planted:
    place = int(drawn.uniform(0.2, 0.8) * len(at))
    step = drawn.uniform(3, 10) * unit
    after = bool(drawn.integers(2))
    slow = np.arange(len(at)) >= place if after else np.arange(len(at)) < place
    return Planted("change", times + step * slow, {"instant": (at[place], 0.02 * at[-1])})


def warm_up(drawn: Random, at: Floats, times: Floats, unit: float) -> Planted:
    count = int(drawn.uniform(8, 0.05 * len(at)))
    slow = np.zeros(len(at))
    slow[:count] = drawn.uniform(20, 100) * unit * np.linspace(1, 0.3, count)
    return Planted("warm-up", times + slow, {"messages": (count, 0.5 * count + 3)})


def modes(drawn: Random, at: Floats, times: Floats, unit: float) -> Planted:
    apart = drawn.uniform(8, 20) * unit
    share = drawn.uniform(0.15, 0.5)
    slow = drawn.random(len(at)) < share
    return Planted("modes", times + apart * slow, {"share 2": (share, 0.05)})


# Each takes the generator, instants, times, and the width of the noise.
KINDS: dict[str, Callable[[Random, Floats, Floats, float], Planted]] = {
    "periodic": periodic,
    "sawtooth": sawtooth,
    "quantised": quantised,
    "change": change,
    "warm-up": warm_up,
    "modes": modes,
}


def drawn_series(seed: int, least: int = 400, most: int = 1600) -> tuple[Random, Floats, Floats]:
    """The generator, instants and noise of a seed."""
    drawn = np.random.default_rng(seed)
    n = int(drawn.integers(least, most))
    return drawn, instants(drawn, n), NOISES[seed % len(NOISES)](drawn, n)


def series(at: Floats, times: Floats) -> Series:
    return Series(at, times)
