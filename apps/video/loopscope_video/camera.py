"""The simulated camera: takes pictures of the scene at a fixed rate, and obeys VISCA."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from loopscope_trace import event

from loopscope import stm
from loopscope.phase import Session
from loopscope_video.head import Abilities, Head, Motor, Order
from loopscope_video.heads import HeadServer
from loopscope_video.scene import Motion, Optics, Scene, off_centre_px
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


def run(session: Session, settings: CameraSettings) -> str:
    """Takes part in the phases, and takes pictures. Returns a text of what it has done."""
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
                done = _film(settings, frames, server, now_s)
    return done


def _film(
    settings: CameraSettings, frames: stm.Channel, server: HeadServer, now_s: Callable[[], float]
) -> str:
    optics = Optics(settings.width, settings.height, settings.field_of_view_deg)
    motion = Motion(settings.amplitude_deg, settings.period_s)
    scene = Scene(optics, motion, settings.ball_deg, settings.seed)
    pace = stm.Pace(1 / settings.rate_hz, tolerance=0.5 / settings.rate_hz)
    turns = max(1, round(settings.duration_s * settings.rate_hz))
    taken, worst, first = 0, 0.0, next_time(frames)
    with frames.output() as out:
        for turn in pace:
            instant, last = now_s(), turn.number >= turns - 1
            number = first + turn.number
            _captured(number)
            pose = server.at(instant)
            picture = scene.picture(pose, instant)
            error = off_centre_px(optics, pose, *motion.at(instant))
            worst = max(worst, error)
            x, y = scene.where(pose, instant) or (math.nan, math.nan)
            _truth(number, x, y, error, pose.pan, pose.tilt)
            out.put(number, encode(picture, settings.quality, last=last))
            taken += 1
            if last:
                break
    return (
        f"{taken} pictures; {pace.slips} late, {pace.skipped} left out; the ball "
        f"was {worst:.0f} px from the centre at most; {server.refused} messages to the head are "
        "not known"
    )
