"""Items of 4 kB between two hosts over TCP: `src/hosts.rs` says how they are measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from targets import spread

from stm import program

# By kind: how many items, and the kind that it is compared with.
KINDS = {
    "hosts-ping-tcp": (5000, ""),
    "hosts-ping-stm": (5000, "hosts-ping-tcp"),
    "hosts-ping-zenoh": (5000, "hosts-ping-tcp"),
    "hosts-stream-tcp": (20_000, ""),
    "hosts-stream-stm": (20_000, "hosts-stream-tcp"),
    "hosts-stream-zenoh": (20_000, "hosts-stream-tcp"),
}


def measure(folder: Path) -> dict[str, Any]:
    """By kind: times of a round trip or the rate, and their share of what TCP alone comes to."""
    return program.measured("stm-hosts", KINDS, summary)


def summary(kind: str, values: program.Values) -> dict[str, Any]:
    """The rounds' medians and ranges; `share`: of the speed of TCP in the same round."""
    each = values[kind]
    summed: dict[str, Any] = {part: spread(those) for part, those in each.items()}
    floor = values.get(KINDS[kind][1])
    if floor is not None:
        part = "p50_us" if "p50_us" in each else "items_per_s"
        pairs = list(zip(each[part], floor[part], strict=False))
        is_time = part == "p50_us"
        summed["share"] = spread([tcp / its if is_time else its / tcp for its, tcp in pairs])
    return summed
