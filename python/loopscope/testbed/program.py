"""The host side's program, and the environment in which it is started."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from loopscope.provider import TestbedError

PRELOAD = "lib/libloopscope_preload.so"
"""The library for LD_PRELOAD, by its path below the prefix."""


def dormant() -> dict[str, str]:
    """The environment for a program of loopscope's own: its instrumentation waits for no attach.

    It would leave its place to wait behind when the program is killed.
    """
    return {**os.environ, "LOOPSCOPE_RUNTIME_DIR": ""}


def _installed(name: str) -> Path | None:
    """A file of this installation, by its path below the prefix."""
    prefix = Path(sys.prefix)
    # `make install` puts the virtual environment two folders below its prefix.
    places = (prefix / name, prefix.parent.parent / name)
    return next((place for place in places if place.is_file()), None)


def preload_library() -> Path:
    """The library for LD_PRELOAD that belongs to this installation. Raises TestbedError."""
    if (found := preload_library_or_none()) is None:
        raise TestbedError(
            f"{Path(PRELOAD).name} is not in {Path(sys.prefix) / 'lib'}, nor with a loopscope-host "
            "in PATH; build it with: make build"
        )
    return found


def preload_library_or_none() -> Path | None:
    """The same; None where it is not installed."""
    places = [_installed(PRELOAD)]
    if found := shutil.which("loopscope-host"):
        places.append(Path(found).resolve().parent.parent / PRELOAD)
    return next((place for place in places if place is not None and place.is_file()), None)


def host_binary() -> Path:
    """The loopscope-host that belongs to this installation."""
    if (own := _installed("bin/loopscope-host")) is not None:
        return own
    found = shutil.which("loopscope-host")
    if found is None:
        raise TestbedError(
            "loopscope-host is neither beside this Python nor in PATH; build it with: make build"
        )
    return Path(found)
