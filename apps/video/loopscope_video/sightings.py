"""Events that say where trackers see the ball."""

from __future__ import annotations

from loopscope_trace import event

from loopscope_video.tracker import Spot

_seen = event(
    "tracker",
    "seen",
    x="f32",
    y="f32",
    description="the ball is seen in a picture, at these pixels",
)
_lost = event("tracker", "lost", description="the ball is not seen in a picture")


def record(number: int, spot: Spot | None) -> None:
    """Records where the ball is in the picture of a number; None: it is not seen."""
    if spot is None:
        _lost(number)
    else:
        _seen(number, spot.x, spot.y)
