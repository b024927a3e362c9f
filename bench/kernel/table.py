"""What the kernel's figures came to against their targets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from targets import Row, verdict

EVENT_NS = 300
DEFAULTS = ("auto", "auto, no root")
"""What is recorded where an experiment says nothing: what that may cost has a target."""
SHARE = 0.05
RATE = 1_000_000
WHY_S = 5


def _loop(found: dict[str, Any]) -> Iterator[Row]:
    for kind, each in found.get("kinds", {}).items():
        measured = f"p50 {each['p50_ns']['median'] / 1e3:.1f} µs, "
        measured += f"p99 {each['p99_ns']['median'] / 1e3:.1f} µs, CPU {_percent(each['cpu'])}"
        if kind.partition(",")[0] == "off":
            what = "pipeline, no kernel events" + kind.removeprefix("off")
            yield Row(what, "", measured, "", "")
            continue
        ratio, tail = each["p50_ns_ratio"], each["p99_ns_ratio"]
        ratios = "p50 {median:.3f} ({min:.3f} to {max:.3f})".format(**ratio)
        ratios += f", p99 {tail['median']:.3f}"
        judged = kind in DEFAULTS
        target = f"{100 * SHARE:g} % of p50" if judged else ""
        met = verdict(ratio["median"] <= 1 + SHARE) if judged else ""
        name = kind if " record: " in kind else f"kernel: {kind}"
        yield Row(f"pipeline, {name}", target, measured, ratios, met)
        p50, p99 = (_added(each[f"{which}_ns_added"], 1e-3) for which in ("p50", "p99"))
        cpu = _added(each["cpu_added"], 100)
        yield Row("  added", "", f"p50 {p50} µs, p99 {p99} µs, CPU {cpu} %", "", "")
        if each.get("events", {}).get("median"):
            yield _recorded(each, found["messages"])
        for classes, cost in _costs(each["event_ns"]):
            text = "{median:.0f} ns ({min:.0f} to {max:.0f})".format(**cost)
            met = verdict(cost["median"] <= EVENT_NS)
            yield Row(f"  an event of {classes}", f"{EVENT_NS} ns", text, "", met)


def _recorded(each: dict[str, Any], messages: int) -> Row:
    """The events and bytes of a kind of recording."""
    events, size = each["events"]["median"], each["bytes"]["median"]
    text = f"{events / messages:.0f} events a message, {size / events:.0f} B each, "
    return Row("  recorded", "", text + f"{each['dropped']['max']:.0f} dropped", "", "")


def _costs(costs: dict[str, dict[str, float]]) -> Iterator[tuple[str, dict[str, float]]]:
    """The costs of an event by classes: those that were measured as one are told as one."""
    for cost in {tuple(each.values()): each for each in costs.values()}.values():
        yield ", ".join(name for name, each in costs.items() if each == cost), cost


def _added(added: dict[str, Any], scale: float) -> str:
    """By how much more, with the interval of that."""
    text = f"{scale * added['median']:+.1f}"
    if added["low"] is None:
        return text
    return f"{text} ({scale * added['low']:+.1f} to {scale * added['high']:+.1f})"


def _percent(share: dict[str, float]) -> str:
    return f"{100 * share['median']:.1f} %"


def _drain(found: dict[str, Any]) -> Iterator[Row]:
    for each in found.get("rates", ()):
        asked = each["asked"]
        measured = f"{each['made'] / 1e6:.2f} M/s made, {each['dropped']} dropped"
        measured += f", {each['event_bytes']:.0f} B each"
        target = "no loss" if asked <= RATE else ""
        met = verdict(each["dropped"] == 0) if asked <= RATE else ""
        yield Row(f"{asked / 1e6:g} M system call events/s of a core", target, measured, "", met)


def _unmeasured(found: dict[str, Any]) -> Iterator[Row]:
    for kind, each in found.get("kinds", {}).items():
        calls = ("getppid", "read")
        medians = [f"{call} {each[f'{call}_ns']['median']:.0f} ns" for call in calls]
        what = f"system calls of a program that is not measured, {kind}"
        if f"{calls[0]}_ns_added" not in each:
            yield Row(what, "", ", ".join(medians), "", "")
            continue
        more = [f"{call} {_added(each[f'{call}_ns_added'], 1)} ns" for call in calls]
        yield Row(what, "", ", ".join(medians), ", ".join(more), "")
        if "events" in each:
            text = "{median:.0f} events".format(**each["events"])
            yield Row("  recorded", "", f"{text}, {each['dropped']['max']:.0f} dropped", "", "")


def _why(found: dict[str, Any]) -> Iterator[Row]:
    if "seconds" not in found:
        return
    every = found["seconds"]
    floor = every["floor"]["median"] if "floor" in every else math.nan
    what = f"{found['messages']} messages, {found['events'] / 1e6:.1f} M kernel events"
    for name, each in every.items():
        seconds = each["median"]
        measured = f"{seconds:.2f} s ({each['min']:.2f} to {each['max']:.2f})"
        if name == "floor":
            yield Row(f"DuckDB reads the switches and wakings of {what}", "", measured, "", "")
            continue
        target = f"{WHY_S} s" if name == "worst 10" else ""
        met = verdict(seconds <= WHY_S) if target else ""
        yield Row(f"why, {name}: {what}", target, measured, f"{seconds / floor:.1f}", met)


PARTS = {
    "kernel-loop": _loop,
    "kernel-drain": _drain,
    "kernel-unmeasured": _unmeasured,
    "kernel-why": _why,
}


def notes(found: dict[str, Any]) -> Iterator[str]:
    for figure, each in found.items():
        skipped = each.get("skipped")
        if isinstance(skipped, str):
            yield f"{figure}: {skipped}"
        elif skipped:
            yield from (f"{figure}, {kind}: {why}" for kind, why in skipped.items())
