"""Loss of a host: its agent went away, or what it reports cannot be used.

A loss is noticed some time after it happened: at once where a connection is closed, after seconds
where a network was cut. It lies between the last instant at which the host is known to have been
alive and the instant at which it was missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from loopscope.control.desk_clock import DeskClock
from loopscope.control.instant import Instant, global_seconds


@dataclass(frozen=True)
class HostLoss:
    """A host that was lost while the run needed it."""

    host: str
    phase: str
    what: str
    at: Instant
    """Bounds alone: from when it was known to be alive to when it was missed."""
    alive_ns: int
    """CLOCK_MONOTONIC here: the host was alive then, or later; 0: unknown."""
    with_it: Sequence[str] = ()
    """Components that were running on it, whose end nobody saw."""

    def __str__(self) -> str:
        return f"host {self.host}: {self.what}"

    def lines(self) -> list[str]:
        """For people, the cause first."""
        after, before = (
            global_seconds(None if abs(ns) == inf else int(ns))
            for ns in (self.at.earliest_ns, self.at.latest_ns)
        )
        out = [
            str(self),
            f"  in phase {self.phase}, after {after} s and before {before} s of global time",
        ]
        if self.with_it:
            out.append(f"  lost with it: {', '.join(self.with_it)}")
        return out


@dataclass
class Missed:
    """A host's agent whose reports have ended, as it was noticed here."""

    host: str
    why: Callable[[], str]
    """The provider may know it only a moment later."""
    gone: bool
    """Whether the agent is gone; else only what it reports cannot be used."""
    noticed_ns: int
    """CLOCK_MONOTONIC here."""
    alive_ns: int
    """CLOCK_MONOTONIC here: the host was alive then, or later; 0: unknown."""
    reported: Instant | None = None
    """When the last thing happened that the agent reported."""
    with_it: Sequence[str] = ()
    _what: str | None = None

    def settle(self) -> str:
        """Why it was lost. The text does not change any more."""
        if self._what is None:
            self._what = self.why()
        return self._what

    def loss(self, phase: str, clock: DeskClock) -> HostLoss:
        """The loss on the global clock."""
        earliest, _ = clock.bounds(self.alive_ns) if self.alive_ns else (-inf, inf)
        _, latest = clock.bounds(self.noticed_ns)
        # A report from the future is of a host that cannot be believed.
        if self.reported is not None and self.reported.earliest_ns <= latest:
            earliest = max(earliest, self.reported.earliest_ns)
        at = Instant(self.host, 0, earliest, latest)
        return HostLoss(self.host, phase, self.settle(), at, self.alive_ns, self.with_it)
