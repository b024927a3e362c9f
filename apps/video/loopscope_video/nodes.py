"""The kinds of nodes of frame graphs: what goes in, what comes out, and their settings."""

from __future__ import annotations

import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
from loopscope_trace import event
from pydantic import BaseModel, ConfigDict, Field

from loopscope import stm
from loopscope_video import colours, sightings, videos
from loopscope_video.display import Board, Shown, showing
from loopscope_video.errors import VideoError
from loopscope_video.head import Pose
from loopscope_video.items import Content
from loopscope_video.scene import BALL_BGR, Motion, Optics, Scene
from loopscope_video.streams import decode, encode
from loopscope_video.tracker import Spot, Tracker, draw_frame, red
from loopscope_video.window import opened


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


_mixed = event(
    "mixer", "mixed", inputs="u16", description="a mixer has mixed what so many inputs had"
)


class Settings(BaseModel):
    """The settings of a kind of node."""

    model_config = ConfigDict(extra="forbid")

    takes: ClassVar[tuple[frozenset[Type], ...]] = ()
    """What each input may carry."""
    optional: ClassVar[tuple[frozenset[Type], ...]] = ()
    """What each of the inputs after these may carry, which may be left out."""
    further: ClassVar[frozenset[Type]] = frozenset()
    """What any number of inputs after these may carry; empty: there are none."""
    may_lack: ClassVar[bool] = False
    """Whether inputs after the first may have nothing."""
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


Step = Callable[[int, Sequence[Content | None]], Any]
"""From a time and the contents of the inputs to that of the output, if there is one.

None: the input has nothing, which only kinds that `may_lack` inputs are given. Raises Done.
"""


class Done(Exception):
    """A node ends, although its inputs have not ended."""


_PICTURES = frozenset({Type.PICTURE})


def _picture(content: Content | None) -> Any:
    assert content is not None and not isinstance(content, bytes)
    return content


class TimedSource(Source):
    """The settings of a source of pictures that ends after a time."""

    gives = Type.PICTURE
    rate_hz: float | None = Field(
        25, gt=0, le=1000, description="pictures per second; null: as many as its readers take"
    )
    duration_s: float = Field(10, gt=0, description="how long it gives pictures, in s")
    width: int = Field(640, ge=16, le=8192, description="a picture's width in pixels")
    height: int | None = Field(
        None, ge=12, le=8192, description="its height; none: three quarters of the width"
    )

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height or round(self.width * 3 / 4)

    def turns(self) -> Iterator[tuple[int, float]]:
        """The number of each picture, and how many seconds it is after the first one."""
        if self.rate_hz is not None:
            for number in _paced(self.rate_hz, round(self.duration_s * self.rate_hz)):
                yield number, number / self.rate_hz
            return
        begun = time.monotonic()
        for number in itertools.count():
            if (passed := time.monotonic() - begun) >= self.duration_s:
                return
            yield number, passed


class SceneSettings(TimedSource):
    """Pictures of the simulated scene, from a camera that stands still."""

    amplitude_deg: float = Field(10, ge=0, le=45, description="how far the ball swings")
    period_s: float = Field(10, gt=0, description="how long one swing takes, in s")
    prepared: int = Field(
        0,
        ge=0,
        le=10_000,
        description="pictures of one swing that are made beforehand and repeated; 0: none, each "
        "is made when it is due",
    )

    def contents(self) -> Iterator[Content]:
        optics = Optics(*self.shape)
        scene = Scene(optics, Motion(self.amplitude_deg, self.period_s))
        pose, swing = Pose(0, 0, 1), self.period_s
        made = [scene.picture(pose, swing * each / self.prepared) for each in range(self.prepared)]
        for number, passed_s in self.turns():
            yield made[number % len(made)] if made else scene.picture(pose, passed_s)


class CanvasSettings(TimedSource):
    """Black pictures."""

    def contents(self) -> Iterator[Content]:
        width, height = self.shape
        canvas = np.zeros((height, width, 3), np.uint8)
        for _ in self.turns():
            yield canvas


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
        try:
            with videos.opened(self.file, self.device) as video:
                numbers: Iterator[int]
                if self.file is not None:
                    numbers = _paced(self.rate_hz or video.rate_hz, self.pictures)
                else:
                    numbers = iter(range(self.pictures)) if self.pictures else itertools.count()
                for _ in numbers:
                    if (picture := video.next()) is None:
                        return
                    yield picture
        except VideoError as error:
            raise VideoError(f"capture: {error}") from None


class DecodeSettings(Worker):
    """Decompresses JPEGs."""

    takes = (frozenset({Type.JPEG}),)
    gives = Type.PICTURE

    def step(self, stack: ExitStack) -> Step:
        def step(_: int, contents: Sequence[Content | None]) -> Any:
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
        def step(_: int, contents: Sequence[Content | None]) -> Any:
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
    optional = (frozenset({Type.MASK}),)
    gives = Type.HISTOGRAM

    def step(self, stack: ExitStack) -> Step:
        return lambda _, contents: colours.histogram(*map(_picture, contents))


class TrackerSettings(Worker):
    """Finds the ball, with predicted positions.

    With the histogram of what may be the ball, such as what moves, by the ratio of the ball's
    colours to those of the histogram; else it is what is red.
    """

    takes = (_PICTURES,)
    optional = (frozenset({Type.HISTOGRAM}),)
    gives = Type.SPOT

    def step(self, stack: ExitStack) -> Step:
        tracker, model = Tracker(), colours.model(BALL_BGR)

        def step(number: int, contents: Sequence[Content | None]) -> Any:
            picture, *histograms = map(_picture, contents)
            pixels = colours.alike(model, histograms[0]) if histograms else red
            spot = tracker.look(number, picture, pixels)
            sightings.record(number, spot)
            spot = spot or Spot(*[float("nan")] * 3)
            return np.array([spot.x, spot.y, spot.radius], np.float32)

        return step


class MixerSettings(Worker):
    """The mean of the pictures that there are; others than the first are scaled to its size."""

    takes = (frozenset({Type.PICTURE, Type.MASK}),)
    further = takes[0]
    may_lack = True
    gives = Type.PICTURE

    def step(self, stack: ExitStack) -> Step:
        def step(number: int, contents: Sequence[Content | None]) -> Any:
            there = [_picture(content) for content in contents if content is not None]
            height, width = there[0].shape[:2]
            total = np.zeros((height, width, 3), np.float32)
            for picture in there:
                if picture.ndim == 2:
                    picture = cv2.cvtColor(picture, cv2.COLOR_GRAY2BGR)
                if picture.shape != total.shape:
                    picture = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
                total += picture
            _mixed(number, len(there))
            return np.rint(total / len(there)).astype(np.uint8)

        return step


class DrawSettings(Worker):
    """Draws a frame about each spot into pictures."""

    takes = (_PICTURES, frozenset({Type.SPOT}))
    further = frozenset({Type.SPOT})
    gives = Type.PICTURE

    def step(self, stack: ExitStack) -> Step:
        def step(_: int, contents: Sequence[Content | None]) -> Any:
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

        def step(number: int, contents: Sequence[Content | None]) -> None:
            (jpeg,) = contents
            assert isinstance(jpeg, bytes)
            board.show(Shown(number, jpeg))

        return step


class WindowSettings(Worker):
    """Shows pictures in a window of the X server, until its user closes it."""

    takes = (frozenset({Type.PICTURE, Type.MASK, Type.JPEG}),)
    title: str = Field("loopscope-video", description="the window's title")

    def step(self, stack: ExitStack) -> Step:
        window = stack.enter_context(opened(self.title))

        def step(number: int, contents: Sequence[Content | None]) -> None:
            (content,) = contents
            if isinstance(content, bytes):
                picture = decode(memoryview(content))
            else:
                picture = _picture(content)
            if picture is not None and not window.show(number, picture):
                raise Done

        return step


class RecordSettings(Worker):
    """Writes JPEGs into a folder, with their times as names."""

    takes = (frozenset({Type.JPEG}),)
    folder: str = Field(description="where; it is made if it is not there")

    def step(self, stack: ExitStack) -> Step:
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)

        def step(number: int, contents: Sequence[Content | None]) -> None:
            (jpeg,) = contents
            assert isinstance(jpeg, bytes)
            (folder / f"{number:09}.jpg").write_bytes(jpeg)

        return step


class DiscardSettings(Worker):
    """Takes anything, and does nothing with it."""

    takes = (frozenset(Type),)
    duration_s: float | None = Field(
        None, gt=0, description="how long, in s; none: until its input ends"
    )

    def step(self, stack: ExitStack) -> Step:
        end = math.inf if self.duration_s is None else time.monotonic() + self.duration_s

        def step(number: int, contents: Sequence[Content | None]) -> None:
            if time.monotonic() >= end:
                raise Done

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
    "canvas": CanvasSettings,
    "decode": DecodeSettings,
    "scale": ScaleSettings,
    "background": BackgroundSettings,
    "histogram": HistogramSettings,
    "tracker": TrackerSettings,
    "mixer": MixerSettings,
    "draw": DrawSettings,
    "encode": EncodeSettings,
    "display": DisplaySettings,
    "window": WindowSettings,
    "record": RecordSettings,
    "discard": DiscardSettings,
}
