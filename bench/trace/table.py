"""What tracing costs against its targets, and what the rest is where one is missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import targets
from targets import NOT_MEASURED, Row
from targets import verdict as _verdict

# Targets, in readings of the counter and in plain stores of 14 bytes between two of them: the same
# code takes other times on other machines.
EVENT_READS = 1.25
DORMANT_READS = 0.035
COUNTER_READS = 0.17
HISTOGRAM_READS = 0.34
TAIL_STORES = 1.75


def _ns(value: dict[str, float]) -> str:
    return "{median:.2f} ns ({min:.2f} to {max:.2f})".format(**value)


def _costs(costs: dict[str, Any]) -> Iterator[Row]:
    ns = costs["ns"]
    read = ns["counter-read"]["median"]
    reads = ns["event"]["median"] / read
    yield Row(
        "enabled event with an id, p50",
        f"{EVENT_READS} counter reads",
        f"{_ns(ns['event'])}, counter read {_ns(ns['counter-read'])}",
        f"{reads:.3f} counter reads",
        _verdict(reads <= EVENT_READS),
    )
    if "lttng_to_event" in costs:
        times = costs["lttng_to_event"]
        yield Row(
            "  against LTTng-UST",
            "4.5 times cheaper",
            f"LTTng {_ns(ns['lttng-event'])}",
            f"{times['median']:.2f} times ({times['min']:.2f} to {times['max']:.2f})",
            _verdict(times["median"] >= 4.5),
        )
        fields = ns["lttng-fields"]["median"] / ns["fields"]["median"]
        yield Row(
            "  with two fields",
            "",
            f"{_ns(ns['fields'])}, LTTng {_ns(ns['lttng-fields'])}",
            f"{fields:.2f} times",
            "",
        )
    over_empty = costs["over_empty_ns"]
    dormant = over_empty["dormant"]
    met = dormant["median"] <= DORMANT_READS * read
    ratio = f"{dormant['median'] / read:.3f} counter reads"
    if "lttng-dormant" in over_empty:
        theirs = over_empty["lttng-dormant"]
        ratio += f", LTTng {theirs['median']:.2f} ns"
        # What the clock around a batch of 1000 can tell apart.
        met = met and dormant["median"] <= theirs["median"] + 0.03
    target = f"{DORMANT_READS} counter reads, LTTng's or less"
    yield Row("dormant call site", target, _ns(dormant), ratio, _verdict(met))
    for what, entity, most in (
        ("counter add", "counter-add", COUNTER_READS),
        ("histogram add, linear", "histogram-linear", HISTOGRAM_READS),
        ("histogram add, log-linear", "histogram-log", HISTOGRAM_READS),
    ):
        value = over_empty[entity]
        reads = value["median"] / read
        ratio = f"{reads:.3f} counter reads"
        yield Row(what, f"{most} counter reads", _ns(value), ratio, _verdict(reads <= most))
    interval = over_empty["interval"]
    reads = interval["median"] / over_empty["counter-read"]["median"]
    yield Row("interval, start and end", "", _ns(interval), f"{reads:.2f} counter reads", "")


def _counters(counters: dict[str, Any]) -> Iterator[Row]:
    for counter in ("cycles", "monotonic-raw"):
        of = counters[counter]
        peer = "{median:.2f} ({min:.2f} to {max:.2f})".format(**of["to_clock_gettime"])
        ratio = f"{peer} of it"
        if counter != "cycles":
            ratio += f", {of['to_cycles']['median']:.2f} times that of cycles"
        yield Row(
            f"event, counter {counter}",
            "",
            f"{_ns(of['event_ns'])}, clock_gettime {_ns(of['clock_gettime_ns'])}",
            ratio,
            "",
        )


def _tails(tails: dict[str, Any]) -> Iterator[Row]:
    read = tails["counter-read"]["p50"]["median"]
    store = tails["plain-record"]["p99.9"]["median"]
    for entity, what in (("event", "single event, p99.9"), ("lttng-event", "  LTTng-UST")):
        if entity not in tails:
            continue
        p50, p99, own = (tails[entity][part]["median"] - read for part in ("p50", "p99", "p99.9"))
        spread = tails[entity]["p99.9"]
        ours = entity == "event"
        stores = spread["median"] / store
        yield Row(
            what,
            f"{TAIL_STORES} times a plain store's" if ours else "",
            f"{own:.1f} ns ({spread['min'] - read:.1f} to {spread['max'] - read:.1f}); "
            f"p50 {p50:.1f}, p99 {p99:.1f}",
            f"{stores:.2f} times a plain store's",
            _verdict(stores <= TAIL_STORES) if ours else "",
        )


def _size(size: dict[str, Any]) -> Iterator[Row]:
    ratio = ""
    if "lttng_bytes_per_event" in size:
        ratio = f"LTTng {size['lttng_bytes_per_event']:.2f}"
    value = size["bytes_per_event"]
    # Packet headers are a few thousandths of a byte for each record.
    yield Row(
        "bytes per event with an id, on disk",
        "14",
        f"{value:.2f}",
        ratio,
        _verdict(int(value) <= 14),
    )


def _millions(run: dict[str, Any], key: str) -> str:
    return f"{run[key] / 1e6:.1f} M/s"


def _sustained(sustained: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in sustained:
        yield Row("sustained, two threads", "20 M/s", NOT_MEASURED, sustained["skipped"], "")
        return
    target = sustained["target"]
    causes = ", ".join(f"{n} {cause}" for cause, n in target["dropped_by_cause"].items())
    part = target["dropped"] / max(target["emitted"], 1)
    yield Row(
        f"sustained, two threads, {target['seconds']:.0f} s",
        "no drops at 20 M/s",
        f"{_millions(target, 'emitted_per_s')}, drops {part:.3%}"
        + (f" ({causes})" if causes else ""),
        f"{target['bytes_per_s'] / 1e6:.0f} MB/s",
        _verdict(target["dropped"] == 0 and target["emitted_per_s"] >= 19.9e6),
    )
    full = sustained["full_rate"]
    measured = f"{_millions(full, 'recorded_per_s')} recorded of {_millions(full, 'emitted_per_s')}"
    ratio = ""
    if "lttng_full_rate" in sustained:
        theirs = sustained["lttng_full_rate"]
        ratio = (
            f"LTTng {_millions(theirs, 'recorded_per_s')} of {_millions(theirs, 'emitted_per_s')}"
        )
    yield Row("  as fast as the threads can", "", measured, ratio, "")
    if "without_drops" in sustained:
        run = sustained["without_drops"]
        yield Row("  highest rate without drops", "", _millions(run, "emitted_per_s"), "", "")


def _library(library: dict[str, Any]) -> Iterator[Row]:
    needs = set(library["needs"]) - {"libc.so.6", "libpthread.so.0"}
    glibc = tuple(map(int, library["glibc"].split(".")))
    met = library["bytes"] <= 300_000 and glibc <= (2, 28) and not needs
    yield Row(
        "library",
        "libc alone, glibc 2.28, 300 kB",
        f"{' '.join(library['needs'])}, glibc {library['glibc']}, {library['bytes'] / 1000:.0f} kB",
        "",
        _verdict(met),
    )


def _python(python: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in python:
        yield Row("Python event", "80 ns", NOT_MEASURED, python["skipped"], "")
        return
    value = python["ns"]["enabled_id"]
    floor = python["ns"]["builtin"]["median"]
    ratio = f"{value['median'] / floor:.1f} empty calls"
    yield Row("Python event", "80 ns", _ns(value), ratio, _verdict(value["median"] <= 80))


PARTS = {
    "costs": _costs,
    "counters": _counters,
    "tails": _tails,
    "python": _python,
    "size": _size,
    "sustained": _sustained,
    "library": _library,
}


def notes(results: dict[str, Any]) -> Iterator[str]:
    """What a reader of the table must know, and of a missed target what the rest is."""
    missed = {row.what for row in targets.rows(PARTS, results) if row.verdict == "MISSED"}
    tails = results.get("tails")
    if tails:
        read = tails["counter-read"]
        yield (
            f"The counter steps by {tails['step']:.1f} ns: medians are of batches of 1000, single "
            f"events are whole steps. Two reads in a row: p99.9 {read['p99.9']['median']:.1f} ns, "
            f"longest {read['max']['max'] / 1e3:.0f} µs (the machine's own pauses)."
        )
    if tails and "single event, p99.9" in missed:
        plain = tails["plain-record"]["p99.9"]["median"] - tails["counter-read"]["p50"]["median"]
        yield (
            f"A counter read and a plain 14-byte store into shared memory as large as a ring have "
            f"a p99.9 of {plain:.1f} ns here: what a single event's has above that is ours."
        )
    counts = results.get("instructions", {})
    for what, entity in (
        ("enabled event with an id, p50", "event"),
        ("dormant call site", "dormant"),
        ("counter add", "counter-add"),
        ("histogram add, linear", "histogram-linear"),
        ("histogram add, log-linear", "histogram-log"),
    ):
        if what in missed and entity in counts:
            yield f"{what}: {_composition(counts[entity])}, {_pace(results, entity)}"
    yield from _limit(results.get("sustained", {}))


def _composition(count: dict[str, int]) -> str:
    parts = [f"{count[part]} {part}" for part in ("memory", "divisions", "locked") if count[part]]
    return f"{count['all']} instructions" + (f" (of these {', '.join(parts)})" if parts else "")


def _pace(results: dict[str, Any], entity: str) -> str:
    ns = results["costs"]["over_empty_ns"][entity]["median"]
    return f"{ns / max(results['instructions'][entity]['all'], 1):.3f} ns each"


def _limit(sustained: dict[str, Any]) -> Iterator[str]:
    beyond = sustained.get("beyond")
    if not beyond:
        return
    memory = sustained["beyond_into_memory"]
    busy = beyond["program_cpus"] + beyond["collector_cpus"]
    if memory["dropped"] == 0:
        why = "the files: into memory the same rate drops nothing"
    elif busy >= 0.9 * sustained["cpus"]:
        why = "the CPUs: program and collector have them all"
    elif beyond["collector_cpus"] >= 0.9:
        why = "the collector's one thread, which is busy"
    else:
        why = "how soon the collector runs again: a ring is full before, with CPUs to spare"
    yield (
        f"At {_millions(beyond, 'emitted_per_s')} of two threads {beyond['dropped']} of "
        f"{beyond['emitted']} events were dropped; of {sustained['cpus']} CPUs the program used "
        f"{beyond['program_cpus']:.2f} and the collector {beyond['collector_cpus']:.2f}; "
        f"{beyond['bytes_per_s'] / 1e6:.0f} MB/s were written. What sets the limit: {why}."
    )


def render(results: dict[str, Any]) -> str:
    """The table as text, its notes below."""
    peer = results["lttng"]
    unmeasured = [] if peer[0].isdigit() else [f"LTTng-UST is not measured: {peer}"]
    return targets.render(targets.rows(PARTS, results), [*unmeasured, *notes(results)])
