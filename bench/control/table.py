"""What the figures of making and controlling runs came to against their targets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from targets import NOT_MEASURED, Row, verdict

UP_S = 1.0
DOWN_S = 0.5
PSS_BYTES = 4 << 20
COMPONENTS_S = 3.0
BARRIER_S = 0.1
CONTROLLER_BYTES = 200 << 20
AROUND_S = 3.0
DEATH_MS = 250
SKEW_US = 100


def _range(values: dict[str, float], unit: str) -> str:
    return "{median:.3g} {unit} ({min:.3g} to {max:.3g})".format(unit=unit, **values)


def _skipped(what: str, target: str, found: dict[str, Any]) -> Row:
    return Row(what, target, NOT_MEASURED, found["skipped"], "")


def _hosts(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found:
        yield _skipped("100 local hosts up", f"{UP_S:g} s", found)
        return
    floor = found["floor_s"]["median"]
    for what, key, target in (("up", "up_s", UP_S), ("down", "down_s", DOWN_S)):
        seconds = found[key]
        ratio = f"{seconds['median'] / floor:.1f} times ip alone" if key == "up_s" else ""
        met = verdict(seconds["median"] <= target)
        name = f"{found['hosts']} local hosts {what}"
        yield Row(name, f"{target:g} s", _range(seconds, "s"), ratio, met)
    pss = {key: value / 2**20 for key, value in found["pss_bytes_per_agent"].items()}
    met = verdict(pss["median"] * 2**20 <= PSS_BYTES)
    yield Row("  memory of an agent (PSS)", "4 MiB", _range(pss, "MiB"), "", met)


def _components(found: dict[str, Any]) -> Iterator[Row]:
    what, target = "1000 components on 100 local hosts started", f"{COMPONENTS_S:g} s"
    if "skipped" in found:
        yield _skipped(what, target, found)
        return
    seconds = found["seconds"]
    yield Row(what, target, _range(seconds, "s"), "", verdict(seconds["median"] <= COMPONENTS_S))


def _barriers(found: dict[str, Any]) -> Iterator[Row]:
    seconds, peak = found["barrier_s"], found["peak_bytes"]
    met = verdict(seconds["median"] <= BARRIER_S)
    what = f"a barrier over {found['agents']} simulated agents"
    yield Row(what, f"{BARRIER_S * 1000:g} ms", _range(seconds, "s"), "", met)
    met = verdict(peak <= CONTROLLER_BYTES)
    yield Row("  memory of the controller", "200 MiB", f"{peak / 2**20:.0f} MiB", "", met)


def _around(found: dict[str, Any]) -> Iterator[Row]:
    what, target = "a run around its measured phase (pipeline)", f"{AROUND_S:g} s"
    if "skipped" in found:
        yield _skipped(what, target, found)
        return
    seconds = found["seconds"]
    yield Row(what, target, _range(seconds, "s"), "", verdict(seconds["median"] <= AROUND_S))


def _death(found: dict[str, Any]) -> Iterator[Row]:
    what, target = "from a component's death to the message", f"{DEATH_MS} ms"
    if "skipped" in found:
        yield _skipped(what, target, found)
        return
    times = found["milliseconds"]
    yield Row(what, target, _range(times, "ms"), "", verdict(times["max"] <= DEATH_MS))


def _skew(found: dict[str, Any]) -> Iterator[Row]:
    what, target = "skew of a common start, p99", f"{SKEW_US} µs"
    if "skipped" in found:
        yield _skipped(what, target, found)
        return
    skew, reported, floor = (
        {
            at: statistics.median(each[which][at] for each in found["rounds"])
            for at in ("p50", "p99")
        }
        for which in ("skew_us", "reported_us", "floor_us")
    )
    what += f" of {found['starts']}, {found['components']} components"
    alone = f"sleeping alone {_skew_of(floor)}"
    yield Row(what, target, _skew_of(skew), alone, verdict(skew["p99"] <= SKEW_US))
    yield Row("  as the manifest has it", "", _skew_of(reported), "", "")


def _skew_of(found: dict[str, float]) -> str:
    return "{p99:.3g} µs (p50 {p50:.3g})".format(**found)


def _scale(found: dict[str, Any]) -> Iterator[Row]:
    for key, links in (("linked", "with emulated links"), ("plain", "without")):
        each = found[key]
        what = f"a run of {each['hosts']} local hosts {links}"
        if "skipped" in each:
            yield _skipped(what, "works", each)
            continue
        packets, met = "", verdict(True)
        if "came" in each:
            packets = f"{each['left']} of {each['came']} packets left the links"
            met = verdict(each["came"] == each["left"] > 0)
        yield Row(what, "works", f"{each['seconds']:.3g} s", packets, met)
        pss = each["pss_bytes_per_agent"]
        met = verdict(pss <= PSS_BYTES)
        yield Row("  memory of an agent (PSS)", "4 MiB", f"{pss / 2**20:.3g} MiB", "", met)


PARTS = {
    "hosts": _hosts,
    "components": _components,
    "barriers": _barriers,
    "around": _around,
    "death": _death,
    "skew": _skew,
    "scale": _scale,
}


def notes(results: dict[str, Any]) -> Iterator[str]:
    """What a reader of the table must know."""
    if "hosts" in results and "skipped" not in results["hosts"]:
        yield (
            "ip alone makes as many namespaces with two links each, without addresses and agents: "
            + _range(results["hosts"]["floor_s"], "s")
        )
