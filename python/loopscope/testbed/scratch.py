"""Folders for the sockets of this machine's side of connections."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

# All of a user's folders begin so; another program's do not.
PREFIX = "loopscope-desk-"


class Scratch:
    """A folder of this user's alone, with a lock that ends with this process.

    It is in the shortest place, because names of sockets have 107 bytes.
    """

    def __init__(self) -> None:
        """Makes it. Raises OSError."""
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def remove(self) -> None:
        """Removes it with what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep() -> list[Path]:
    """Removes the folders that killed processes of this user left; returns them."""
    removed = []
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(lock).st_uid != os.geteuid():
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
            removed.append(path)
        except OSError:
            # It is in use, or there are no locks.
            continue
        finally:
            os.close(lock)
    return removed
