"""Numbers as people read them. Exact values are in the JSON."""

from __future__ import annotations

import math

_UNITS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))


def duration(ns: float) -> str:
    """Four significant digits, at most three of them before the point: `41.27 µs`."""
    scale, unit = _unit(abs(ns))
    value = float(f"{ns / scale:.4g}")
    if abs(value) >= 1000 and unit != "s":  # rounding went up to the next unit
        scale, unit = _unit(abs(value) * scale)
        value = float(f"{ns / scale:.4g}")
    if unit == "ns" and ns == round(ns):
        return f"{round(ns)} ns"
    before = len(str(int(abs(value))))
    return f"{value:.{max(0, 4 - before)}f} {unit}"


UNKNOWN_NS = 1 << 60
"""Maximum error of an instant of which nothing is known, as `loopscope_time::Bound::UNKNOWN`."""


def maximum_error(ns: int) -> str:
    """Two significant digits, rounded up, so that what is printed holds: `± 3.1 µs`."""
    if ns >= UNKNOWN_NS:
        return "± unknown"
    scale, unit = _unit(ns)
    value = ns / scale
    digits = 0 if unit == "ns" or value >= 10 else 1
    return f"± {math.ceil(ns * 10**digits / scale) / 10**digits:.{digits}f} {unit}"


def quantity(value: float, unit: str) -> str:
    """A value with its unit, four significant digits: `94.13 Mbit/s`, `41.27 µs`, `80 000`."""
    if unit == "ns":
        return duration(value)
    if unit in PREFIXED:
        scale, unit = scaled(abs(value), unit)
        value /= scale
    whole = value == round(value) or abs(value) >= 10_000
    text = number(round(value)) if whole else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def scaled(magnitude: float, unit: str) -> tuple[float, str]:
    """Number of `unit` in the unit that suits a value, and that unit's name."""
    if unit == "ns":
        return _unit(magnitude)
    if unit == "ppm" and magnitude >= 1000:
        return 10**4, "%"
    if unit not in PREFIXED:
        return 1, unit
    exponent = next((e for e in (9, 6, 3) if magnitude >= 10**e), 0)
    return 10**exponent, {9: "G", 6: "M", 3: "k", 0: ""}[exponent] + unit


PREFIXED = ("bit/s", "B/s", "B", "Hz")
"""Units that take k, M and G."""


def number(n: int) -> str:
    """Digits in groups of three: `80 000`."""
    return f"{n:,}".replace(",", " ")


def _unit(magnitude: float) -> tuple[int, str]:
    return next((u for u in reversed(_UNITS) if magnitude >= u[0]), _UNITS[0])
