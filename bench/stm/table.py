"""What space-time memory came to against its targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from targets import NOT_MEASURED, Row, verdict

# The median of a polled small item, and how its tail may compare with bare polling.
POLLED_NS = 200
TAIL = 1.5
# More than the floor, at the median.
COPIED_NS = 100
WOKEN_NS = 1000


def _latency(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("items from thread to thread", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        measured = " / ".join(f"{each[part]['median']:.0f}" for part in _PARTS) + " ns"
        ratio = f"p50 {each['p50_ns_ratio']['median']:.2f}" if "p50_ns_ratio" in each else ""
        target, met = _judged(kind, each)
        yield Row(kind, target, measured, ratio, met)
        if kind == "polled-look" and "p999_ns_ratio" in each:
            tail = each["p999_ns_ratio"]["median"]
            name = f"{TAIL:g} of bare polling"
            yield Row("  p99.9", name, "", f"{tail:.2f}", verdict(tail <= TAIL))


def _judged(kind: str, each: dict[str, Any]) -> tuple[str, str]:
    """The target of a kind, and whether it is met."""
    if kind == "polled-look":
        return f"{POLLED_NS} ns", verdict(each["p50_ns"]["median"] <= POLLED_NS)
    more = {"polled-4k-look": COPIED_NS, "blocked-get": WOKEN_NS}.get(kind)
    if more is None or "more_ns" not in each:
        return "", ""
    return f"floor + {more} ns", verdict(each["more_ns"]["median"] <= more)


_PARTS = ("p50_ns", "p99_ns", "p999_ns")


def notes(found: dict[str, Any]) -> Iterator[str]:
    """What is to be known of the figures."""
    for kind, why in _skipped(found).items():
        yield f"{kind} was left out: {why}"


def _skipped(found: dict[str, Any]) -> dict[str, str]:
    skipped = found.get("stm-latency", {}).get("skipped", {})
    return skipped if isinstance(skipped, dict) else {}


PARTS = {"stm-latency": _latency}
