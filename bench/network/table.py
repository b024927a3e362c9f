"""What the network's figures came to against their targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from targets import NOT_MEASURED, Row, verdict


def _us(value: dict[str, float]) -> str:
    return "{median:.1f} µs ({min:.1f} to {max:.1f})".format(**value)


def _intervals(found: dict[str, Any]) -> Iterator[Row]:
    pace, peer, floor = found["pace"], found["iperf3"], found["floor"]
    for part, target in (("p50", 2), ("p99", 20)):
        yield Row(
            f"pace, 10 000 packets/s, interval's error, {part}",
            f"{target} µs",
            _us(pace[part]),
            f"iperf3 -u {peer[part]['median']:.1f} µs, clock alone {floor[part]['median']:.1f} µs",
            verdict(pace[part]["median"] <= target),
        )
    times = found["iperf3_to_pace_p99"]
    yield Row(
        "  p99 against iperf3 -u",
        "30 times lower",
        "",
        "{median:.1f} times ({min:.1f} to {max:.1f})".format(**times),
        verdict(times["median"] >= 30),
    )


def _stalls(found: dict[str, Any]) -> Iterator[Row]:
    yield Row(
        f"pace after a stall of {found['stall_ms']:.0f} ms, {found['stalls']} times",
        "burst of 2 packets at most",
        f"longest burst {found['longest_burst']}",
        f"iperf3 -u {found['iperf3_longest_burst']}",
        verdict(found["longest_burst"] <= 2),
    )
    off = found["sent"] + found["skipped"] - found["ideal"]
    yield Row(
        f"  its packets in {found['seconds']} s",
        "ideal less skipped, within 1",
        f"{found['sent']} + {found['skipped']} skipped, ideal {found['ideal']}",
        f"{off:+d}; {found['seen']} seen",
        verdict(abs(off) <= 1 and found["seen"] == found["sent"]),
    )


def _rates(found: dict[str, Any]) -> Iterator[Row]:
    ours, theirs = found["pace"], found["iperf3"]
    yield Row(
        "pace, largest rate steady within 0.1 % each second",
        "iperf3 -u's",
        f"{ours:,} packets/s".replace(",", " "),
        f"iperf3 -u {theirs:,}".replace(",", " "),
        verdict(ours >= theirs),
    )


def _delays(found: dict[str, Any]) -> Iterator[Row]:
    for wait, said, target in (("sleep", "sleeping", 60), ("spin", "spinning", 20)):
        each = found[wait]
        median = max(each, key=lambda delay: float(each[delay]["p50"]))
        p99 = max(each, key=lambda delay: float(each[delay]["p99"]))
        lost = sum(values["lost"] for values in each.values())
        yield Row(
            f"emulated delay, {said}, error",
            f"median 5 µs, p99 {target} µs",
            f"median {each[median]['p50']:.1f} µs ({median}), "
            f"p99 {each[p99]['p99']:.1f} µs ({p99})",
            f"{found['mover']}; lost {lost}",
            verdict(each[median]["p50"] <= 5 and each[p99]["p99"] <= target and not lost),
        )


def _impairments(found: dict[str, Any]) -> Iterator[Row]:
    for where, said in (("wire", "on the wire"), ("model", "the model, in virtual time")):
        each = found[where]
        mean, deviation = each["mean_error"], each["deviation_error"]
        yield Row(
            f"jitter, {said}",
            "mean and deviation within 1 %",
            f"mean {mean:+.2%}, deviation {deviation:+.2%}",
            f"{each['packets']} packets",
            verdict(max(abs(mean), abs(deviation)) <= 0.01),
        )
        for what in ("loss", "duplicates"):
            share = each[what]
            yield Row(
                f"  {what}",
                f"{share['asked']:.0%} in the 99 % interval",
                f"{share['found'] / share['of']:.3%}",
                f"{share['found']} of {share['of']}",
                verdict(share["inside"]),
            )
        p, r = each["gilbert"]["p_error"], each["gilbert"]["r_error"]
        yield Row(
            "  Gilbert-Elliott",
            "parameters within 2 %" if where == "model" else "",
            f"p {p:+.2%}, r {r:+.2%}",
            f"{each['gilbert']['packets']} packets",
            verdict(max(abs(p), abs(r)) <= 0.02) if where == "model" else "",
        )


def _throughput(found: dict[str, Any]) -> Iterator[Row]:
    for mover, each in found.items():
        what = f"through an emulated link, one CPU, {mover}"
        target = "700 000 packets/s" if mover == "xdp" else ""
        if "skipped" in each:
            yield Row(what, target, NOT_MEASURED, each["skipped"], "")
            continue
        full = each["full"]["delivered_per_s"]
        lossless = each["lossless"].get("delivered_per_s", 0)
        yield Row(
            what,
            target,
            f"{full / 1e3:.0f} k/s of {each['full']['sent_per_s'] / 1e3:.0f} k/s",
            f"without loss {lossless / 1e3:.0f} k/s",
            verdict(max(full, lossless) >= 700_000) if mover == "xdp" else "",
        )


def _opportunities(found: dict[str, Any]) -> Iterator[Row]:
    schedule = found["schedule_bit_per_s"]
    yield Row(
        f"TCP through a trace of {schedule / 1e6:.0f} Mbit/s, 80 ms each way",
        "95 % of the schedule",
        f"{found['carried_bit_per_s'] / 1e6:.0f} Mbit/s",
        f"{found['share']:.1%}, {found['mover']}",
        verdict(found["share"] >= 0.95),
    )


def _targets(found: dict[str, Any]) -> Iterator[Row]:
    for state, each in found.items():
        what = f"test bed of 48 types, {state}"
        target = "every target met" if state == "idle" else ""
        if "skipped" in each:
            yield Row(what, target, NOT_MEASURED, each["skipped"].replace("\n", " "), "")
            continue
        yield Row(
            what,
            target,
            f"{each['met']} of {each['targets']}",
            f"{each['lost']} of {each['messages']} messages lost",
            verdict(each["met"] == each["targets"]) if state == "idle" else "",
        )


PARTS = {
    "intervals": _intervals,
    "stalls": _stalls,
    "rates": _rates,
    "delays": _delays,
    "impairments": _impairments,
    "throughput": _throughput,
    "opportunities": _opportunities,
    "targets": _targets,
}


def notes(results: dict[str, Any]) -> Iterator[str]:
    """What a reader of the table must know, and of a missed target what the rest is."""
    if "skipped" in results:
        yield f"The network is not measured: {results['skipped']}"
    if "stalls" in results:
        yield (
            "Stalls: here it is a minute; an hour goes by in virtual time in the test "
            "an_hour_with_stalls_is_exact of crates/workload/src/pace/pacer.rs."
        )
    for mover, each in results.get("throughput", {}).items():
        if "full" in each:
            yield f"{mover}: {_limit(each['full'])}"

    for state, each in results.get("targets", {}).items():
        if missed := [row for row in each.get("rows", ()) if row["verdict"] != "PASS"]:
            yield f"test bed, {state}, not met: {'; '.join(map(_missed, missed))}"


def _missed(row: dict[str, Any]) -> str:
    slowest = "none came" if row["max_ns"] is None else f"{row['max_ns'] / 1e6:.1f} ms"
    lost = f", {row['lost']} lost" if row["lost"] else ""
    return f"{row['type']} at {row['receiver']} {slowest} of {row['target_ns'] / 1e6:g} ms{lost}"


def _limit(run: dict[str, Any]) -> str:
    first, last = run["softirq_cpus"].values()
    return (
        f"when flooded, of its CPU the mover's own code took {run['mover_user_cpus']:.0%}, the "
        f"kernel on its behalf {run['mover_system_cpus']:.0%} and soft interrupts {last:.0%}; on "
        f"the sender's CPU soft interrupts took {first:.0%}."
    )
