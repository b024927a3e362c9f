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
# The share of the speed of TCP alone that items between hosts may come to.
SHARE = 0.98


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


def _hosts(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("items between hosts", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        ratio, target, met = "", "", ""
        if "share" in each:
            ratio = "TCP {median:.1%} ({min:.1%} to {max:.1%})".format(**each["share"])
            if kind.endswith("-stm"):
                target = f"TCP {SHARE:.0%}"
                met = verdict(each["share"]["median"] >= SHARE)
        yield Row(kind, target, _speed(each), ratio, met)


def _speed(each: dict[str, Any]) -> str:
    if "p50_us" in each:
        return " / ".join(f"{each[part]['median']:.1f}" for part in ("p50_us", "p99_us")) + " µs"
    rate, size = (each[part]["median"] for part in ("items_per_s", "mb_per_s"))
    return f"{rate / 1000:.1f} k items/s, {size:.0f} MB/s"


def notes(found: dict[str, Any]) -> Iterator[str]:
    """What is to be known of the figures."""
    for figure in PARTS:
        skipped = found.get(figure, {}).get("skipped", {})
        for kind, why in skipped.items() if isinstance(skipped, dict) else ():
            yield f"{kind} was left out: {why}"


PARTS = {"stm-latency": _latency, "stm-hosts": _hosts}
