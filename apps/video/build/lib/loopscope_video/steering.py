"""Steers a head by where the ball is in the picture, and says which delay such a loop endures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from loopscope_video.head import STAND, Drive


@dataclass
class Steering:
    """A proportional controller: the farther the ball is off, the faster the head turns.

    It begins to turn when the ball leaves the zone in which it may be, and stops when the ball is
    in the inner half of the zone. With a zone of 0 it always turns.
    """

    gain: float
    """Speed of the head for each degree that the ball is off, in 1/s."""
    zone_deg: float = 0.0
    """How far from the centre the ball may be before the head is turned."""
    _turning: bool = False

    def answer(self, right_deg: float, up_deg: float) -> Drive:
        """What the head is to do when the ball is seen so far from the picture's centre."""
        off = math.hypot(right_deg, up_deg)
        self._turning = off >= self.zone_deg * (0.5 if self._turning else 1.0)
        if not self._turning:
            return STAND
        return Drive(self.gain * right_deg, self.gain * up_deg)


def critical_delay_s(gain: float, lag_s: float) -> float:
    """The delay beyond which the loop oscillates ever more, in seconds, for a gain in 1/s.

    The head turns at `gain` times the error that was seen a delay ago, and its speed follows with a
    time constant: the open loop is `gain e^(-s delay) / (s (1 + s lag))`. It is at the limit where
    its magnitude is 1 and its phase -180 degrees (Nyquist): with w the frequency of magnitude 1,
    the delay is `(pi/2 - atan(w lag)) / w`.
    """
    if not (gain > 0 and lag_s >= 0):
        raise ValueError(f"a gain of {gain} and a lag of {lag_s} s make no loop")
    # gain = w sqrt(1 + (w lag)^2), solved for w^2; stable for a lag of 0 as well.
    squared = 2 * gain**2 / (1 + math.sqrt(1 + (2 * gain * lag_s) ** 2))
    frequency = math.sqrt(squared)
    return (math.pi / 2 - math.atan(frequency * lag_s)) / frequency
