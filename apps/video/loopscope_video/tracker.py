"""Finds the ball in pictures, and predicts where it will be in the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from loopscope_video.colours import Mask
from loopscope_video.scene import Picture

# Hue in OpenCV's half degrees: reds are at both ends of the circle.
_HUES = ((0, 8), (172, 180))
_LEAST_SATURATION, _LEAST_VALUE = 130, 90
# Spots of fewer pixels are noise.
_LEAST_AREA = 12
# How much of a prediction's error moves its position and its speed (an alpha-beta filter).
_ALPHA, _BETA = 0.6, 0.2
# The ball is looked for in a window of this many times its size about the predicted position.
_WINDOW = 4.0
_FRAME_BGR = (255, 255, 255)


@dataclass(frozen=True)
class Spot:
    """Where something was seen: its centre in pixels to the right and down, and its radius."""

    x: float
    y: float
    radius: float


def draw_frame(picture: Picture, spot: Spot) -> None:
    """Draws a white frame about a spot into a picture."""
    reach = 1.5 * spot.radius
    corner, other = ((round(spot.x + each), round(spot.y + each)) for each in (-reach, reach))
    cv2.rectangle(picture, corner, other, _FRAME_BGR, 2)


def red(picture: Picture) -> Mask:
    """The pixels that are red as the ball is."""
    colours = cv2.cvtColor(picture, cv2.COLOR_BGR2HSV)
    mask = np.zeros(picture.shape[:2], np.uint8)
    for low, high in _HUES:
        mask |= cv2.inRange(
            colours,
            np.array([low, _LEAST_SATURATION, _LEAST_VALUE]),
            np.array([high, 255, 255]),
        ).astype(np.uint8, copy=False)
    return mask


def find(
    picture: Picture,
    window: tuple[int, int, int, int] | None = None,
    pixels: Callable[[Picture], Mask] = red,
) -> Spot | None:
    """The largest spot of a picture, or of its part (left, top, right, bottom); None: no.

    `pixels`: what finds the pixels of spots.
    """
    left, top, right, bottom = window or (0, 0, picture.shape[1], picture.shape[0])
    part = picture[top:bottom, left:right]
    if not part.size:
        return None
    count, _, boxes, centres = cv2.connectedComponentsWithStats(pixels(part))
    if count < 2:
        return None
    areas = boxes[1:, cv2.CC_STAT_AREA]
    largest = int(areas.argmax())
    area = int(areas[largest])
    if area < _LEAST_AREA:
        return None
    x, y = centres[1 + largest]
    return Spot(left + float(x) + 0.5, top + float(y) + 0.5, (area / np.pi) ** 0.5)


class Tracker:
    """Finds the ball in each picture, first where it should be, and then everywhere."""

    def __init__(self) -> None:
        self._seen: Spot | None = None
        self._time = 0
        self._speed = (0.0, 0.0)

    def predicted(self, time: int) -> Spot | None:
        """Where the ball should be in the picture of a number; None: it was not seen lately."""
        if self._seen is None:
            return None
        turns = time - self._time
        return Spot(
            self._seen.x + self._speed[0] * turns,
            self._seen.y + self._speed[1] * turns,
            self._seen.radius,
        )

    def look(
        self, time: int, picture: Picture, pixels: Callable[[Picture], Mask] = red
    ) -> Spot | None:
        """Where the ball is in the picture of a number, later than those before; None: nowhere.

        `pixels`: what finds the ball's pixels.
        """
        expected = self.predicted(time)
        spot = None
        if expected is not None:
            spot = find(picture, _window(expected, picture), pixels)
        spot = spot or find(picture, None, pixels)
        if spot is None:
            self._seen = None
            return None
        if expected is None:
            self._speed = (0.0, 0.0)
            self._seen, self._time = spot, time
            return spot
        turns = max(1, time - self._time)
        missed = (spot.x - expected.x, spot.y - expected.y)
        self._speed = (
            self._speed[0] + _BETA * missed[0] / turns,
            self._speed[1] + _BETA * missed[1] / turns,
        )
        self._seen = Spot(
            expected.x + _ALPHA * missed[0], expected.y + _ALPHA * missed[1], spot.radius
        )
        self._time = time
        return spot


def _window(about: Spot, picture: Picture) -> tuple[int, int, int, int] | None:
    """The part of a picture about a spot; None: all of it, as the spot is at an edge."""
    reach = _WINDOW * about.radius + 8
    left, right = int(about.x - reach), int(about.x + reach)
    top, bottom = int(about.y - reach), int(about.y + reach)
    if left < 0 or top < 0 or right > picture.shape[1] or bottom > picture.shape[0]:
        return None
    return left, top, right, bottom
