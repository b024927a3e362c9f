"""Text files that are there whole or not at all, and room on a disk that is kept for them.

They are UTF-8 whatever the locale says.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Puts a file in the place of an earlier one when all of it is on the disk.

    Raises OSError, which names the file; then the earlier one is still there.
    """
    draft = path.with_name(f".{path.name}.unfinished")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        # A full disk is noticed where nothing says which file it is.
        raise OSError(error.errno, error.strerror, str(path)) from None


def reserve(path: Path, size: int) -> None:
    """Makes a file of `size` bytes that keeps their room on the disk until it is removed.

    Raises OSError, which names the file, where there is no room.
    """
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None
