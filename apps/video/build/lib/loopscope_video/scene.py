"""A scene that a simulated camera looks into: a ball that moves before a wall with a pattern.

Where the ball is at each instant is known, and so is where it is in each picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from loopscope_video.head import Pose

Picture = npt.NDArray[np.uint8]
"""Rows, columns, and blue, green and red of each."""

BALL_BGR = (40, 40, 230)
# The wall's pattern in pixels, and how far it goes: tan(60°) to each side of straight ahead.
_WALL_SIZE = 2048
_WALL_REACH = math.tan(math.radians(60))
# Positions of circles have so many bits after the point (cv2.circle).
_FRACTION_BITS = 4


@dataclass(frozen=True)
class Optics:
    """A camera's picture: its size in pixels, and the angle that its width covers at zoom 1."""

    width: int = 640
    height: int = 480
    field_of_view_deg: float = 50.0

    def focal_px(self, zoom: float = 1.0) -> float:
        """The focal length in pixels."""
        return zoom * self.width / 2 / math.tan(math.radians(self.field_of_view_deg / 2))

    @property
    def centre(self) -> tuple[float, float]:
        """The picture's centre in pixels, to the right and down."""
        return self.width / 2, self.height / 2

    def angles(self, x: float, y: float) -> tuple[float, float]:
        """How far a pixel is from the picture's centre in degrees, right and up, at zoom 1."""
        across, down = self.centre
        focal = self.focal_px()
        return (
            math.degrees(math.atan((x - across) / focal)),
            math.degrees(math.atan((down - y) / focal)),
        )


@dataclass(frozen=True)
class Motion:
    """A ball's way: oscillations to the sides, and up and down at twice the frequency."""

    amplitude_deg: float = 10.0
    period_s: float = 10.0

    def at(self, now_s: float) -> tuple[float, float]:
        """Azimuth and elevation in degrees at an instant."""
        phase = 2 * math.pi * now_s / self.period_s
        return (
            self.amplitude_deg * math.sin(phase),
            self.amplitude_deg / 4 * math.sin(2 * phase),
        )


def rotation(pose: Pose) -> npt.NDArray[np.float64]:
    """The matrix from directions of the world (right, up, ahead) to those of the camera, 3 by 3."""
    pan, tilt = math.radians(pose.pan), math.radians(pose.tilt)
    turned = np.array(
        [[math.cos(pan), 0, -math.sin(pan)], [0, 1, 0], [math.sin(pan), 0, math.cos(pan)]]
    )
    tilted = np.array(
        [[1, 0, 0], [0, math.cos(tilt), -math.sin(tilt)], [0, math.sin(tilt), math.cos(tilt)]]
    )
    matrix: npt.NDArray[np.float64] = tilted @ turned
    return matrix


def project(
    optics: Optics, pose: Pose, azimuth_deg: float, elevation_deg: float
) -> tuple[float, float] | None:
    """The pixel at which a direction is seen, to the right and down; None: it is behind.

    It may be outside of the picture.
    """
    right, up, ahead = _seen_at(pose, azimuth_deg, elevation_deg)
    if ahead <= 1e-6:
        return None
    focal = optics.focal_px(pose.zoom)
    across, down = optics.centre
    return across + focal * right / ahead, down - focal * up / ahead


def off_centre_px(optics: Optics, pose: Pose, azimuth_deg: float, elevation_deg: float) -> float:
    """The angle between a direction and that of the camera, times the focal length, in pixels.

    This is a distance in the picture for small angles, and finite for all.
    """
    right, up, ahead = _seen_at(pose, azimuth_deg, elevation_deg)
    return optics.focal_px(pose.zoom) * math.atan2(math.hypot(right, up), ahead)


def _seen_at(pose: Pose, azimuth_deg: float, elevation_deg: float) -> tuple[float, float, float]:
    """A direction of length 1 as the camera sees it: to the right, up and ahead."""
    azimuth, elevation = math.radians(azimuth_deg), math.radians(elevation_deg)
    across = math.cos(elevation)
    world = [across * math.sin(azimuth), math.sin(elevation), across * math.cos(azimuth)]
    right, up, ahead = rotation(pose) @ np.array(world)
    return float(right), float(up), float(ahead)


class Scene:
    """The wall and the ball."""

    def __init__(
        self, optics: Optics, motion: Motion, ball_deg: float = 1.5, seed: int = 1
    ) -> None:
        """`ball_deg`: the ball's radius. `seed`: chooses the wall's pattern."""
        self.optics = optics
        self.motion = motion
        self._ball_deg = ball_deg
        self._wall = _wall(seed)

    def where(self, pose: Pose, now_s: float) -> tuple[float, float] | None:
        """The pixel of the ball's centre at an instant, as `project`."""
        return project(self.optics, pose, *self.motion.at(now_s))

    def picture(self, pose: Pose, now_s: float) -> Picture:
        """What the camera sees at an instant."""
        optics = self.optics
        focal = optics.focal_px(pose.zoom)
        across, down = optics.centre
        camera = np.array([[focal, 0, across], [0, -focal, down], [0, 0, 1]])
        scale = _WALL_SIZE / 2 / _WALL_REACH
        wall = np.array([[scale, 0, _WALL_SIZE / 2], [0, -scale, _WALL_SIZE / 2], [0, 0, 1]])
        # From a picture's pixels to the wall's, which is how OpenCV wants it with the inverse flag.
        back = wall @ np.linalg.inv(rotation(pose)) @ np.linalg.inv(camera)
        picture = cv2.warpPerspective(
            self._wall,
            back,
            (optics.width, optics.height),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REFLECT,
        )
        seen = picture.astype(np.uint8, copy=False)
        if (ball := self.where(pose, now_s)) is not None:
            _draw_ball(seen, ball, focal * math.tan(math.radians(self._ball_deg)))
        return seen


def _wall(seed: int) -> Picture:
    """A pattern of soft spots in colours without red."""
    random = np.random.default_rng(seed)
    coarse = random.integers(60, 200, (64, 64, 3), dtype=np.uint8)
    coarse[:, :, 2] = coarse[:, :, :2].min(axis=2) // 2
    wall = cv2.resize(coarse, (_WALL_SIZE, _WALL_SIZE), interpolation=cv2.INTER_CUBIC)
    return wall.astype(np.uint8, copy=False)


def _draw_ball(picture: Picture, at: tuple[float, float], radius: float) -> None:
    x, y = at
    if not (abs(x) < 1e4 and abs(y) < 1e4):
        return  # far outside, where OpenCV's coordinates would overflow
    # OpenCV's pixels have their centres at whole numbers, ours at halves.
    fixed = [round((value - 0.5) * (1 << _FRACTION_BITS)) for value in (x, y)]
    cv2.circle(
        picture,
        (fixed[0], fixed[1]),
        round(radius * (1 << _FRACTION_BITS)),
        BALL_BGR,
        cv2.FILLED,
        cv2.LINE_AA,
        _FRACTION_BITS,
    )
