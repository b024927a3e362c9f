"""Histograms of colours, and the search for an object by the histogram of its colours.

A pixel may be the object's if its colour has a large share in the model M of the object's colours,
compared with its share in the histogram I of what is looked at: min(M / I, 1) (Swain and Ballard,
*Color Indexing*, IJCV 7, 1991).
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt

from loopscope_video.scene import Picture

HUES, SATURATIONS = 30, 32
Histogram = npt.NDArray[np.float32]
"""Shares of hues (rows, 30) and saturations (columns, 32), which sum to 1, or to 0 of nothing."""
Mask = npt.NDArray[np.uint8]
"""Rows and columns: 0, or another number where something is."""

_CHANNELS = [0, 1]
_RANGES = [0.0, 180.0, 0.0, 256.0]
# A model's colour has so much of its neighbours in each direction, because light varies.
_SPREAD = cv2.getGaussianKernel(3, 0.6)
# A pixel with at least this ratio is taken for the object's. The model's own colour has more even
# where there is nothing else, and a neighbour of it less where it is most of the picture.
_LEAST_RATIO = 0.25


def histogram(picture: Picture, mask: Mask | None = None) -> Histogram:
    """The shares of a picture's colours, or of those of its part in a mask."""
    hsv = cv2.cvtColor(picture, cv2.COLOR_BGR2HSV)
    counts = cv2.calcHist([hsv], _CHANNELS, mask, [HUES, SATURATIONS], _RANGES)
    shares: Histogram = counts / np.float32(max(1.0, float(counts.sum())))
    return shares


def model(bgr: tuple[int, int, int]) -> Histogram:
    """The colours of an object that has one colour (blue, green, red), with some variation."""
    plain = histogram(np.array([[bgr]], np.uint8))
    # Hues are a circle.
    round_about = cv2.copyMakeBorder(plain, 1, 1, 0, 0, cv2.BORDER_WRAP)
    spread = cv2.sepFilter2D(round_about, -1, _SPREAD, _SPREAD, borderType=cv2.BORDER_CONSTANT)
    part = spread[1:-1]
    shares: Histogram = (part / part.sum()).astype(np.float32)
    return shares


def alike(wanted: Histogram, there: Histogram) -> Callable[[Picture], Mask]:
    """What finds the pixels of a model's colours, by the histogram of what is looked at.

    Colours without a share in `there` are not found.
    """
    ratio = np.zeros_like(wanted)
    np.divide(wanted, there, out=ratio, where=there > 0)
    found = np.where(ratio >= _LEAST_RATIO, np.float32(255), np.float32(0))

    def pixels(picture: Picture) -> Mask:
        hsv = cv2.cvtColor(picture, cv2.COLOR_BGR2HSV)
        mask = cv2.calcBackProject([hsv], _CHANNELS, found, _RANGES, 1)
        return mask.astype(np.uint8, copy=False)

    return pixels
