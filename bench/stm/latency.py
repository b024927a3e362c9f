"""Latencies of items from thread to thread: `src/main.rs` says what each kind is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from targets import spread

from stm import program

# By kind: how many items, and the kind that it is compared with.
KINDS = {
    "polled-bare": (20_000, ""),
    "polled-look": (20_000, "polled-bare"),
    "polled-unseen": (20_000, "polled-bare"),
    "polled-iceoryx2": (20_000, "polled-bare"),
    "polled-4k-bare": (20_000, ""),
    "polled-4k-look": (20_000, "polled-4k-bare"),
    "polled-4k-iceoryx2": (20_000, "polled-4k-bare"),
    "blocked-futex": (4000, ""),
    "blocked-get": (4000, "blocked-futex"),
    "blocked-iceoryx2": (4000, "blocked-futex"),
    "blocked-eventfd": (4000, "blocked-futex"),
    "blocked-pipe": (4000, "blocked-futex"),
}
PARTS = ("p50_ns", "p99_ns", "p999_ns")


def measure(folder: Path) -> dict[str, Any]:
    """By kind: percentiles of ns, and what they are more than the floor's of the same round."""
    return program.measured("stm-latency", KINDS, summary)


def summary(
    kind: str, values: program.Values, kinds: Mapping[str, tuple[int, str]] = KINDS
) -> dict[str, Any]:
    """The rounds' medians and ranges; ratios are to the floor of the same round."""
    each = values[kind]
    summed: dict[str, Any] = {part: spread(each[part]) for part in PARTS}
    floor = values.get(kinds[kind][1])
    if floor is not None:
        summed["more_ns"] = spread(
            [mine - its for mine, its in zip(each["p50_ns"], floor["p50_ns"], strict=False)]
        )
        for part in PARTS:
            pairs = zip(each[part], floor[part], strict=False)
            summed[f"{part}_ratio"] = spread([mine / its for mine, its in pairs])
    return summed
