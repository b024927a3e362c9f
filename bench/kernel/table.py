"""What the kernel's figures came to against their targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from targets import Row, verdict

EVENT_NS = 300
SHARE = 0.05
RATE = 1_000_000
WHY_S = 5


def _loop(found: dict[str, Any]) -> Iterator[Row]:
    for kind, each in found["kinds"].items():
        p50, p99 = each["p50_ns"], each["p99_ns"]
        measured = f"p50 {p50['median'] / 1e3:.1f} µs, p99 {p99['median'] / 1e3:.1f} µs"
        if kind.partition(",")[0] == "off":
            what = "pipeline, no kernel events" + kind.removeprefix("off")
            yield Row(what, "", measured, "", "")
            continue
        ratio, tail = each["p50_ns_ratio"], each["p99_ns_ratio"]
        ratios = "p50 {median:.3f} ({min:.3f} to {max:.3f})".format(**ratio)
        ratios += f", p99 {tail['median']:.3f}"
        target = f"{100 * SHARE:g} % of p50" if kind == "auto" else ""
        met = verdict(ratio["median"] <= 1 + SHARE) if kind == "auto" else ""
        name = kind if kind.endswith(" record") else f"kernel: {kind}"
        yield Row(f"pipeline, {name}", target, measured, ratios, met)
        if "event_ns" in each:
            cost = each["event_ns"]["median"]
            size = each["bytes"]["median"] / each["events"]["median"]
            count = each["events"]["median"] / found["messages"]
            text = f"{cost:.0f} ns an event, {count:.0f} events a message, {size:.0f} B each"
            yield Row("  of it", f"{EVENT_NS} ns", text, "", verdict(cost <= EVENT_NS))


def _drain(found: dict[str, Any]) -> Iterator[Row]:
    for each in found.get("rates", ()):
        asked = each["asked"]
        measured = f"{each['made'] / 1e6:.2f} M/s made, {each['dropped']} dropped"
        target = "no loss" if asked <= RATE else ""
        met = verdict(each["dropped"] == 0) if asked <= RATE else ""
        yield Row(f"{asked / 1e6:g} M system call events/s of a core", target, measured, "", met)


def _why(found: dict[str, Any]) -> Iterator[Row]:
    if "seconds" not in found:
        return
    floor = found["seconds"]["floor"]["median"]
    what = f"{found['messages']} messages, {found['events'] / 1e6:.1f} M kernel events"
    for name, each in found["seconds"].items():
        seconds = each["median"]
        measured = f"{seconds:.2f} s ({each['min']:.2f} to {each['max']:.2f})"
        if name == "floor":
            yield Row(f"DuckDB reads the switches and wakings of {what}", "", measured, "", "")
            continue
        target = f"{WHY_S} s" if name == "worst 10" else ""
        met = verdict(seconds <= WHY_S) if target else ""
        yield Row(f"why, {name}: {what}", target, measured, f"{seconds / floor:.1f}", met)


PARTS = {"kernel-loop": _loop, "kernel-drain": _drain, "kernel-why": _why}


def notes(found: dict[str, Any]) -> Iterator[str]:
    for figure, each in found.items():
        skipped = each.get("skipped")
        if isinstance(skipped, str):
            yield f"{figure}: {skipped}"
        elif skipped:
            yield from (f"{figure}, {kind}: {why}" for kind, why in skipped.items())
