"""Puts to another host's channel by their size: `src/puts.rs` says how they are measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from targets import spread

from stm import program

COUNT = 2000
SIZES = (64, 1024, 4096, 16_384, 65_536, 262_144)


def measure(folder: Path) -> dict[str, Any]:
    """By kind: times, the rate, and its share of that of messages with an answer over TCP."""
    kinds = {f"puts-{by}-{size}": (COUNT, "") for size in SIZES for by in ("tcp", "stm")}
    return program.measured("stm-puts", kinds, summary)


def summary(kind: str, values: program.Values) -> dict[str, Any]:
    """The rounds' medians and ranges; `share`: of the rate of messages in the same round."""
    each = values[kind]
    summed: dict[str, Any] = {part: spread(those) for part, those in each.items()}
    floor = values.get(kind.replace("-stm-", "-tcp-"))
    if "-stm-" in kind and floor is not None:
        pairs = zip(each["mb_per_s"], floor["mb_per_s"], strict=False)
        summed["share"] = spread([its / tcp for its, tcp in pairs])
    return summed
