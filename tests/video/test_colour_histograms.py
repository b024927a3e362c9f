"""The search for an object by its colours, among what moves in pictures of which all is known."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import cv2
import numpy as np
import pytest
from loopscope_video import colours
from loopscope_video.head import Pose
from loopscope_video.nodes import BackgroundSettings, HistogramSettings, TrackerSettings
from loopscope_video.scene import BALL_BGR, Motion, Optics, Picture, Scene
from loopscope_video.tracker import find

MODEL = colours.model(BALL_BGR)
WALL = Scene(Optics(320, 240), Motion()).picture(Pose(60, 0, 1), 0)


def with_disc(picture: Picture, bgr: tuple[int, int, int], x: int, radius: int) -> Picture:
    """A picture with a disc at half its height."""
    return cv2.circle(picture.copy(), (x, 120), radius, bgr, cv2.FILLED).astype(np.uint8)


def mask_of(*pictures: Picture) -> Any:
    """Where pictures differ from the wall."""
    return np.any([np.any(each != WALL, axis=2) for each in pictures], axis=0).astype(np.uint8)


def look(picture: Picture, mask: Any) -> list[float]:
    """x, y and radius, by a histogram of what is in the mask."""
    with ExitStack() as stack:
        there = HistogramSettings().step(stack)(0, [picture, mask])
        spot = TrackerSettings().step(stack)(0, [picture, there])
    return [float(each) for each in spot]


@pytest.mark.parametrize(("width", "height"), [(182, 137), (320, 240), (577, 433)])
def test_the_ball_is_found_among_what_moves(width: int, height: int) -> None:
    scene = Scene(Optics(width, height), Motion())
    misses, errors = 0, []
    with ExitStack() as stack:
        moving, histogram, tracker = (
            kind().step(stack) for kind in (BackgroundSettings, HistogramSettings, TrackerSettings)
        )
        for number in range(100):
            now = 10 * (number % 50) / 50
            picture = scene.picture(Pose(0, 0, 1), now)
            mask = moving(number, [picture])
            x, y, radius = tracker(number, [picture, histogram(number, [picture, mask])])
            misses += bool(math.isnan(radius))
            at = scene.where(Pose(0, 0, 1), now)
            assert at is not None
            if not math.isnan(radius):
                errors.append(math.dist(at, (x, y)))
    assert misses <= 10
    assert max(errors) < 2


def test_a_picture_without_the_object_has_none() -> None:
    everything = np.full(WALL.shape[:2], 255, np.uint8)
    assert all(map(math.isnan, look(WALL, everything)))
    assert all(map(math.isnan, look(with_disc(WALL, (40, 230, 40), 100, 12), everything)))
    # Nothing moves.
    ball = with_disc(WALL, BALL_BGR, 100, 12)
    assert all(map(math.isnan, look(ball, np.zeros_like(everything))))


def test_what_has_the_colour_and_is_not_looked_at_is_not_found() -> None:
    # Red stands in the background, and something blue moves.
    red, blue = with_disc(WALL, BALL_BGR, 100, 12), with_disc(WALL, (230, 60, 20), 220, 12)
    both = with_disc(red, (230, 60, 20), 220, 12)
    assert find(both) is not None
    assert all(map(math.isnan, look(both, mask_of(blue))))
    assert look(both, mask_of(red, blue))[0] == pytest.approx(100.5, abs=1)


def test_a_colour_like_the_objects_that_is_everywhere_is_not_the_object() -> None:
    # More yellow than the ball by one class of hues, and of five times its area.
    near = tuple(
        int(each)
        for each in cv2.cvtColor(np.array([[[8, 211, 230]]], np.uint8), cv2.COLOR_HSV2BGR)[0, 0]
    )
    near_shares = colours.histogram(np.array([[near]], np.uint8))
    assert 0 < (MODEL * near_shares).sum() < MODEL.max() / 2  # a neighbour in the model
    picture = with_disc(with_disc(WALL, near, 80, 27), BALL_BGR, 220, 12)
    mask = mask_of(picture)
    x, y, radius = look(picture, mask)
    assert (x, y) == (pytest.approx(220.5, abs=1), pytest.approx(120.5, abs=1))
    assert radius == pytest.approx(12, abs=1)
    # Where it is rare in the histogram, it may be the object, too, and is the larger one.
    mask[:, :160] = 0
    mask[119:122, 79:82] = 1
    assert look(picture, mask)[0] == pytest.approx(80.5, abs=1)


def test_shares_sum_to_one() -> None:
    for histogram in (MODEL, colours.histogram(WALL), colours.histogram(WALL, mask_of(WALL) + 1)):
        assert histogram.shape == (colours.HUES, colours.SATURATIONS)
        assert histogram.sum() == pytest.approx(1, abs=1e-5)
    assert colours.histogram(WALL, mask_of(WALL)).sum() == 0
