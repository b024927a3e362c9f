"""Text files that are there whole or not at all, in UTF-8 whatever the locale says."""

from __future__ import annotations

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
