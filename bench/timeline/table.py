"""What the time line's figures came to against their targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from targets import NOT_MEASURED, Row, verdict

DECODE = 100e6
ORDER = 50e6
RATIO = 15
PARQUET = 10e6
MEMORY = 2 << 30
DISK = 6
REPORT_S = 3


def _rate(rate: dict[str, float]) -> str:
    low, high = rate["min"] / 1e6, rate["max"] / 1e6
    return f"{rate['median'] / 1e6:.1f} M events/s ({low:.1f} to {high:.1f})"


def _decode(found: dict[str, Any]) -> Iterator[Row]:
    stages = {
        "decode": ("streams to columns in memory, per core", DECODE),
        "order": ("  and merged in the order of time", ORDER),
    }
    for stage, (what, least) in stages.items():
        rate, ratio = found[f"{stage}_per_cpu_s"], found.get(f"{stage}_to_babeltrace2")
        met = rate["median"] >= least
        target = f"{least / 1e6:.0f} M events/s"
        said = "babeltrace2 is missing"
        if ratio is not None:
            said = "{median:.1f} times babeltrace2 ({min:.1f} to {max:.1f})".format(**ratio)
            if stage == "decode":
                target += f", {RATIO} times"
                met = met and ratio["median"] >= RATIO
        yield Row(what, target, _rate(rate), said, verdict(met))


def _parquet(found: dict[str, Any]) -> Iterator[Row]:
    ratio = found.get("to_babeltrace2")
    cpu = f"{found['per_cpu_s']['median'] / 1e6:.1f} M per CPU second"
    yield Row(
        f"streams to Parquet, {found['cpus']} CPUs",
        f"{PARQUET / 1e6:.0f} M events/s",
        _rate(found["per_s"]),
        f"{ratio} times babeltrace2; {cpu}" if ratio else cpu,
        verdict(found["per_s"]["median"] >= PARQUET),
    )


def _memory(found: dict[str, Any]) -> Iterator[Row]:
    what = "peak memory, 300 M events"
    if "skipped" in found:
        yield Row(what, "2 GiB", NOT_MEASURED, found["skipped"], "")
        return
    peak = found["peak_bytes"]
    seconds = f"{found['events'] / 1e6:.0f} M events in {found['seconds']} s"
    yield Row(what, "2 GiB", f"{peak / 2**20:.0f} MiB", seconds, verdict(peak <= MEMORY))


def _disk(found: dict[str, Any]) -> Iterator[Row]:
    size, stream = found["bytes_per_event"], found["stream_bytes_per_event"]
    yield Row(
        "disk, events of a periodic loop",
        f"{DISK} B an event",
        f"{size:.2f} B",
        f"{size / stream:.2f} of the streams",
        verdict(size <= DISK),
    )


def _report(found: dict[str, Any]) -> Iterator[Row]:
    what = "loopscope report, the demo's run"
    if "skipped" in found:
        yield Row(what, f"{REPORT_S} s", NOT_MEASURED, found["skipped"], "")
        return
    seconds = found["seconds"]
    said = "{median:.2f} s ({min:.2f} to {max:.2f})".format(**seconds)
    cpu = "{median:.2f} CPU s".format(**found["cpu_s"])
    yield Row(what, f"{REPORT_S} s", said, cpu, verdict(seconds["median"] <= REPORT_S))


PARTS = {
    "decode": _decode,
    "parquet": _parquet,
    "memory": _memory,
    "disk": _disk,
    "report": _report,
}


def notes(results: dict[str, Any]) -> Iterator[str]:
    """What a reader of the table must know."""
    if "decode" in results:
        events = results["decode"]["events"]
        yield f"Rates per core: of {events / 1e6:.1f} M events, by the CPU's time in one process."
