"""The camera: takes pictures of a scene, of a clip or of a device, and has a head for VISCA.

A clip and a device do not see where the simulated head looks.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loopscope_trace import event

from loopscope import stm
from loopscope.phase import Session
from loopscope_video import videos
from loopscope_video.errors import SettingsError, VideoError
from loopscope_video.head import Abilities, Head, Motor, Order
from loopscope_video.heads import HeadServer
from loopscope_video.scene import Motion, Optics, Picture, Scene, off_centre_px
from loopscope_video.settings import CameraSettings
from loopscope_video.streams import channel, encode, next_time

_captured = event("camera", "captured", description="a picture is taken; the id is its number")
_truth = event(
    "camera",
    "truth",
    x="f32",
    y="f32",
    error_px="f32",
    pan="f32",
    tilt="f32",
    description="where the ball is in the picture (x, y in pixels, NaN behind the camera), how far "
    "from the centre, and where the head looks (degrees)",
)
_ordered = event(
    "head", "ordered", description="a command arrives at the head; the id is its sequence number"
)


@dataclass(frozen=True)
class _Shot:
    number: int
    """From 0 on; one that was left out is missing."""
    picture: Picture
    last: bool


def run(session: Session, settings: CameraSettings) -> str:
    """Takes part in the phases, and takes pictures. Returns a text of what it has done."""
    if settings.file is not None and settings.device is not None:
        raise SettingsError("file: there is device, too; a camera has one of them")
    motor = Motor(settings.max_speed_deg_s, settings.lag_s, -170, 170)
    tilt = Motor(settings.max_speed_deg_s, settings.lag_s, -30, 90)
    head = Head(Abilities(motor, tilt, latency_s=settings.latency_s))
    started = time.monotonic()

    def now_s() -> float:
        return time.monotonic() - started

    def ordered(sequence: int, order: Order) -> None:
        _ordered(sequence)

    frames = channel(settings.channel, puts=True)
    done = ""
    with HeadServer(head, now_s, port=settings.port, ordered=ordered) as server:
        for phase in session:
            if phase.name == "listen":
                phase.publish(visca_port=server.port)
            elif phase.name == "run":
                filming = _Filming(settings, server, now_s, next_time(frames))
                filming.put(frames)
                done = filming.text()
    return done


class _Filming:
    """Takes pictures, and puts them into a channel from a number on."""

    def __init__(
        self, settings: CameraSettings, server: HeadServer, now_s: Callable[[], float], first: int
    ) -> None:
        self._settings = settings
        self._server = server
        self._now_s = now_s
        self._first = first
        self._pace = stm.Pace(1 / settings.rate_hz, tolerance=0.5 / settings.rate_hz)
        self._turns = max(1, round(settings.duration_s * settings.rate_hz))
        self._taken = 0
        self._worst_px: float | None = None

    def put(self, frames: stm.Channel) -> None:
        """Takes all pictures. Raises VideoError."""
        if self._settings.device is not None:
            shots = self._of_device(self._settings.device)
        elif self._settings.file is not None:
            shots = self._of_clip(self._settings.file)
        else:
            shots = self._of_scene()
        with frames.output() as out:
            for shot in shots:
                jpeg = encode(shot.picture, self._settings.quality, last=shot.last)
                out.put(self._first + shot.number, jpeg)
                self._taken += 1

    def text(self) -> str:
        """What it has done, for people."""
        late = f"; {self._pace.slips} late, {self._pace.skipped} left out"
        ball = ""
        if self._worst_px is not None:
            ball = f"; the ball was {self._worst_px:.0f} px from the centre at most"
        return (
            f"{self._taken} pictures{late if self._settings.device is None else ''}{ball}; "
            f"{self._server.refused} messages to the head are not known"
        )

    def _of_scene(self) -> Iterator[_Shot]:
        settings = self._settings
        optics = Optics(settings.width, settings.height, settings.field_of_view_deg)
        motion = Motion(settings.amplitude_deg, settings.period_s)
        scene = Scene(optics, motion, settings.ball_deg, settings.seed)
        for turn in self._pace:
            instant, last = self._now_s(), turn.number >= self._turns - 1
            number = self._first + turn.number
            _captured(number)
            pose = self._server.at(instant)
            picture = scene.picture(pose, instant)
            error = off_centre_px(optics, pose, *motion.at(instant))
            self._worst_px = max(self._worst_px or 0.0, error)
            x, y = scene.where(pose, instant) or (math.nan, math.nan)
            _truth(number, x, y, error, pose.pan, pose.tilt)
            yield _Shot(turn.number, picture, last)
            if last:
                return

    def _of_clip(self, file: str) -> Iterator[_Shot]:
        with videos.opened(file, None) as clip:
            picture = clip.next()
            if picture is None:
                raise VideoError(f"{file} has no picture")
            for turn in self._pace:
                _captured(self._first + turn.number)
                following = clip.next() if turn.number < self._turns - 1 else None
                yield _Shot(turn.number, picture, following is None)
                if following is None:
                    return
                picture = following

    def _of_device(self, device: int) -> Iterator[_Shot]:
        with videos.opened(None, device) as camera:
            end = time.monotonic() + self._settings.duration_s
            for number in itertools.count():
                picture = camera.next()
                if picture is None:
                    raise VideoError(f"/dev/video{device} gives no more pictures")
                _captured(self._first + number)
                last = time.monotonic() >= end
                yield _Shot(number, picture, last)
                if last:
                    return
