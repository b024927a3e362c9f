"""The simulated head: its motion against scipy's solution of the differential equation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from effort import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from loopscope_video.head import Abilities, Drive, Head, Motor, MoveTo, Zoom
from scipy.integrate import solve_ivp

LAG_S, LATENCY_S, SPEED = 0.08, 0.03, 40.0
ABLE = Abilities(Motor(SPEED, LAG_S, -170, 170), Motor(SPEED, LAG_S, -30, 90), latency_s=LATENCY_S)

speeds = st.floats(-80, 80)
orders = st.lists(st.tuples(st.floats(0.0, 0.4), speeds, speeds), min_size=1, max_size=8)


def timed(orders: list[tuple[float, float, float]]) -> list[tuple[float, Drive]]:
    """Orders at instants, from the times between them."""
    at, found = 0.0, []
    for wait, pan, tilt in orders:
        at += wait
        found.append((at, Drive(pan, tilt)))
    return found


@settings(max_examples=cases(60, 3000), deadline=None)
@given(orders)
def test_the_motion_is_the_solution_of_its_equation(
    drawn: list[tuple[float, float, float]],
) -> None:
    drives = timed(drawn)
    head = Head(ABLE)
    for at, drive in drives:
        head.order(at, drive)
    end = drives[-1][0] + LATENCY_S + 0.3
    state, now = np.zeros(2), 0.0
    wanted = 0.0
    for until, following in [*((at + LATENCY_S, drive.pan) for at, drive in drives), (end, 0.0)]:
        if until > now:
            motion = solve_ivp(
                lambda _, y, w=wanted: [y[1], (w - y[1]) / LAG_S],
                (now, until),
                state,
                rtol=1e-9,
                atol=1e-9,
            )
            state, now = motion.y[:, -1], until
        wanted = min(max(following, -SPEED), SPEED)
    assert head.at(end).pan == pytest.approx(state[0], abs=1e-5)


@settings(max_examples=cases(100, 3000), deadline=None)
@given(orders, st.lists(st.floats(0.001, 0.2), min_size=1, max_size=30))
def test_it_moves_alike_however_often_it_is_looked_at(
    drawn: list[tuple[float, float, float]], pauses: list[float]
) -> None:
    once, often = Head(ABLE), Head(ABLE)
    for at, drive in timed(drawn):
        once.order(at, drive)
        often.order(at, drive)
    now, before = 0.0, often.at(0.0)
    for pause in pauses:
        now += pause
        pose = often.at(now)
        assert abs(pose.pan - before.pan) <= SPEED * pause + 1e-9
        assert -30 <= pose.tilt <= 90
        before = pose
    # A stop takes the motor's speed, so only pan, which is far from its stops, is the same.
    assert once.at(now).pan == pytest.approx(before.pan, abs=1e-9)


def test_nothing_moves_before_the_latency_is_over() -> None:
    head = Head(ABLE)
    head.order(1.0, Drive(SPEED, 0))
    assert head.at(1.0 + LATENCY_S).pan == 0
    assert head.at(1.0 + LATENCY_S + 0.001).pan > 0


def test_time_does_not_go_back() -> None:
    head = Head(ABLE)
    head.order(0.0, Drive(SPEED, 0))
    later = head.at(1.0)
    assert head.at(0.5) == later


@settings(max_examples=cases(30, 500), deadline=None)
@given(st.floats(-200, 200), st.floats(1, 60))
def test_a_target_is_reached_without_overshooting(target: float, speed: float) -> None:
    head = Head(ABLE)
    head.order(0.0, MoveTo(target, 0.0, speed, speed))
    goal = min(max(target, -170), 170)
    poses = [head.at(second / 50).pan for second in range(50 * math.ceil(abs(goal) / speed + 8))]
    assert poses[-1] == pytest.approx(goal, abs=0.01)
    assert max(poses) <= max(goal, 0) + 0.01 and min(poses) >= min(goal, 0) - 0.01
    assert max(abs(b - a) for a, b in zip(poses, poses[1:], strict=False)) <= speed / 50 + 1e-6


def test_the_zoom_stays_within_what_the_lens_can_do() -> None:
    head = Head(ABLE)
    head.order(0.0, Zoom(100.0))
    assert head.at(10.0).zoom == pytest.approx(20.0, abs=0.01)
    head.order(10.0, Zoom(0.0))
    assert head.at(20.0).zoom == pytest.approx(1.0, abs=0.01)
