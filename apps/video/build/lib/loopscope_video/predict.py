"""Says which network delay the loop endures, by the head's step response."""

from __future__ import annotations

import math
from dataclasses import dataclass

from loopscope_video.head import Abilities, Drive, Head, Motor
from loopscope_video.settings import PredictSettings
from loopscope_video.steering import critical_delay_s

# How finely a step response is looked at, and for how many lags.
_STEPS_PER_LAG, _LAGS = 200, 10


@dataclass(frozen=True)
class Prediction:
    """What the loop endures; times in seconds."""

    lag_s: float
    """Time constant of the head, as its step response shows it."""
    latency_s: float
    """From a command to the first motion."""
    loop_s: float
    """The delay of the whole loop at its limit of stability."""
    network_s: float
    """What the network may take of it in each direction; less than 0: the loop is never stable."""


def step_response(abilities: Abilities, speed: float, step_s: float, count: int) -> list[float]:
    """The speeds of a head in degrees/s, each step after it was told to turn at a speed."""
    head = Head(abilities)
    head.order(0.0, Drive(speed, 0.0))
    pans = [head.at(number * step_s).pan for number in range(count + 1)]
    return [(after - before) / step_s for before, after in zip(pans, pans[1:], strict=False)]


def predict(settings: PredictSettings) -> Prediction:
    """The delay that the loop endures, from the head's answer to a step of half its speed."""
    motor = Motor(settings.max_speed_deg_s, settings.lag_s, -math.inf, math.inf)
    abilities = Abilities(motor, motor, latency_s=settings.latency_s)
    speed = settings.max_speed_deg_s / 2
    step_s = settings.lag_s / _STEPS_PER_LAG
    count = math.ceil(settings.latency_s / step_s) + _LAGS * _STEPS_PER_LAG
    speeds = step_response(abilities, speed, step_s, count)
    first = next(number for number, each in enumerate(speeds) if each > 1e-6 * speed)
    # The area between a step and its answer is latency and lag together, whatever its form is.
    both_s = sum((speed - each) * step_s for each in speeds) / speed
    latency_s = first * step_s
    lag_s = both_s - latency_s
    loop_s = critical_delay_s(settings.gain_per_s, lag_s)
    # A command holds until the next picture's: on average it is half a period older.
    own_s = latency_s + settings.processing_s + 0.5 / settings.rate_hz
    return Prediction(lag_s, latency_s, loop_s, (loop_s - own_s) / 2)
