"""What an axis shows: its name, its unit, and by what numbers are divided for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.quantity import scaled
from loopscope.experiment.quantity import dimension_of, parse

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Scalar = str | int | float | bool
UNITS = {"ns": "ns", "B": "B", "bit": "bit/s", "Hz": "Hz", "ppm": "ppm"}
"""Of a dimension's base unit, the one that axes show."""


@dataclass(frozen=True)
class Axis:
    name: str
    """What it shows, without the unit."""
    unit: str
    """Of the numbers; empty for plain numbers and texts."""
    scale: float
    """What the numbers are divided by for people, who then read `shown`."""
    shown: str
    logarithmic: bool = False
    categories: tuple[str, ...] = ()
    """Where it shows texts: those at 0, 1, 2 …"""
    marks: tuple[tuple[float, str], ...] = ()
    """Numbers and their texts, units included, where these stand at the axis in place of others."""

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
    """With the unit that suits the values' middle where they span decades, else their largest."""
    size = np.abs(values[np.isfinite(values)])
    if not len(size):
        return Axis(name, unit, 1.0, unit, logarithmic, categories)
    middle = float(np.median(size[size > 0])) if (size > 0).any() else 0.0
    scale, shown = scaled(middle, unit)
    return Axis(name, unit, float(scale), shown, logarithmic, categories)


def in_legend(name: str) -> str:
    """A name as a legend can have it: Matplotlib leaves out those that begin with an underscore, as
    the router's does."""
    return f" {name}" if name.startswith("_") else name
