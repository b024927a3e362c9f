"""When something happened on a host, by that host's clock and by the global one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Instant:
    """When a host's agent saw something."""

    host: str
    monotonic_ns: int
    """CLOCK_MONOTONIC of the host: orders what happened on it."""
    earliest_ns: float = -inf
    latest_ns: float = inf
    """Bounds on the global clock; infinite where the host's time is unknown."""

    def surely_before(self, other: Instant) -> bool:
        """Whether it was before the other one, whatever the errors of the clocks."""
        if self.host == other.host:
            return self.monotonic_ns < other.monotonic_ns
        return self.latest_ns < other.earliest_ns

    def surely_later_by(self, other: Instant, ns: int) -> bool:
        """Whether it was more than ``ns`` nanoseconds after the other one, whatever the errors."""
        if self.host == other.host:
            return self.monotonic_ns > other.monotonic_ns + ns
        return self.earliest_ns > other.latest_ns + ns

    @property
    def within_ns(self) -> int | None:
        """It was surely within so many ns of ``middle_ns``; None: the global time is unknown."""
        if inf in (self.latest_ns, -self.earliest_ns):
            return None
        return int(self.latest_ns - self.earliest_ns) // 2

    @property
    def middle_ns(self) -> int | None:
        """Nanoseconds of global time; None: unknown."""
        return None if self.within_ns is None else int(self.earliest_ns) + self.within_ns

    def __str__(self) -> str:
        return global_seconds(self.middle_ns)


@dataclass(frozen=True)
class PrintedLine:
    """A line that a component printed, as it can be shown."""

    at: Instant
    text: str


def global_seconds(ns: int | None) -> str:
    """Global time as it is shown, in seconds; ``?``: unknown."""
    return "?" if ns is None else f"{ns / 1e9:.6f}"
