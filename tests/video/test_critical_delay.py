"""The delay that the loop endures: predicted, and found by loops in virtual time."""

from __future__ import annotations

import cmath
from dataclasses import dataclass

import pytest
from effort import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from loopscope_video.head import STAND, Abilities, Drive, Head, Motor
from loopscope_video.predict import predict
from loopscope_video.scene import Motion, Optics, off_centre_px, project
from loopscope_video.settings import PredictSettings
from loopscope_video.steering import Steering, critical_delay_s
from loopscope_video.visca import MOST_PAN
from scipy.optimize import brentq

OPTICS = Optics()
OFF_PX = 120


@settings(max_examples=cases(200, 5000))
@given(st.floats(0.1, 30), st.floats(0, 0.5))
def test_at_the_critical_delay_the_open_loop_is_minus_one(gain: float, lag_s: float) -> None:
    delay = critical_delay_s(gain, lag_s)

    def open_loop(w: float) -> complex:
        s = 1j * w
        return gain * cmath.exp(-s * delay) / (s * (1 + s * lag_s))

    w = brentq(lambda w: abs(open_loop(w)) - 1, gain * 1e-3, gain * 1.001)
    assert open_loop(w) == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize(("gain", "lag"), [(0, 0.1), (-1, 0.1), (float("nan"), 0.1), (4, -0.1)])
def test_what_is_no_loop_has_no_delay(gain: float, lag: float) -> None:
    with pytest.raises(ValueError):
        critical_delay_s(gain, lag)


@dataclass(frozen=True)
class Loop:
    """The parts of a loop, and its delay in each direction."""

    gain: float = 4.0
    rate_hz: float = 25.0
    lag_s: float = 0.05
    latency_s: float = 0.02
    speed: float = 60.0
    processing_s: float = 0.01

    def follows(self, delay_s: float) -> bool:
        """Whether the ball stays near the picture's centre for 40 s, in virtual time.

        Where the loop is not stable, the head swings as fast as it can: farther than `OFF_PX`.
        """
        motor = Motor(self.speed, self.lag_s, -170, 170)
        head = Head(Abilities(motor, motor, latency_s=self.latency_s))
        steering, motion = Steering(self.gain), Motion()
        under_way: list[tuple[float, Drive]] = []
        step = self.speed / MOST_PAN
        for number in range(int(40 * self.rate_hz)):
            now = number / self.rate_hz
            while under_way and under_way[0][0] <= now:
                head.order(*under_way.pop(0))
            pose = head.at(now)
            at = project(OPTICS, pose, *motion.at(now))
            if at is None or off_centre_px(OPTICS, pose, *motion.at(now)) > OFF_PX:
                return False
            drive = steering.answer(*OPTICS.angles(*at))
            # The levels of speed that the protocol has.
            levels = [min(max(round(each / step), -24), 24) for each in (drive.pan, drive.tilt)]
            arrival = now + 2 * delay_s + self.processing_s
            under_way.append((arrival, Drive(levels[0] * step, levels[1] * step)))
        return True

    def predicted_s(self) -> float:
        """What the network may take in each direction, by the prediction."""
        found = predict(
            PredictSettings(
                gain_per_s=self.gain,
                rate_hz=self.rate_hz,
                lag_s=self.lag_s,
                latency_s=self.latency_s,
                max_speed_deg_s=self.speed,
                processing_s=self.processing_s,
            )
        )
        assert found.lag_s == pytest.approx(self.lag_s, rel=0.02)
        assert found.latency_s == pytest.approx(self.latency_s, abs=0.002)
        return found.network_s


@pytest.mark.parametrize(
    "loop",
    [
        Loop(),
        Loop(gain=2.5),
        Loop(gain=6),
        Loop(lag_s=0.15),
        Loop(lag_s=0.01),
        Loop(latency_s=0.1),
        Loop(rate_hz=15),
        Loop(rate_hz=60),
        Loop(speed=90),
        Loop(processing_s=0.05),
    ],
    ids=lambda loop: f"{loop.gain}-{loop.rate_hz}-{loop.lag_s}-{loop.latency_s}-{loop.speed}",
)
def test_a_sweep_finds_the_predicted_delay_within_15_percent(loop: Loop) -> None:
    predicted = loop.predicted_s()
    assert loop.follows(0.85 * predicted)
    assert not loop.follows(1.15 * predicted)


def test_a_loop_that_is_never_stable_is_said_to_be() -> None:
    loop = Loop(gain=40, latency_s=0.2)
    assert loop.predicted_s() < 0
    assert not loop.follows(0.0)


def test_the_head_turns_only_when_the_ball_nears_the_edge() -> None:
    steering = Steering(gain=2.0, zone_deg=8.0)
    assert steering.answer(7.9, 0.0) == STAND
    assert steering.answer(8.0, 0.0) == Drive(16.0, 0.0)
    # On its way back to the centre, until the ball is well inside.
    assert steering.answer(-3.0, 4.0) == Drive(-6.0, 8.0)
    assert steering.answer(3.9, 0.0) == STAND
    assert steering.answer(7.9, 0.0) == STAND
