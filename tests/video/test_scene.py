"""The simulated scene, and what the tracker sees of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from effort import cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from loopscope_video.head import Pose
from loopscope_video.scene import Motion, Optics, Scene, off_centre_px, project
from loopscope_video.streams import decode, encode, is_last
from loopscope_video.tracker import Tracker, find

OPTICS = Optics()
SCENE = Scene(OPTICS, Motion())
poses = st.builds(Pose, st.floats(-25, 25), st.floats(-15, 15), st.floats(1, 3))
instants = st.floats(0, 20)


def is_inside(at: tuple[float, float] | None, margin: float) -> bool:
    return at is not None and (
        margin <= at[0] <= OPTICS.width - margin and margin <= at[1] <= OPTICS.height - margin
    )


@settings(max_examples=cases(60, 3000), deadline=None)
@given(poses, instants)
def test_the_ball_is_where_it_is_said_to_be(pose: Pose, now_s: float) -> None:
    at = SCENE.where(pose, now_s)
    assume(is_inside(at, 70))
    assert at is not None
    picture = SCENE.picture(pose, now_s).astype(int)
    red = picture[:, :, 2] - picture[:, :, :2].max(axis=2) > 60
    rows, columns = np.nonzero(red)
    # The centre of a pixel of index 0 is at 0.5.
    assert columns.mean() + 0.5 == pytest.approx(at[0], abs=0.3)
    assert rows.mean() + 0.5 == pytest.approx(at[1], abs=0.3)


@settings(max_examples=cases(60, 3000), deadline=None)
@given(
    st.builds(Pose, st.floats(-25, 25), st.floats(-15, 15), st.just(1.0)),
    st.builds(Pose, st.floats(-8, 8), st.floats(-5, 5), st.floats(1, 1.5)),
    st.floats(-6, 6),
    st.floats(-4, 4),
)
def test_the_wall_stands_still_while_the_camera_turns(
    one: Pose, more: Pose, right: float, up: float
) -> None:
    other = Pose(one.pan + more.pan, one.tilt + more.tilt, more.zoom)
    direction = one.pan + right, one.tilt + up
    assume(math.dist(direction, Motion().at(0.0)) > 4)
    seen = []
    for pose in (one, other):
        at = project(OPTICS, pose, *direction)
        assert is_inside(at, 0) and at is not None
        column, row = int(at[0]), int(at[1])
        seen.append(SCENE.picture(pose, 0.0)[row, column].astype(int))
    # A pixel covers a part of the wall, whose colours change little from one to the next.
    assert np.abs(seen[0] - seen[1]).max() <= 25


@given(poses, st.floats(-60, 60), st.floats(-40, 40))
def test_small_angles_are_distances_in_the_picture(
    pose: Pose, azimuth: float, elevation: float
) -> None:
    at = project(OPTICS, pose, azimuth, elevation)
    off = off_centre_px(OPTICS, pose, azimuth, elevation)
    assert math.isfinite(off)
    assume(at is not None)
    assert at is not None
    distance = math.dist(at, OPTICS.centre)
    focal = OPTICS.focal_px(pose.zoom)
    assert off == pytest.approx(focal * math.atan(distance / focal), rel=1e-6, abs=1e-6)


def test_what_is_behind_the_camera_is_not_in_the_picture() -> None:
    pose = Pose(170, 0, 1)
    assert project(OPTICS, pose, 0, 0) is None
    assert off_centre_px(OPTICS, pose, 0, 0) == pytest.approx(OPTICS.focal_px() * math.radians(170))
    assert find(SCENE.picture(pose, 0.0)) is None


@settings(max_examples=cases(60, 3000), deadline=None)
@given(poses, instants)
def test_the_ball_is_found_in_a_compressed_picture(pose: Pose, now_s: float) -> None:
    at = SCENE.where(pose, now_s)
    picture = decode(memoryview(encode(SCENE.picture(pose, now_s), 80, last=False)))
    assert picture is not None
    spot = find(picture)
    if is_inside(at, 70):
        assert at is not None and spot is not None
        assert math.dist(at, (spot.x, spot.y)) < 1
    elif not is_inside(at, -70):
        assert spot is None


def test_the_tracker_sees_the_same_in_its_window_and_predicts() -> None:
    tracker = Tracker()
    for number in range(60):
        pose = Pose(0, 0, 1)
        picture, at = SCENE.picture(pose, number / 25), SCENE.where(pose, number / 25)
        expected = tracker.predicted(number)
        spot = tracker.look(number, picture)
        everywhere = find(picture)
        assert at is not None and spot is not None and everywhere is not None
        assert math.dist((spot.x, spot.y), (everywhere.x, everywhere.y)) < 1e-6
        if number > 20:
            assert expected is not None
            assert math.dist((expected.x, expected.y), at) < 4
    # Where the ball has gone there is no prediction, and it is found again anywhere.
    assert tracker.look(60, SCENE.picture(Pose(90, 0, 1), 0)) is None
    assert tracker.predicted(61) is None
    assert tracker.look(61, SCENE.picture(Pose(-12, 5, 1), 0)) is not None


def test_the_mark_of_the_last_picture_is_no_part_of_it() -> None:
    picture = SCENE.picture(Pose(0, 0, 1), 0)
    last, other = (encode(picture, 80, last=each) for each in (True, False))
    assert is_last(memoryview(last)) and not is_last(memoryview(other))
    assert np.array_equal(decode(memoryview(last)), decode(memoryview(other)))


@given(st.binary(max_size=400))
def test_bytes_that_are_no_picture_are_none(data: bytes) -> None:
    assert decode(memoryview(data)) is None


def test_a_picture_that_was_cut_is_no_failure() -> None:
    data = encode(SCENE.picture(Pose(0, 0, 1), 0), 80, last=False)
    for size in range(0, len(data), 997):
        decode(memoryview(data[:size]))
