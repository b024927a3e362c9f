"""LTTng on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# `alone.sh HOME COMMAND…`, in a mount namespace: with a session daemon of its own.
ALONE = ["unshare", "--mount", Path(__file__).resolve().parent / "lttng" / "alone.sh"]


def missing(*tools: str) -> str | None:
    """What LTTng's tests lack here, and those tools."""
    for tool in ("lttng", "lttng-sessiond", "unshare", *tools):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    if not list(Path("/usr/include").glob("**/lttng/tracepoint.h")):
        return "needs lttng/tracepoint.h (liblttng-ust-dev)"
    if os.geteuid() != 0:
        return "needs root, for namespaces"
    return None
