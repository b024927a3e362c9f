"""Global time at instants of the controller's own clock, as answers of hosts bound it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopscope.provider._proto import agent_pb2 as pb

# The largest difference between the rates of CLOCK_MONOTONIC here and of the global clock: a hidden
# clock is within 1000 ppm, NTP slews by 500 ppm, and quartzes are within 100 ppm.
RATE = 2e-3


class DeskClock:
    """Bounds of the global time at an instant of CLOCK_MONOTONIC here."""

    def __init__(self) -> None:
        self._answers: list[tuple[int, int, int, int]] = []

    def take(self, asked_ns: int, answered_ns: int, now: pb.GlobalInstant) -> None:
        """Uses the time that a host read between two instants of the clock here."""
        at, within = now.global_ns, now.within_ns
        self._answers.append((asked_ns, answered_ns, at - within, at + within))

    def bounds(self, ns: int) -> tuple[float, float]:
        """The earliest and the latest global time at ``ns``; infinite where nothing bounds it.

        Answers that contradict each other bound nothing.
        """
        earliest, latest = -inf, inf
        for asked, answered, low, high in self._answers:
            since, after = ns - answered, ns - asked
            earliest = max(earliest, low + since * (1 - RATE if since > 0 else 1 + RATE))
            latest = min(latest, high + after * (1 + RATE if after > 0 else 1 - RATE))
        return (earliest, latest) if earliest <= latest else (-inf, inf)
