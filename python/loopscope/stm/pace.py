"""The turns of a loop at a fixed period."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from loopscope._native import StmPace


class Turn(NamedTuple):
    """A turn of a loop."""

    number: int
    """Its number, from 0."""
    due_ns: int
    """When it was due: ns of CLOCK_MONOTONIC."""
    late_ns: int
    """How much later it begins."""
    skipped: int
    """Turns before it that were left out: the loop was so late that even the next one was due."""
    slipped: bool
    """Whether it begins later than tolerated, or others were left out."""


class Pace:
    """The turns of a loop: an iterator that waits for each, without an end. For one thread.

    Turn n is due n periods after the first one, which is due at once, by the absolute clock: no
    delay of one moves those after it.

    >>> for turn in Pace(0.02, tolerance=0.001, on_slip=print):  # doctest: +SKIP
    ...     out.put(turn.number, picture())
    """

    def __init__(
        self,
        period: float,
        tolerance: float,
        on_slip: Callable[[Turn], object] | None = None,
        *,
        spin: bool = False,
    ) -> None:
        """Turns of a period in seconds.

        Args:
            period: Seconds from one turn to the next, at least 1e-9.
            tolerance: Seconds by which a turn may begin late.
            on_slip: Called with each turn that begins later, or before which others were left out.
            spin: The last part of each wait takes a processor, and turns begin more punctually.

        Raises:
            ValueError: There is no such time.
        """
        self._native = StmPace(period, tolerance, spin)
        self._on_slip = on_slip
        self.slips = 0
        """Turns that have slipped."""
        self.skipped = 0
        """Turns that were left out."""

    def __iter__(self) -> Pace:
        return self

    def __next__(self) -> Turn:
        turn = Turn(*self._native.turn())
        self.slips += turn.slipped
        self.skipped += turn.skipped
        if turn.slipped and self._on_slip is not None:
            self._on_slip(turn)
        return turn
