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
# The median with many channels or consumers, by that with one of each.
MANY = 2
# Per cent of a CPU that items of pictures may take, and the share of a picture's bytes that may be
# touched where none was written: the kernel maps some pages at a time.
VIDEO_CPU = 1
VIDEO_TOUCHED = 0.05
VIDEO_KB = 6220.8


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
    if kind.startswith("many-"):
        if "p50_ns_ratio" not in each:
            return "", ""
        return f"{MANY} of many-none", verdict(each["p50_ns_ratio"]["median"] <= MANY)
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


def _puts(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("puts to another host", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        times = " / ".join(f"{each[part]['median']:.1f}" for part in ("p50_us", "p99_us"))
        measured = f"{times} µs, {each['mb_per_s']['median']:.1f} MB/s"
        ratio, target, met = "", "", ""
        if "share" in each:
            ratio = "TCP {median:.1%} ({min:.1%} to {max:.1%})".format(**each["share"])
            if kind.endswith("-4096"):
                target, met = f"TCP {SHARE:.0%}", verdict(each["share"]["median"] >= SHARE)
        yield Row(kind, target, measured, ratio, met)


def _speed(each: dict[str, Any]) -> str:
    if "p50_us" in each:
        return " / ".join(f"{each[part]['median']:.1f}" for part in ("p50_us", "p99_us")) + " µs"
    rate, size = (each[part]["median"] for part in ("items_per_s", "mb_per_s"))
    return f"{rate / 1000:.1f} k items/s, {size:.0f} MB/s"


def _memory(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("memory of a channel", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        kb = {part: each[part]["median"] / 1000 for part in each}
        parts = ", ".join(f"{kb[part]:.0f} {part}" for part in ("live", "spare", "control"))
        parts += f" ({kb['log']:.0f} log), {kb['process']:.0f} process"
        target, ratio = f"{kb['allowed']:.0f} kB", f"{kb['total'] / kb['allowed']:.2f}"
        met = verdict(kb["total"] <= kb["allowed"])
        yield Row(kind, target, f"{kb['total']:.0f} kB: {parts}", ratio, met)


def _video(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("pictures for three processes", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        if kind.startswith("video-put-"):
            yield _put(kind, each)
            continue
        cpu, picture, put = (
            each[part]["median"] for part in ("cpu_percent", "picture_us", "put_us")
        )
        measured = f"{cpu:.2f} % of a CPU, {picture:.0f} µs a picture, put {put:.0f} µs"
        ratio = f"pipe {each['ratio']['median']:.1%}" if "ratio" in each else ""
        is_judged = kind == "video-6m"
        target = f"{VIDEO_CPU} % of a CPU" if is_judged else ""
        yield Row(kind, target, measured, ratio, verdict(cpu <= VIDEO_CPU) if is_judged else "")
        if kind == "video-blank":
            touched = [each[part]["max"] for part in ("put_touched_kb", "got_touched_kb")]
            share = max(touched) / VIDEO_KB
            measured = "{:.0f} and {:.0f} kB of the slots".format(*touched)
            met = verdict(share <= VIDEO_TOUCHED)
            yield Row("  touched by put and get", "no copy", measured, f"picture {share:.1%}", met)


def _put(kind: str, each: dict[str, Any]) -> Row:
    measured = "put {median:.2f} µs ({min:.2f} to {max:.2f})".format(**each["put_us"])
    more = each.get("more_us")
    if more is None:
        return Row(kind, "", measured, "", "")
    ratio = f"{more['median']:+.2f} µs"
    if more["low"] is None:
        return Row(kind, "", measured, ratio, "")
    ratio += f" ({more['low']:+.2f} to {more['high']:+.2f})"
    # What was written has displaced what a put needs from the caches.
    if kind == "video-put-written":
        return Row(kind, "", measured, ratio, "")
    return Row(kind, "as 64k", measured, ratio, verdict(more["low"] <= 0))


def notes(found: dict[str, Any]) -> Iterator[str]:
    """What is to be known of the figures."""
    for figure in PARTS:
        skipped = found.get(figure, {}).get("skipped", {})
        for kind, why in skipped.items() if isinstance(skipped, dict) else ():
            yield f"{kind} was left out: {why}"


PARTS = {
    "stm-latency": _latency,
    "stm-hosts": _hosts,
    "stm-puts": _puts,
    "stm-many": _latency,
    "stm-memory": _memory,
    "stm-video": _video,
}
