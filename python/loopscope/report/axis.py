"""An axis: the name of its quantity, its unit, and the divisor of its numbers for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from loopscope.analysis.quantity_text import scaled
from loopscope.experiment.quantity import dimension_of, parse

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Scalar = str | int | float | bool
UNITS = {"ns": "ns", "B": "B", "bit": "bit/s", "Hz": "Hz", "ppm": "ppm"}
"""Unit that axes show, by the base unit of a dimension."""


@dataclass(frozen=True)
class Axis:
    name: str
    """Name of the quantity, without the unit."""
    unit: str
    """Unit of the numbers; empty for plain numbers and texts."""
    scale: float
    """Divisor of the numbers for people, who then read `shown`."""
    shown: str
    logarithmic: bool = False
    categories: tuple[str, ...] = ()
    """Where it shows texts: those at 0, 1, 2 …"""
    marks: tuple[tuple[float, str], ...] = ()
    """Numbers and their texts, units included, where these stand at the axis in place of others."""
    from_zero: Literal["", "zero", "beyond"] = ""
    """Whether a linear axis begins at zero: if nothing reaches below, or even if error bars do."""
    limits: tuple[float, float] | None = None
    least: float = 0.0
    """Least of the values above zero."""
    most: float = 0.0
    colour: str = "black"
    """Colour of its label in a file."""

    @property
    def decades(self) -> float:
        """Number of decades that the values span; 0 where none is above zero."""
        return math.log10(self.most / self.least) if self.least > 0 else 0.0

    @property
    def label(self) -> str:
        return f"{self.name} ({self.shown})" if self.shown and not self.marks else self.name


def places(values: Sequence[Scalar]) -> tuple[Floats, str, tuple[str, ...]]:
    """Where parameters' values lie on an axis, in which unit, and their texts if they are none."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.float64), "", ()
    dimensions = [dimension_of(value) if isinstance(value, str) else None for value in values]
    if dimensions and dimensions[0] is not None and len(set(dimensions)) == 1:
        exact = [float(parse(value, dimensions[0])) for value in values]
        return np.array(exact), UNITS[dimensions[0].base], ()
    texts = list(dict.fromkeys(str(value) for value in values))
    found = np.array([texts.index(str(value)) for value in values], dtype=np.float64)
    return found, "", tuple(texts)


def axis_of(
    name: str, unit: str, values: Floats, logarithmic: bool, categories: tuple[str, ...] = ()
) -> Axis:
    """With the unit that suits the middle of the values."""
    size = np.abs(values[np.isfinite(values)])
    size = size[size > 0]
    if not len(size):
        return Axis(name, unit, 1.0, unit, logarithmic, categories)
    scale, shown = scaled(float(np.median(size)), unit)
    made = Axis(name, unit, float(scale), shown, logarithmic, categories)
    return replace(made, least=float(size.min()), most=float(size.max()))


def time_axis(name: str, since: Floats) -> Axis:
    """The axis of instants since a beginning, in the unit that suits the last of them."""
    return axis_of(name, "ns", since.max(keepdims=True) if len(since) else since, False)


def in_legend(name: str) -> str:
    """A name as a legend can have it.

    Matplotlib leaves out those that begin with an underscore, as the router's does.
    """
    return f" {name}" if name.startswith("_") else name


def unit_of(ns: float) -> tuple[int, str]:
    """Nanoseconds of the unit that suits a value, at most a millisecond, and the unit's name."""
    if ns >= 1e6:
        return 1_000_000, "ms"
    return (1000, "µs") if ns >= 1000 else (1, "ns")
