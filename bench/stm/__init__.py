"""What items cost in time, memory and CPU time, by space-time memory and by others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stm import hosts, latency, many, memory, puts, video

FIGURES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "stm-latency": latency.measure,
    "stm-hosts": hosts.measure,
    "stm-puts": puts.measure,
    "stm-many": many.measure,
    "stm-memory": memory.measure,
    "stm-video": video.measure,
}
