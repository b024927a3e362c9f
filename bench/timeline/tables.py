"""Streams to columns, in order, to Parquet: against babeltrace2 reading the same trace."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from examples import example
from targets import spread

from timeline.recorded import Recorded, run

EVENTS = 30_000_000
LARGE = 300_000_000
ROUNDS = 5
FREE_BYTES = 10 << 30  # what the large trace may take on disk

BUILD = "import sys; from loopscope import _native; print(_native.build_record(sys.argv[1]))"


def decode(recorded: Recorded) -> dict[str, Any]:
    """Events per CPU second on one CPU: to columns on the time line, and put in order too."""
    trace, events = recorded.events(EVENTS)
    program = example("stages", "loopscope-timeline")
    rates: dict[str, list[float]] = {"decode": [], "order": [], "babeltrace2": []}
    for _ in range(ROUNDS):
        found = json.loads(run([program, trace, "1"], one_cpu=True).printed)
        for stage in ("decode", "order"):
            [took] = found[stage]
            rates[stage].append(found["events"] / took["cpu_s"])
        if shutil.which("babeltrace2"):
            words = ["babeltrace2", "--component", "sink.utils.dummy", trace / "trace"]
            rates["babeltrace2"].append(events / run(words, one_cpu=True).cpu_s)
    result: dict[str, Any] = {"events": events}
    for stage, of_rounds in rates.items():
        if of_rounds:
            result[f"{stage}_per_cpu_s"] = spread(of_rounds)
    if rates["babeltrace2"]:
        for stage in ("decode", "order"):
            pairs = zip(rates[stage], rates["babeltrace2"], strict=True)
            result[f"{stage}_to_babeltrace2"] = spread([a / b for a, b in pairs])
    return result


def parquet(recorded: Recorded) -> dict[str, Any]:
    """Events per second to Parquet on all CPUs, process and all."""
    trace, events = recorded.events(EVENTS)
    rounds = [run([sys.executable, "-c", BUILD, trace]) for _ in range(ROUNDS)]
    result: dict[str, Any] = {
        "events": events,
        "cpus": len(os.sched_getaffinity(0)),
        "per_s": spread([events / each.seconds for each in rounds]),
        "per_cpu_s": spread([events / each.cpu_s for each in rounds]),
        "peak_bytes": max(each.peak_bytes for each in rounds),
        "bytes_per_event": round(size(trace) / events, 3),
    }
    if shutil.which("babeltrace2"):
        words = ["babeltrace2", "--component", "sink.utils.dummy", trace / "trace"]
        theirs = [events / run(words).seconds for _ in range(ROUNDS)]
        ours = statistics.median(events / each.seconds for each in rounds)
        result["babeltrace2_per_s"] = spread(theirs)
        result["to_babeltrace2"] = round(ours / statistics.median(theirs), 2)
    return result


def memory(recorded: Recorded) -> dict[str, Any]:
    """Peak memory of the process that makes the tables of a large trace."""
    free = shutil.disk_usage(recorded.directory).free
    if free < FREE_BYTES:
        what = f"{recorded.directory} has {free >> 30} GiB free, {FREE_BYTES >> 30} needed"
        return {"skipped": what}
    trace, events = recorded.events(LARGE)
    done = run([sys.executable, "-c", BUILD, trace])
    shutil.rmtree(trace)
    return {
        "events": events,
        "peak_bytes": done.peak_bytes,
        "seconds": round(done.seconds, 1),
        "cpu_s": round(done.cpu_s, 1),
    }


def size(recording: Path) -> int:
    """Bytes of its tables of events."""
    return sum(file.stat().st_size for file in recording.glob("timeline/*/*/*.parquet"))
