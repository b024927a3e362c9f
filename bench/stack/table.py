"""What the user-mode TCP stack came to against its targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from targets import NOT_MEASURED, Row, verdict

# The stack's round trip by the kernel's, where its sockets sleep: at the median, and p99.9; and at
# the median where they are asked until there is something.
BLOCKING = {"p50_us": 0.2, "p999_us": 0.25}
SPINNING = {"p50_us": 0.8}
UDP = {"p50_us": 0.2, "p999_us": 0.25}
# A library that has threads sleep at once is to be no slower than the kernel, and no quicker.
SLEEPS = "-block"
# The stack's Gbit/s by the kernel's without segmentation offload.
UNSEGMENTED = 1.0
# The rate of requests over 10 000 connections by the kernel's, where both ends take all of their
# processors.
MANY = 1.0
# A message whose last segment was lost: ms until the answer.
LOST_MS = 5.0
# Percent of a CPU that a program takes which waits.
IDLE = 0.1
# Datagrams of others: the time by that with an XDP program which passes all.
OTHERS = 1.02


def _over_tcp(found: dict[str, Any]) -> Iterator[Row]:
    return _round_trips(found, "TCP", {"blocking": BLOCKING, "spinning": SPINNING})


def _over_udp(found: dict[str, Any]) -> Iterator[Row]:
    return _round_trips(found, "UDP", {"udp-blocking": UDP, "udp-spinning": SPINNING})


def _round_trips(
    found: dict[str, Any], protocol: str, judged_by: dict[str, dict[str, float]]
) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row(f"64 B there and back over {protocol}", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        times = " / ".join(f"{each[part]['median']:.1f}" for part in ("p50_us", "p99_us"))
        times += f" / {each['p999_us']['median']:.0f} µs, {each['cpu_us']['median']:.0f} µs of CPU"
        yield Row(f"64 B there and back over {protocol}, {kind}", "", times, "", "")
    for stack, ratios in found["ratios"].items():
        for kind, targets in judged_by.items():
            for part, target in targets.items():
                if (ratio := ratios.get(kind, {}).get(part)) is None:
                    continue
                name = "p50" if part == "p50_us" else "p99.9"
                if stack.endswith(SLEEPS):
                    yield Row(f"  {name} of {stack}", f"of {kind}", "", _said(ratio), "")
                    continue
                judged = verdict(ratio["median"] <= target)
                yield Row(f"  {name} of {stack}", f"{target:g} of {kind}", "", _said(ratio), judged)


def _bulk(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("one stream", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        measured = "{:.1f} Gbit/s".format(each["gbit_per_s"]["median"])
        measured += ", {:.2f} CPUs".format(each["cpus"]["median"])
        yield Row(f"one stream, {kind}", "", measured, "", "")
    for stack, ratios in found["ratios"].items():
        for kind, each in ratios.items():
            ratio, is_judged = each["gbit_per_s"], kind == "unsegmented-bulk"
            target = f"{UNSEGMENTED:g} of {kind}" if is_judged else f"of {kind}"
            judged = verdict(ratio["median"] >= UNSEGMENTED) if is_judged else ""
            yield Row(f"  {stack}", target, "", _said(ratio), judged)


def _many(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("requests over many connections", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        value = {part: spread["median"] for part, spread in each.items()}
        measured = "{per_s:,.0f} a second, {p50_us:.0f} / {p99_us:.0f} µs, ".format(**value)
        measured += "{cpu_us:.1f} µs of CPU each".format(**value)
        yield Row(f"requests over many connections, {kind}", "", measured, "", "")
    last = max(found["ratios"], key=int, default="")
    for count, each in found["ratios"].items():
        rate = each["per_s"]
        judged = verdict(rate["median"] >= MANY) if count == last else ""
        target = f"{MANY:g} of kernel {count}" if judged else f"of kernel {count}"
        yield Row(f"  rate of unmodified {count}", target, "", _said(rate), judged)
        yield Row(
            f"  p99 of unmodified {count}", f"of kernel {count}", "", _said(each["p99_us"]), ""
        )


def _lost(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("a lost last segment", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        name, size, least_us = kind.split()
        value = {part: spread["median"] for part, spread in each.items()}
        measured = "{p50_ms:.2f} / {p90_ms:.2f} / {max_ms:.2f} ms".format(**value)
        which = f"{int(size):,} B, least time-out {int(least_us) // 1000} ms, {name}"
        judged = "" if name == "kernel" else verdict(value["p90_ms"] <= LOST_MS)
        target = f"p90 {LOST_MS:g} ms" if judged else ""
        yield Row(f"a lost last segment, {which}", target, measured, "", judged)
    for case, each in found["ratios"].items():
        yield Row(f"  unmodified {case}", f"of kernel {case}", "", _said(each), "")


def _idle(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("a program that waits", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        taken = each["cpu_percent"]["median"]
        judged = verdict(taken < IDLE) if kind == "unmodified" else ""
        target = f"below {IDLE:g} % of a CPU" if judged else ""
        yield Row(f"a program that waits, {kind}", target, f"{taken:.3f} %", "", judged)


def _others(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("traffic of others", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        value = {part: spread["median"] for part, spread in each.items()}
        measured = "{ns:.0f} ns for a datagram, {gbit_per_s:.1f} Gbit/s".format(**value)
        yield Row(f"traffic of others, {kind}", "", measured, "", "")
    for kind, each in found["ratios"].items():
        judged = verdict(each["ns"]["median"] <= OTHERS) if kind == "xdp" else ""
        target = f"{OTHERS:g} of {kind}" if judged else f"of {kind}"
        yield Row("  datagram with the service", target, "", _said(each["ns"]), judged)
        yield Row("  stream with the service", f"of {kind}", "", _said(each["gbit_per_s"]), "")


def _floor(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found and isinstance(found["skipped"], str):
        yield Row("64 B there and back into memory", "", NOT_MEASURED, "", found["skipped"])
        return
    for kind, each in found["kinds"].items():
        times = " / ".join(f"{each[part]['median']:.1f}" for part in ("p50_us", "p99_us"))
        times += f" / {each['p999_us']['median']:.0f} µs"
        yield Row(f"64 B there and back into memory, {kind}", "", times, "", "")
    if "ratio" in found:
        yield Row("  p50 of ring", "of socket", "", _said(found["ratio"]), "")


def _said(ratio: dict[str, float]) -> str:
    return "{median:.2f} ({min:.2f} to {max:.2f})".format(**ratio)


def notes(found: dict[str, Any]) -> Iterator[str]:
    """What is to be known of the figures."""
    for figure in PARTS:
        skipped = found.get(figure, {}).get("skipped", {})
        for kind, why in skipped.items() if isinstance(skipped, dict) else ():
            yield f"{kind} was left out: {why}"


PARTS = {
    "stack-round-trip": _over_tcp,
    "stack-udp-round-trip": _over_udp,
    "stack-bulk": _bulk,
    "stack-many": _many,
    "stack-lost": _lost,
    "stack-idle": _idle,
    "stack-others": _others,
    "stack-floor": _floor,
}
