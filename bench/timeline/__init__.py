"""How fast streams become tables, how large those are, and what a report takes."""

from collections.abc import Callable
from typing import Any

from timeline import loop, report, tables
from timeline.recorded import Recorded

FIGURES: dict[str, Callable[[Recorded], dict[str, Any]]] = {
    "decode": tables.decode,
    "parquet": tables.parquet,
    "memory": tables.memory,
    "disk": loop.disk,
    "report": report.measure,
}

LONG = ("memory",)
"""Those that take minutes: measured where they are named."""
