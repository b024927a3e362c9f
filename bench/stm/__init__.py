"""How long an item is on its way, by space-time memory and by others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stm import hosts, latency

FIGURES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "stm-latency": latency.measure,
    "stm-hosts": hosts.measure,
}
