"""A simulated pan-tilt-zoom head: motors with a lag, stops, and a delay before each command.

The time is an argument, so tests and studies run it faster than time passes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

# A motor on its way to a target looks so often where it is, in seconds.
_STEP_S = 0.001


@dataclass(frozen=True)
class Drive:
    """Turn at these speeds, in degrees per second: to the right and up, until told otherwise."""

    pan: float
    tilt: float


STAND = Drive(0.0, 0.0)


@dataclass(frozen=True)
class MoveTo:
    """Turn to a direction in degrees, at speeds of at most so many degrees per second."""

    pan: float
    tilt: float
    pan_speed: float = math.inf
    tilt_speed: float = math.inf


@dataclass(frozen=True)
class Zoom:
    """Magnify so many times."""

    factor: float


Order = Drive | MoveTo | Zoom


@dataclass(frozen=True)
class Motor:
    """What a motor can do; all in the unit of what it moves, and seconds."""

    max_speed: float
    lag_s: float
    """Time constant with which its speed follows the speed that was asked for."""
    lowest: float
    highest: float


@dataclass
class _Axis:
    """Something that a motor moves."""

    motor: Motor
    position: float
    speed: float = 0.0
    wanted: float = 0.0
    target: float | None = None

    def drive(self, speed: float) -> None:
        self.target = None
        self.wanted = _limit(speed, self.motor.max_speed)

    def move_to(self, target: float, speed: float) -> None:
        self.target = min(max(target, self.motor.lowest), self.motor.highest)
        self.wanted = min(speed, self.motor.max_speed)

    def advance(self, seconds: float) -> None:
        """The motion during a time in which no order takes effect."""
        if self.target is None:
            self._follow(self.wanted, seconds)
            return
        while seconds > 0:
            step = min(seconds, _STEP_S)
            # With this gain the lag makes it approach as fast as it can without overshooting.
            gain = 1 / (4 * self.motor.lag_s)
            self._follow(_limit((self.target - self.position) * gain, self.wanted), step)
            seconds -= step

    def _follow(self, speed: float, seconds: float) -> None:
        """The exact solution of `lag * dv/dt = speed - v` over a time."""
        lag = self.motor.lag_s
        left = math.exp(-seconds / lag)
        more = self.speed - speed
        self.position += speed * seconds + more * lag * (1 - left)
        self.speed = speed + more * left
        stop = min(max(self.position, self.motor.lowest), self.motor.highest)
        if stop != self.position:
            self.position, self.speed = stop, 0.0


def _limit(speed: float, most: float) -> float:
    return min(max(speed, -most), most)


@dataclass(frozen=True)
class Pose:
    """Where a head looks: degrees to the right and up, and how many times it magnifies."""

    pan: float
    tilt: float
    zoom: float


@dataclass(frozen=True)
class Abilities:
    """What a head can do."""

    pan: Motor = Motor(60, 0.05, -170, 170)
    tilt: Motor = Motor(60, 0.05, -30, 90)
    zoom: Motor = Motor(10, 0.1, 1, 20)
    latency_s: float = 0.02
    """From the arrival of an order until the motors know of it."""


@dataclass
class Head:
    """A head, which looks straight ahead at first."""

    abilities: Abilities = field(default_factory=Abilities)
    now_s: float = 0.0
    _orders: deque[tuple[float, Order]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        able = self.abilities
        self._pan = _Axis(able.pan, 0.0)
        self._tilt = _Axis(able.tilt, 0.0)
        self._zoom = _Axis(able.zoom, 1.0)

    def order(self, at_s: float, order: Order) -> None:
        """Takes an order that arrives at an instant, which is none before an earlier one's."""
        self._orders.append((at_s + self.abilities.latency_s, order))

    def at(self, now_s: float) -> Pose:
        """Where it looks at an instant. The time must not go back: it stays then."""
        while self._orders and self._orders[0][0] <= now_s:
            due_s, order = self._orders.popleft()
            self._advance(due_s)
            self._obey(order)
        self._advance(now_s)
        return Pose(self._pan.position, self._tilt.position, self._zoom.position)

    def _advance(self, to_s: float) -> None:
        if to_s > self.now_s:
            for axis in (self._pan, self._tilt, self._zoom):
                axis.advance(to_s - self.now_s)
            self.now_s = to_s

    def _obey(self, order: Order) -> None:
        if isinstance(order, Drive):
            self._pan.drive(order.pan)
            self._tilt.drive(order.tilt)
        elif isinstance(order, MoveTo):
            self._pan.move_to(order.pan, order.pan_speed)
            self._tilt.move_to(order.tilt, order.tilt_speed)
        else:
            self._zoom.move_to(order.factor, math.inf)
