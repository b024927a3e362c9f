"""Pictures of clips and of cameras of this machine (V4L2), by OpenCV."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np

from loopscope_video.errors import VideoError
from loopscope_video.scene import Picture


class Video:
    """A clip or a camera that is open."""

    def __init__(self, source: cv2.VideoCapture) -> None:
        self._source = source

    @property
    def rate_hz(self) -> float:
        """The rate that a clip says it has; 25 where it says none."""
        return self._source.get(cv2.CAP_PROP_FPS) or 25.0

    def next(self) -> Picture | None:
        """The next picture; of a camera, when it comes. None: there is none."""
        there, picture = self._source.read()
        return picture.astype(np.uint8, copy=False) if there else None


@contextmanager
def opened(file: str | None, device: int | None) -> Iterator[Video]:
    """A clip, or the camera of a number, for the duration of a block. Raises VideoError."""
    named = file if file is not None else f"/dev/video{device}"
    if not Path(named).exists():
        raise VideoError(f"there is no {'camera' if file is None else 'file'} {named}")
    source = cv2.VideoCapture(named)
    try:
        if not source.isOpened():
            raise VideoError(f"{named} cannot be opened as video")
        yield Video(source)
    finally:
        source.release()
