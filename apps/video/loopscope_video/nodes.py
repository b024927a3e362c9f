"""The kinds of nodes of frame graphs: what goes in, what comes out, and their settings."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from loopscope import stm
from loopscope_video.display import Board, Shown, showing
from loopscope_video.errors import VideoError
from loopscope_video.head import Pose
from loopscope_video.items import Content
from loopscope_video.scene import Motion, Optics, Scene
from loopscope_video.streams import decode, encode
from loopscope_video.tracker import Spot, Tracker, draw_frame


class Type(Enum):
    """What an edge carries."""

    PICTURE = "pictures"
    """Rows, columns, and blue, green and red of each, as bytes."""
    MASK = "masks"
    """Rows and columns of bytes: 0 or 255."""
    HISTOGRAM = "histograms"
    """Shares of hues (rows, 30) and saturations (columns, 32), 32-bit floats that sum to 1."""
    SPOT = "spots"
    """x, y and radius in pixels, 32-bit floats; NaN: nothing is seen."""
    JPEG = "JPEGs"


HUES, SATURATIONS = 30, 32


class Settings(BaseModel):
    """The settings of a kind of node."""

    model_config = ConfigDict(extra="forbid")

    takes: ClassVar[tuple[frozenset[Type], ...]] = ()
    """What each input may carry."""
    further: ClassVar[frozenset[Type]] = frozenset()
    """What any number of inputs after these may carry; empty: there are none."""
    gives: ClassVar[Type | None] = None
    """What comes out; None: nothing."""


class Source(Settings, ABC):
    """The settings of a node without inputs."""

    @abstractmethod
    def contents(self) -> Iterator[Content]:
        """What it gives, at its own pace."""


class Worker(Settings, ABC):
    """The settings of a node that works on what its inputs bring."""

    @abstractmethod
    def step(self, stack: ExitStack) -> Step:
        """What it does with its inputs' contents, with a memory of its own.

        `stack` closes at the node's end what it opens.
        """


Step = Callable[[int, Sequence[Content]], Any]
"""From a time and the contents of the inputs to that of the output, if there is one."""
_PICTURES = frozenset({Type.PICTURE})


def _picture(content: Content) -> Any:
    assert not isinstance(content, bytes)
    return content


class SceneSettings(Source):
    """Pictures of the simulated scene, from a camera that stands still."""

    gives = Type.PICTURE
    rate_hz: float = Field(25, gt=0, le=1000, description="pictures per second")
    duration_s: float = Field(10, gt=0, description="how long it takes pictures, in s")
    width: int = Field(640, ge=16, le=8192, description="a picture's width in pixels")
    height: int = Field(480, ge=16, le=8192, description="its height")
    amplitude_deg: float = Field(10, ge=0, le=45, description="how far the ball swings")
    period_s: float = Field(10, gt=0, description="how long one swing takes, in s")

    def contents(self) -> Iterator[Content]:
        optics = Optics(self.width, self.height)
        scene = Scene(optics, Motion(self.amplitude_deg, self.period_s))
        for number in _paced(self.rate_hz, round(self.duration_s * self.rate_hz)):
            yield scene.picture(Pose(0, 0, 1), number / self.rate_hz)


class CaptureSettings(Source):
    """Pictures of a clip at a fixed rate, or of a camera (a V4L2 device) as they come."""

    gives = Type.PICTURE
    file: str | None = Field(None, description="the clip")
    device: int | None = Field(None, ge=0, description="or the number of a camera")
    rate_hz: float | None = Field(None, gt=0, le=1000, description="the clip's; none: its own")
    pictures: int | None = Field(None, gt=0, description="how many; none: all")

    def contents(self) -> Iterator[Content]:
        if (self.file is None) == (self.device is None):
            raise VideoError("capture: give file or device")
        source = self.file if self.file is not None else self.device
        if self.file is not None and not Path(self.file).is_file():
            raise VideoError(f"capture: there is no file {self.file}")
        taken = cv2.VideoCapture(source) if source is not None else None
        if taken is None or not taken.isOpened():
            raise VideoError(f"capture: {source} cannot be opened as video")
        try:
            numbers: Iterator[int]
            if self.file is not None:
                rate = self.rate_hz or taken.get(cv2.CAP_PROP_FPS) or 25.0
                numbers = _paced(rate, self.pictures)
            else:
                numbers = iter(range(self.pictures)) if self.pictures else itertools.count()
            for _ in numbers:
                there, picture = taken.read()
                if not there:
                    return
                yield picture
        finally:
            taken.release()


class DecodeSettings(Worker):
    """Decompresses JPEGs."""

    takes = (frozenset({Type.JPEG}),)
    gives = Type.PICTURE

    def step(self, stack: ExitStack) -> Step:
        def step(_: int, contents: Sequence[Content]) -> Any:
            (jpeg,) = contents
            assert isinstance(jpeg, bytes)
            return decode(memoryview(jpeg))

        return step


class ScaleSettings(Worker):
    """Scales pictures to a width."""

    takes = (_PICTURES,)
    gives = Type.PICTURE
    width: int = Field(320, ge=1, le=8192, description="in pixels")

    def step(self, stack: ExitStack) -> Step:
        def step(_: int, contents: Sequence[Content]) -> Any:
            picture = _picture(contents[0])
            height = max(1, round(picture.shape[0] * self.width / picture.shape[1]))
            return cv2.resize(picture, (self.width, height), interpolation=cv2.INTER_AREA)

        return step


class BackgroundSettings(Worker):
    """Subtracts the background: what differs from the pictures before (Zivkovic, ICPR 2004)."""

    takes = (_PICTURES,)
    gives = Type.MASK
    history: int = Field(100, ge=1, description="pictures that make the background")
    threshold: float = Field(16, gt=0, description="squared distance that is a difference")

    def step(self, stack: ExitStack) -> Step:
        subtractor = cv2.createBackgroundSubtractorMOG2(self.history, self.threshold, False)
        return lambda _, contents: subtractor.apply(_picture(contents[0]))


class HistogramSettings(Worker):
    """The shares of colours of pictures, or of their part in a mask."""

    takes = (_PICTURES,)
    further = frozenset({Type.MASK})
    gives = Type.HISTOGRAM

    def step(self, stack: ExitStack) -> Step:
        def step(_: int, contents: Sequence[Content]) -> Any:
            colours = cv2.cvtColor(_picture(contents[0]), cv2.COLOR_BGR2HSV)
            mask = _picture(contents[1]) if len(contents) > 1 else None
            counts = cv2.calcHist([colours], [0, 1], mask, [HUES, SATURATIONS], [0, 180, 0, 256])
            return counts / max(1.0, float(counts.sum()))

        return step


class TrackerSettings(Worker):
    """Finds the ball, with predicted positions."""

    takes = (_PICTURES,)
    gives = Type.SPOT

    def step(self, stack: ExitStack) -> Step:
        tracker = Tracker()

        def step(number: int, contents: Sequence[Content]) -> Any:
            spot = tracker.look(number, _picture(contents[0])) or Spot(*[float("nan")] * 3)
            return np.array([spot.x, spot.y, spot.radius], np.float32)

        return step


class MixerSettings(Worker):
    """The mean of pictures; those of another size are scaled to the first one's."""

    takes = (_PICTURES,)
    further = frozenset({Type.PICTURE, Type.MASK})
    gives = Type.PICTURE

    def step(self, stack: ExitStack) -> Step:
        def step(_: int, contents: Sequence[Content]) -> Any:
            first = _picture(contents[0])
            size = first.shape[1], first.shape[0]
            total = first.astype(np.float32)
            for content in contents[1:]:
                picture = _picture(content)
                if picture.ndim == 2:
                    picture = cv2.cvtColor(picture, cv2.COLOR_GRAY2BGR)
                if picture.shape != first.shape:
                    picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
                total += picture
            return np.rint(total / len(contents)).astype(np.uint8)

        return step


class DrawSettings(Worker):
    """Draws a frame about each spot into pictures."""

    takes = (_PICTURES, frozenset({Type.SPOT}))
    further = frozenset({Type.SPOT})
    gives = Type.PICTURE

    def step(self, stack: ExitStack) -> Step:
        def step(_: int, contents: Sequence[Content]) -> Any:
            picture = _picture(contents[0]).copy()
            for content in contents[1:]:
                spot = Spot(*map(float, _picture(content)))
                if not math.isnan(spot.radius):
                    draw_frame(picture, spot)
            return picture

        return step


class EncodeSettings(Worker):
    """Compresses pictures to JPEGs."""

    takes = (frozenset({Type.PICTURE, Type.MASK}),)
    gives = Type.JPEG
    quality: int = Field(80, ge=1, le=100, description="of 100")

    def step(self, stack: ExitStack) -> Step:
        return lambda _, contents: encode(_picture(contents[0]), self.quality, last=False)


class DisplaySettings(Worker):
    """Shows JPEGs to browsers."""

    takes = (frozenset({Type.JPEG}),)
    port: int = Field(8080, ge=0, le=65535, description="TCP port of the page; 0: any")
    address: str = Field("127.0.0.1", description="address at which it listens; empty: at all")

    def step(self, stack: ExitStack) -> Step:
        board = Board()
        stack.enter_context(showing(board, self.address, self.port))

        def step(number: int, contents: Sequence[Content]) -> None:
            (jpeg,) = contents
            assert isinstance(jpeg, bytes)
            board.show(Shown(number, jpeg))

        return step


class RecordSettings(Worker):
    """Writes JPEGs into a folder, with their times as names."""

    takes = (frozenset({Type.JPEG}),)
    folder: str = Field(description="where; it is made if it is not there")

    def step(self, stack: ExitStack) -> Step:
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)

        def step(number: int, contents: Sequence[Content]) -> None:
            (jpeg,) = contents
            assert isinstance(jpeg, bytes)
            (folder / f"{number:09}.jpg").write_bytes(jpeg)

        return step


def _paced(rate_hz: float, count: int | None) -> Iterator[int]:
    """Numbers from 0 at a fixed rate by absolute time; those that are too late are left out."""
    for turn in stm.Pace(1 / rate_hz, tolerance=0.5 / rate_hz):
        if count is not None and turn.number >= count:
            return
        yield turn.number


KINDS: dict[str, type[Settings]] = {
    "scene": SceneSettings,
    "capture": CaptureSettings,
    "decode": DecodeSettings,
    "scale": ScaleSettings,
    "background": BackgroundSettings,
    "histogram": HistogramSettings,
    "tracker": TrackerSettings,
    "mixer": MixerSettings,
    "draw": DrawSettings,
    "encode": EncodeSettings,
    "display": DisplaySettings,
    "record": RecordSettings,
}
