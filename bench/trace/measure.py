"""Measures what tracing costs; prints one JSON object. See bench/README.md for each figure.

Run by bench/run.py in namespaces of its own. ``measure.py FIGURE…`` measures some only:
costs, counters, tails, size, sustained, instructions, library, python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lttng
from targets import spread

HERE = Path(__file__).resolve().parent
PREFIX = Path(sys.executable).parents[1]
HOST = PREFIX / "bin/loopscope-host"
LIBRARY = PREFIX / "lib/libloopscope.so.0"

# Environment variable that says why LTTng cannot be run.
WITHOUT_PEER = "LOOPSCOPE_BENCH_WITHOUT_LTTNG"

ROUNDS = 7
THREADS = 2
TARGET_RATE = 10_000_000  # of each thread, events/s
SUSTAINED_S = 10
SEARCH_S = 3
PARTS = 8  # of the target's rate: steps of the search
STEPS = 4 * PARTS
SIZE_RATE = 500_000
FREE_BYTES = 20 << 30  # what the sustained figures may take on disk


class Bench:
    """The instrumented programs, built as users build them, and where they write."""

    def __init__(self, directory: Path, peer: bool) -> None:
        self.directory = directory
        self.peer = peer
        self.taken = 0

    def build(self, name: str, *options: str, source: Path = HERE) -> Path:
        environment = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig")}
        words = ["pkg-config", "--cflags", "--libs", "loopscope"]
        flags = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
        binary = self.directory / name
        command = ["cc", "-O2", "-pthread", f"-I{HERE}", "-o", str(binary)]
        command += [str(source / f"{name}.c"), *options]
        if self.peer:
            command += ["-DWITH_LTTNG", str(HERE / "lttng_events.c"), "-llttng-ust"]
        subprocess.run([*command, *flags.stdout.split(), "-ldl"], check=True)
        return binary

    def output(self) -> Path:
        self.taken += 1
        return self.directory / f"out{self.taken}"

    def session(self, *events: str) -> Any:
        """LTTng recording, or nothing where it is not there."""
        return lttng.session(self.output(), *events) if self.peer else nullcontext()

    def record(
        self,
        *command: str | Path,
        cpu: int | None = None,
        output: Path | None = None,
        keep: bool = False,
        counter: str | None = None,
    ) -> tuple[str, dict[str, Any], float]:
        """What the program printed, the account, and the CPU seconds of both processes.

        The recorder runs on ``cpu`` if one is given; the program sets its own. ``counter`` is what
        stamps the events; None: what the machine chooses.
        """
        environment = {**os.environ, **({"LOOPSCOPE_COUNTER": counter} if counter else {})}
        alone = [] if cpu is None else ["taskset", "--cpu-list", str(cpu)]
        out = output or self.output()
        process = subprocess.Popen(
            [*alone, HOST, "record", "-e", "bench:*", "-o", out, "--", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout and process.stderr
        printed = process.stdout.read()
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{command}: exit code {process.returncode}\n{said}")
        loss = json.loads((out / "loss.json").read_text())
        loss["bytes"] = sum(
            path.stat().st_size
            for path in (out / "trace").iterdir()
            if path.name != "metadata" and not path.name.endswith("-final")
        )
        if not keep:
            shutil.rmtree(out)
        return printed, loss, usage.ru_utime + usage.ru_stime


def costs(bench: Bench) -> dict[str, Any]:
    """Nanoseconds of one hit: median over batches, in rounds that take each entity in turn."""
    binary = bench.build("cost")
    with bench.session("bench:event", "bench:fields") as recording:
        printed, loss, _ = bench.record(binary, "batches", str(ROUNDS), cpu=0)
    rounds: dict[str, list[float]] = {}
    for line in printed.splitlines():
        _, what, ns = line.split()
        rounds.setdefault(what, []).append(float(ns))
    empty, event = rounds["empty"], rounds["event"]
    result: dict[str, Any] = {
        "ns": {what: spread(values) for what, values in rounds.items()},
        "over_empty_ns": {
            what: spread([ns - e for ns, e in zip(rounds[what], empty, strict=True)])
            for what in rounds
            if what != "empty"
        },
        "dropped": loss["dropped"],
    }
    if bench.peer:
        theirs = rounds["lttng-event"]
        result["lttng_to_event"] = spread([t / e for t, e in zip(theirs, event, strict=True)])
        result["lttng_discarded"] = recording.discarded
        shutil.rmtree(recording.output)
    return result


def counters(bench: Bench) -> dict[str, Any]:
    """Nanoseconds of an event with each counter, and of clock_gettime, in rounds in turn."""
    binary = bench.build("cost")
    found: dict[str, dict[str, list[float]]] = {"cycles": {}, "monotonic-raw": {}}
    dropped = 0
    for _ in range(ROUNDS):
        for counter, ns in found.items():
            printed, loss, _ = bench.record(binary, "counter", "1", cpu=0, counter=counter)
            dropped += loss["dropped"]
            for line in printed.splitlines():
                _, what, each = line.split()
                ns.setdefault(what, []).append(float(each))
    result: dict[str, Any] = {"dropped": dropped}
    cycles = found["cycles"]["event"]
    for counter, ns in found.items():
        event = ns["event"]
        result[counter] = {
            "event_ns": spread(event),
            "clock_gettime_ns": spread(ns["clock-gettime"]),
            "to_clock_gettime": spread(
                [e / c for e, c in zip(event, ns["clock-gettime"], strict=True)]
            ),
            "to_cycles": spread([e / c for e, c in zip(event, cycles, strict=True)]),
        }
    return result


def tails(bench: Bench) -> dict[str, Any]:
    """Percentiles of single hits, timed by two reads of the counter around each."""
    binary = bench.build("cost")
    with bench.session("bench:event") as recording:
        printed, loss, _ = bench.record(binary, "singles", str(ROUNDS), cpu=0)
    rounds: dict[str, list[list[float]]] = {}
    for line in printed.splitlines():
        what, *values = line.split()
        rounds.setdefault(what, []).append([float(value) for value in values])
    result: dict[str, Any] = {
        "hits": loss["emitted"],
        "dropped": loss["dropped"],
        "step": statistics.median(step for [step] in rounds.pop("step")),
    }
    for what, of_rounds in rounds.items():
        percentiles = zip(("p50", "p99", "p99.9", "max"), zip(*of_rounds, strict=True), strict=True)
        result[what] = {name: spread(list(values)) for name, values in percentiles}
    if bench.peer:
        result["lttng_discarded"] = recording.discarded
        shutil.rmtree(recording.output)
    return result


def _sustained(
    bench: Bench, binary: Path, rate: float, seconds: float, disk: bool
) -> dict[str, Any]:
    """One run of ours; where it goes: files in the bench's directory, or in memory."""
    words = ["loopscope", str(THREADS), str(rate), str(seconds)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        output = None if disk else Path(memory) / "out"
        printed, loss, cpu_s = bench.record(binary, *words, output=output)
    count, wall, program_cpu_s = map(float, printed.split())
    drops: Counter[str] = Counter()
    for process in loss["processes"]:
        for site in process["sites"]:
            drops.update(site["dropped"])
    return {
        "asked_per_s": rate * THREADS or None,
        "emitted": loss["emitted"],
        "emitted_per_s": round(loss["emitted"] / wall),
        "recorded_per_s": round(loss["recorded"] / wall),
        "dropped": loss["dropped"],
        "dropped_by_cause": dict(drops),
        "seconds": round(wall, 2),
        "program_cpus": round(program_cpu_s / wall, 2),
        "collector_cpus": round((cpu_s - program_cpu_s) / wall, 2),
        "bytes": loss["bytes"],
        "bytes_per_event": round(loss["bytes"] / max(loss["recorded"], 1), 4),
        "bytes_per_s": round(loss["bytes"] / wall),
        "counted": count == loss["emitted"],
    }


def _sustained_lttng(bench: Bench, binary: Path, rate: float, seconds: float) -> dict[str, Any]:
    words = ["lttng", str(THREADS), str(rate), str(seconds)]
    with bench.session("bench:event") as recording:
        printed = subprocess.run(
            [binary, *words], check=True, capture_output=True, text=True
        ).stdout
    count, wall, program_cpu_s = map(float, printed.split())
    size = recording.bytes()
    shutil.rmtree(recording.output)
    recorded = count - recording.discarded
    return {
        "asked_per_s": rate * THREADS or None,
        "emitted_per_s": round(count / wall),
        "recorded_per_s": round(recorded / wall),
        "dropped": recording.discarded,
        "seconds": round(wall, 2),
        "program_cpus": round(program_cpu_s / wall, 2),
        "collector_cpus": round(recording.consumer_cpu_s / wall, 2),
        "bytes_per_event": round(size / max(recorded, 1), 4),
    }


def sustained(bench: Bench) -> dict[str, Any]:
    """Two threads into files with default buffers: at the target's rate, flat out, and how far."""
    free = shutil.disk_usage(bench.directory).free
    if free < FREE_BYTES:
        return {
            "skipped": f"{bench.directory} has {free >> 30} GiB free, {FREE_BYTES >> 30} needed"
        }
    binary = bench.build("sustained")
    result: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "target": _sustained(bench, binary, TARGET_RATE, SUSTAINED_S, True),
        "full_rate": _sustained(bench, binary, 0, SUSTAINED_S, True),
    }
    # The highest rate without a drop.
    low, high = 0, STEPS
    if result["target"]["dropped"] == 0:
        low, result["without_drops"] = PARTS, result["target"]
    while high - low > 1:
        middle = (low + high) // 2
        run = _sustained(bench, binary, TARGET_RATE * middle / PARTS, SEARCH_S, True)
        if run["dropped"] == 0:
            low, result["without_drops"] = middle, run
        else:
            high, result["beyond"] = middle, run
    if "beyond" in result:
        rate = TARGET_RATE * high / PARTS
        result["beyond_into_memory"] = _sustained(bench, binary, rate, SEARCH_S, False)
    if bench.peer:
        result["lttng_full_rate"] = _sustained_lttng(bench, binary, 0, SUSTAINED_S)
    return result


def size(bench: Bench) -> dict[str, Any]:
    """Bytes per event with an id in the stream files, at a rate that drops nothing."""
    binary = bench.build("sustained")
    ours = _sustained(bench, binary, SIZE_RATE, 2, True)
    result = {"bytes_per_event": ours["bytes_per_event"], "dropped": ours["dropped"]}
    if bench.peer:
        theirs = _sustained_lttng(bench, binary, SIZE_RATE, 2)
        result["lttng_bytes_per_event"] = theirs["bytes_per_event"]
        result["lttng_dropped"] = theirs["dropped"]
    return result


def instructions(bench: Bench) -> dict[str, Any]:
    """Instructions of one hit as they ran, and how many of them touch memory, divide or lock."""
    binary = Bench(bench.directory, False).build("steps", "-g")
    printed, _, _ = bench.record(binary)
    code: dict[str, dict[int, str]] = {}
    counts: dict[str, Counter[str]] = {}
    for line in printed.splitlines():
        what, module, offset = line.split()
        if module not in code:
            code[module] = _disassemble(Path(module))
        text = code[module].get(int(offset, 16), "")
        count = counts.setdefault(what, Counter())
        count["all"] += 1
        operation = text.split()[0] if text else "unknown"
        count["memory"] += "(" in text and not operation.startswith(("lea", "nop"))
        count["divisions"] += operation.lstrip("i").startswith("div")
        count["locked"] += operation == "lock" or operation.startswith("xchg")
        count["calls"] += operation.startswith("call")
        count["unknown"] += not text
    empty = counts.pop("empty")
    return {what: {k: n - empty[k] for k, n in count.items()} for what, count in counts.items()}


def _disassemble(module: Path) -> dict[int, str]:
    # A program that is not position-independent would be loaded at its own addresses.
    shown = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", module], check=True, capture_output=True, text=True
    )
    lines = re.findall(r"^ *([0-9a-f]+):\t(.*)$", shown.stdout, re.MULTILINE)
    return {int(address, 16): text for address, text in lines}


def library(_: Bench) -> dict[str, Any]:
    """What the shared library asks of a machine; tests/adoption holds it to the targets."""
    shown = subprocess.run(
        ["objdump", "-p", LIBRARY], check=True, capture_output=True, text=True
    ).stdout
    versions = [
        tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", shown)
    ]
    return {
        "bytes": LIBRARY.stat().st_size,
        "needs": re.findall(r"NEEDED +(\S+)", shown),
        "glibc": ".".join(map(str, max(versions))),
    }


def python(_: Bench) -> dict[str, Any]:
    """Cost of a call from Python: bench/trace/python_cost.py."""
    done = subprocess.run(
        [sys.executable, HERE / "python_cost.py"], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        return {"skipped": done.stderr.strip().rpartition("\n")[2]}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


FIGURES: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "costs": costs,
    "counters": counters,
    "tails": tails,
    "size": size,
    "sustained": sustained,
    "instructions": instructions,
    "library": library,
    "python": python,
}


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(FIGURES)
    if unknown:
        print(
            f"no figure is called {', '.join(sorted(unknown))}: {', '.join(FIGURES)}",
            file=sys.stderr,
        )
        return 2
    why_not = os.environ.get(WITHOUT_PEER) or lttng.missing()
    results: dict[str, Any] = {"lttng": why_not or _version()}
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as name:
        directory = Path(name)
        with nullcontext() if why_not else lttng.daemon(directory):
            bench = Bench(directory, why_not is None)
            for figure in wanted or FIGURES:
                print(f"  {figure} …", file=sys.stderr)
                results[figure] = FIGURES[figure](bench)
    print(json.dumps(results))
    return 0


def _version() -> str:
    words = ["pkg-config", "--modversion", "lttng-ust"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
