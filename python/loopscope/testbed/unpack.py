"""Files of a host that is not trusted, out of a tar stream."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

DEEPEST = 32
LONGEST_NAME = 255


class UnpackError(Exception):
    """The stream has what no host of loopscope writes; the text says what."""


def unpack(stream: BinaryIO, folder: Path, name: str) -> int:
    """Writes the files of a stream below ``folder/name``, which need not be there; their bytes.

    Raises UnpackError for anything but plain files and folders below ``name``, tarfile.TarError
    for what is no archive or ends early, and OSError.
    """
    size = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            place = folder / _within(member.name, name)
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                raise UnpackError(f"{member.name!r} is neither a file nor a folder")
            place.parent.mkdir(parents=True, exist_ok=True)
            # Whatever is in its place already is an error: a file comes once.
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with open(descriptor, "wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            size += member.size
    return size


def _within(member: str, name: str) -> PurePosixPath:
    path = PurePosixPath(member)
    parts = path.parts
    if path.is_absolute() or not parts or parts[0] != name or ".." in parts:
        raise UnpackError(f"{member!r} is not in {name!r}")
    if len(parts) > DEEPEST or any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise UnpackError(f"{member[:80]!r} is too long a path")
    if not member.isprintable():
        raise UnpackError(f"{member!r} has characters that cannot be printed")
    return path
