"""A pattern that a search has found in a series, before it is decided whether it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loopscope.analysis.quantity_text import duration

if TYPE_CHECKING:
    from loopscope.analysis.findings.series import Floats

Kind = Literal["periodic", "sawtooth", "quantised", "change", "warm-up", "modes"]


@dataclass(frozen=True)
class Evidence:
    """A number that describes a pattern."""

    name: str
    value: float
    unit: str
    """Empty for plain numbers and shares."""


@dataclass(frozen=True)
class Candidate:
    """A pattern and how it fits a series."""

    kind: Kind
    evidence: tuple[Evidence, ...]
    text: str
    """In plain words."""
    log_p: float
    """Logarithm of the probability that noise shows as strong a one anywhere, all tests of this
    search counted."""
    explained: float
    """Share of the variance of the times that it explains, 0 to 1."""
    fit: Floats
    """The pattern alone: what it adds to each message's time, ns."""
    rest: Floats
    """The times without it, ns."""


def rounded(ns: float) -> str:
    """A time by three significant digits, as patterns are known: `8.00 s`."""
    value, unit = duration(ns).split(" ")
    return f"{float(value):#.3g}".rstrip(".") + f" {unit}"
