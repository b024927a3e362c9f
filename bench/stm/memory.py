"""The memory of a channel that is full of items: `src/memory.rs` says how it is measured."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from targets import spread

from stm import program

# By bytes of an item: how many items.
ITEMS = {64: 1024, 300_000: 8, 6_220_800: 4}
CONNECTIONS = (1, 16, 100)
KINDS = {
    f"memory-{tight}{size}-{connections}": (count, "")
    for tight, connections in [*product(("",), CONNECTIONS), ("tight-", 16)]
    for size, count in ITEMS.items()
}
# What is taken besides the items: a share of these, for a channel, and for each connection.
SHARE = 0.125
CHANNEL = 64 << 10
CONNECTION = 1 << 10


def measure(folder: Path) -> dict[str, Any]:
    """By kind: bytes, and their ratio to what the target allows."""
    return program.measured("stm-memory", KINDS, summary)


def summary(kind: str, values: program.Values) -> dict[str, Any]:
    """The rounds' medians and ranges; `total`: both files and what else the process has for it."""
    each = dict(values[kind])
    parts = ("live", "spare", "control", "process")
    each["total"] = [sum(of) for of in zip(*(each[part] for part in parts), strict=True)]
    each["allowed"] = [
        live * (1 + SHARE) + CHANNEL + CONNECTION * connections
        for live, connections in zip(each["live"], each["connections"], strict=True)
    ]
    return {part: spread(those) for part, those in each.items()}
