"""The host side's program, and the environment in which it is started."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from loopscope.provider import TestbedError


def dormant() -> dict[str, str]:
    """The environment for a program of loopscope's own: its instrumentation waits for no attach.

    It would leave its place to wait behind when the program is killed.
    """
    return {**os.environ, "LOOPSCOPE_RUNTIME_DIR": ""}


def host_binary() -> Path:
    """The loopscope-host that belongs to this installation."""
    prefix = Path(sys.prefix)
    for directory in (prefix / "bin", prefix.parent.parent / "bin"):
        if (directory / "loopscope-host").is_file():
            return directory / "loopscope-host"
    found = shutil.which("loopscope-host")
    if found is None:
        raise TestbedError(
            "loopscope-host is neither beside this Python nor in PATH; build it with: make build"
        )
    return Path(found)
