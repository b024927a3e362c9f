"""Channels of pictures: JPEGs, whose times are the pictures' numbers.

Behind the last one is a mark, which readers of JPEG do not look at.
"""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np

from loopscope import stm
from loopscope_video.scene import Picture

MOST_BYTES = 1 << 20
"""Bytes of a picture, where no experiment says how many."""
CAPACITY = 8
# A JPEG ends with ff d9.
_LAST = b"last"


def channel(
    name: str,
    *,
    puts: bool,
    item_bytes: int = MOST_BYTES,
    full: Literal["drop", "refuse"] = "drop",
) -> stm.Channel:
    """The channel of a name, which is made where there is none; `puts`: to put items, too.

    One that is made keeps nothing for programs that are not there. By default it drops the oldest
    pictures where somebody is slow, so it holds nobody up. Raises StmError.
    """
    service = stm.Service()
    try:
        return service.open(name, puts=puts)
    except stm.StmError:
        # If there is another reason, it is one here as well.
        return service.create(
            name, item_bytes=item_bytes, capacity=CAPACITY, orphans="discard", full=full
        )


def next_time(channel: stm.Channel) -> int:
    """The lowest time, from 0 on, above all that a channel has or had."""
    with channel.input("next") as joined:
        return max(0, joined.counts().floor)


def encode(picture: Picture, quality: int, *, last: bool) -> bytes:
    """A picture as JPEG, with the mark of the last one where it is."""
    done, encoded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise ValueError(f"a picture of {picture.shape} cannot be encoded as JPEG")
    return encoded.tobytes() + (_LAST if last else b"")


def decode(data: memoryview) -> Picture | None:
    """The picture of a JPEG; None: the bytes are none."""
    try:
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        return None
    return None if picture is None else picture.astype(np.uint8, copy=False)


def is_last(data: memoryview) -> bool:
    """Whether no picture comes after this one."""
    return bytes(data[-len(_LAST) :]) == _LAST
