"""Items of frame graphs: arrays and JPEGs with a header that says what they are."""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopscope_video.errors import VideoError

# What it is, the number of dimensions, and up to three of them.
_HEADER = struct.Struct("<BBxx3I")
HEADER_BYTES = _HEADER.size
_MOST_DIMENSIONS = 3


class Kind(enum.IntEnum):
    """What an item has."""

    END = 0
    """Nothing: no item comes after it."""
    BYTES = 1
    """An array of bytes: a picture or a mask."""
    FLOATS = 2
    """An array of 32-bit floating-point numbers: a histogram, or where something is."""
    JPEG = 3
    """A compressed picture."""


_TYPES: dict[Kind, np.dtype[Any]] = {Kind.BYTES: np.dtype(np.uint8), Kind.FLOATS: np.dtype("<f4")}
Array = npt.NDArray[Any]
Content = Array | bytes
"""An array of bytes or 32-bit floats of up to three dimensions, or a JPEG."""

END = _HEADER.pack(Kind.END, 0, 0, 0, 0)


def size_of(content: Content) -> int:
    """The bytes of a content's item."""
    return HEADER_BYTES + (len(content) if isinstance(content, bytes) else content.nbytes)


def write(content: Content, view: memoryview) -> None:
    """Writes the item of a content into memory of its size. Raises VideoError for others."""
    kind, shape = _described(content)
    dimensions = [*shape, *[0] * (_MOST_DIMENSIONS - len(shape))]
    _HEADER.pack_into(view, 0, kind, len(shape), *dimensions)
    if isinstance(content, bytes):
        view[HEADER_BYTES:] = content
    else:
        target = np.frombuffer(view, _TYPES[kind], offset=HEADER_BYTES).reshape(shape)
        target[...] = content


def read(view: memoryview) -> Content | None:
    """The content of an item, an array without a copy; None: the end. Raises VideoError."""
    if len(view) < HEADER_BYTES:
        raise VideoError(f"an item of {len(view)} bytes, shorter than its header")
    kind, count, *dimensions = _HEADER.unpack_from(view)
    rest = view[HEADER_BYTES:]
    if kind == Kind.END:
        return None
    if kind == Kind.JPEG:
        return bytes(rest)
    if kind not in _TYPES or count > _MOST_DIMENSIONS:
        raise VideoError(f"an item of the unknown kind {kind} with {count} dimensions")
    shape, type_ = dimensions[:count], _TYPES[Kind(kind)]
    if math.prod(shape) * type_.itemsize != len(rest):
        raise VideoError(f"an item of {len(rest)} bytes that is to be an array of {shape}")
    array: Array = np.frombuffer(rest, type_).reshape(shape)
    return array


def _described(content: Content) -> tuple[Kind, Sequence[int]]:
    if isinstance(content, bytes):
        return Kind.JPEG, ()
    for kind, type_ in _TYPES.items():
        if content.dtype == type_ and content.ndim <= _MOST_DIMENSIONS:
            return kind, content.shape
    raise VideoError(f"an array of {content.ndim} dimensions of {content.dtype} is no item")
