"""Latencies with many channels or many consumers: `src/many.rs` says what each kind is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stm import latency, program

# By kind: how many items, and the kind that it is compared with.
KINDS = {
    "many-none": (20_000, ""),
    "many-channels": (20_000, "many-none"),
    "many-in-turn": (20_000, "many-none"),
    "many-consumers": (20_000, "many-none"),
}


def measure(folder: Path) -> dict[str, Any]:
    """By kind: percentiles of ns, and their ratios to one channel's with one consumer."""
    return program.measured(
        "stm-many", KINDS, lambda kind, values: latency.summary(kind, values, KINDS)
    )
