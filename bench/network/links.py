"""Emulated links between two stamps outside them: delay, impairments, throughput, a trace."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from network import intervals
from network.bench import HOST, MEASURED_CPU, OTHER_CPU, Bench
from network.capture import Capture, Nanoseconds, capture
from network.namespaces import PORTS, RECEIVER, WIRE, Namespace, routed
from network.pacing import PORT, pace, peer, sink

DELAYS_MS = (0.1, 1, 10, 50, 200)
DELAY_RATE, DELAY_S = 10_000, 2
SIZE = 200  # Bytes of a datagram.

IMPAIRED_RATE, IMPAIRED_S = 20_000, 5
SIMULATED = 1_000_000
JITTER_NS = 1_000_000
JITTER = {"distribution": "normal", "ns": JITTER_NS}
DELAY_NS = 10_000_000
LOSS, DUPLICATES = 0.01, 0.01
P, R = 0.02, 0.3  # From good to bad, and back.
GILBERT = {"kind": "gilbert-elliott", "p": P, "r": R}
Z99 = 2.5758  # The normal distribution's: 99 % lie between -z and z.

FLOOD_BYTES = 18  # The smallest frame.
FLOOD_S = 2
SETTLE_S = 0.1  # Longer than the link's delay.
LOSSLESS = 0.999
LOWEST_FLOOD, FLOOD_OCTAVES, FLOOD_STEPS = 50_000, 6, 4

OPPORTUNITIES_PER_MS = 60  # 1500 bytes each: 720 Mbit/s.
OPPORTUNITY_BYTES = 1500
TRACE_DELAY_NS = 80_000_000
WARM_UP_S, TRACE_S = 8, 6
ETHERNET = 14  # Bytes of a frame before its IP packet.
WINDOWS = {"ipv4/tcp_rmem": "4096 131072 268435456", "ipv4/tcp_wmem": "4096 131072 268435456"}


class Emulator:
    """A router that has one."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process = process
        self._directory = directory

    def cpu_seconds(self) -> tuple[float, float]:
        """The CPU time of the program, and of the kernel on its behalf, s."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        return int(fields[11]) / tick, int(fields[12]) / tick

    def report(self) -> dict[str, Any]:
        """Ends it; what it says of itself."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        result: dict[str, Any] = json.loads((self._directory / "links.json").read_text())
        return result


@contextmanager
def emulated(
    bench: Bench,
    there: dict[str, Any],
    back: dict[str, Any],
    mover: str = "auto",
    wait: str = "sleep",
) -> Iterator[tuple[Namespace, Namespace, Emulator]]:
    """A sender and a receiver with an emulated link each way, whose mover has a CPU to itself."""
    document = {
        "version": 1,
        "seed": 1,
        "mover": mover,
        "wait": wait,
        "ports": [
            {"host": host, "device": device}
            for host, device in zip(("sender", "receiver"), PORTS, strict=True)
        ],
        "links": [
            {"from": "sender", "to": "receiver", "settings": there},
            {"from": "receiver", "to": "sender", "settings": back},
        ],
    }
    file = bench.directory / "links-settings.json"
    file.write_text(json.dumps(document))
    words: list[str | Path] = [HOST, "emulate", "--settings", file]
    with routed(WINDOWS) as (sender, router, receiver), bench.log("emulate") as log:
        options = {"cwd": bench.directory, "stdout": log, "stderr": log}
        with router.process(*words, cpu=MEASURED_CPU, **options) as process:
            try:
                sender.run("ping", "-q", "-c", "1", "-w", "5", RECEIVER, cpu=OTHER_CPU)
            except RuntimeError as error:
                said = Path(log.name).read_text().strip()
                raise RuntimeError(f"the emulator passes nothing on: {said}") from error
            yield sender, receiver, Emulator(process, bench.directory)


def delays(bench: Bench) -> dict[str, Any]:
    """The time between two stamps less the delay that was asked for, µs."""
    result: dict[str, Any] = {}
    for wait in ("sleep", "spin"):
        for ms in DELAYS_MS:
            asked = round(ms * 1e6)
            with emulated(bench, {"delay_ns": asked}, {}, wait=wait) as (sender, receiver, mover):
                left, came = _passed(bench, sender, receiver, DELAY_RATE, DELAY_S)
                result["mover"] = mover.report()["mover"]
            error = _times(left, came) - asked
            result.setdefault(wait, {})[f"{ms:g} ms"] = {
                **intervals.percentiles(np.abs(error)),
                "median": round(float(np.median(error)) / 1e3, 2),
                "lost": len(left.stamps) - len(came.stamps),
            }
    return result


def impairments(bench: Bench) -> dict[str, Any]:
    """Jitter, loss and duplication against what was asked for: on the wire, and the model's."""
    shaped = {"delay_ns": DELAY_NS, "jitter": JITTER, "reorder": "by-jitter"}
    shaped |= {"loss": {"kind": "independent", "probability": LOSS}, "duplicate": DUPLICATES}
    bursts = {"delay_ns": DELAY_NS, "loss": GILBERT}
    with emulated(bench, shaped, {}) as (sender, receiver, _):
        left, came = _passed(bench, sender, receiver, IMPAIRED_RATE, IMPAIRED_S)
    delay = _times(left, came)
    arrived = np.isin(left.numbers, came.numbers)
    wire = {
        **_jitter(delay),
        "loss": _share(int((~arrived).sum()), len(arrived), LOSS),
        "duplicates": _share(
            len(came.numbers) - int(arrived.sum()), int(arrived.sum()), DUPLICATES
        ),
    }
    with emulated(bench, bursts, {}) as (sender, receiver, _):
        left, came = _passed(bench, sender, receiver, IMPAIRED_RATE, IMPAIRED_S)
    wire["gilbert"] = _gilbert(~np.isin(left.numbers, came.numbers))
    delay, fates, copies = _simulated(shaped)
    model = {
        **_jitter(delay),
        "loss": _share(int(fates.sum()), SIMULATED, LOSS),
        "duplicates": _share(copies, SIMULATED - int(fates.sum()), DUPLICATES),
    }
    model["gilbert"] = _gilbert(_simulated(bursts)[1])
    return {"wire": wire, "model": model}


def throughput(bench: Bench) -> dict[str, Any]:
    """Small packets through a link with a delay, the mover on one CPU; packets/s."""
    return {mover: _throughput(bench, mover) for mover in ("xdp", "tap")}


def opportunities(bench: Bench) -> dict[str, Any]:
    """One TCP stream through a trace of 720 Mbit/s with 80 ms each way, and its share of it."""
    trace = bench.directory / "opportunities"
    trace.write_text("1\n" * OPPORTUNITIES_PER_MS)
    there = {"delay_ns": TRACE_DELAY_NS, "opportunities": str(trace)}
    back = {"delay_ns": TRACE_DELAY_NS}
    # Without pacing cubic leaves slow start at half the window (tcp_cubic.c, hystart_update) and
    # takes half a minute for the rest; the rate is far above the trace's.
    words = ["iperf3", "--client", RECEIVER, "--congestion", "cubic", "--fq-rate", "2G"]
    words += ["--time", str(WARM_UP_S + TRACE_S + 2)]
    with emulated(bench, there, back) as (sender, receiver, mover), peer(receiver):
        with sender.process(*words, cpu=OTHER_CPU, stdout=subprocess.DEVNULL):
            start, samples = time.monotonic(), []
            for second in range(WARM_UP_S + TRACE_S + 1):
                time.sleep(max(0.0, start + second - time.monotonic()))
                samples.append((time.monotonic(), *receiver.received()))
        report = mover.report()
    seconds = [_bits_per_s(*each) for each in zip(samples, samples[1:], strict=False)]
    carried = _bits_per_s(samples[WARM_UP_S], samples[-1])
    schedule = OPPORTUNITIES_PER_MS * OPPORTUNITY_BYTES * 8 * 1000
    return {
        "mover": report["mover"],
        "schedule_bit_per_s": schedule,
        "carried_bit_per_s": round(carried),
        "share": round(carried / schedule, 4),
        "mbit_of_seconds": [round(each / 1e6) for each in seconds],
        "problems": report["problems"],
    }


def _bits_per_s(before: tuple[float, int, int], after: tuple[float, int, int]) -> float:
    """The rate of IP packets between two readings of time, packets and bytes."""
    seconds, packets, size = (b - a for a, b in zip(before, after, strict=True))
    return (size - ETHERNET * packets) * 8 / seconds


def _passed(
    bench: Bench, sender: Namespace, receiver: Namespace, rate: int, seconds: int
) -> tuple[Capture, Capture]:
    """What left the sender and what came to the receiver."""
    # It shares its CPU with all the rest, which takes no harm from a sender that is late.
    words = pace(rate, seconds, "--timer", "sleep", "--after-stall", "burst", size=SIZE)
    points = (sender, "out"), (receiver, "in")
    with sink(receiver), capture(bench.directory, OTHER_CPU, *points) as (left, came):
        sender.run(*words, cpu=OTHER_CPU)
    return left.of_size(SIZE), came.of_size(SIZE)


def _times(left: Capture, came: Capture) -> Nanoseconds:
    """The time of each packet that came since it left, ns."""
    order = np.argsort(left.numbers)
    found = order[np.searchsorted(left.numbers, came.numbers, sorter=order)]
    if not np.array_equal(left.numbers[found], came.numbers):
        raise RuntimeError("packets came that had not left")
    return came.stamps - left.stamps[found]


def _jitter(delay: Nanoseconds) -> dict[str, float]:
    """Relative errors of mean and deviation."""
    return {
        "packets": len(delay),
        "mean_error": round(float(delay.mean()) / DELAY_NS - 1, 5),
        "deviation_error": round(float(delay.std()) / JITTER_NS - 1, 5),
    }


def _share(found: int, of: int, asked: float) -> dict[str, Any]:
    """A number of packets, and whether what was asked lies in its 99 % interval (Wilson, 1927)."""
    middle = (found + Z99**2 / 2) / (of + Z99**2)
    half = Z99 / (of + Z99**2) * math.sqrt(found * (of - found) / of + Z99**2 / 4)
    inside = middle - half <= asked <= middle + half
    return {"found": found, "of": of, "asked": asked, "inside": inside}


def _gilbert(lost: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, float]:
    """Relative errors of the two transitions: in this model what is lost is the bad state."""
    before, after = lost[:-1], lost[1:]
    p = float(after[~before].mean())
    r = float((~after[before]).mean())
    errors = {"p_error": p / P - 1, "r_error": r / R - 1}
    return {"packets": len(lost), **{name: round(each, 5) for name, each in errors.items()}}


def _simulated(settings: dict[str, Any]) -> tuple[Any, Any, int]:
    """Delays, whether each packet was lost, number of duplicates; in virtual time."""
    step = 1_000_000_000 // IMPAIRED_RATE
    packets = "".join(f"{i * step},{SIZE}\n" for i in range(SIMULATED))
    words: list[str | Path] = [HOST, "emulate", "--simulate", json.dumps(settings)]
    done = subprocess.run(words, input=packets, check=True, capture_output=True, text=True)
    head = done.stdout.partition("\n")[0].split(",")
    read = dict.fromkeys(head, np.int64) | {"fate": "U8", "reason": "U8"}
    out = np.loadtxt(io.StringIO(done.stdout), delimiter=",", skiprows=1, dtype=list(read.items()))
    lost = np.zeros(SIMULATED, bool)
    departed = out["fate"] == "departs"
    lost[out["number"][~departed] - 1] = True
    delay = (out["due_ns"] - out["enqueued_ns"])[departed]
    return delay, lost, int(out["duplicate"][departed].sum())


def _throughput(bench: Bench, mover: str) -> dict[str, Any]:
    flood = bench.build("flood")
    settings = {"delay_ns": 1_000_000}
    try:
        with emulated(bench, settings, {}, mover) as (sender, receiver, emulator):
            # To nobody: the receiver's kernel drops what is not for it before it costs anything.
            nobody = ("lladdr", "02:00:00:00:00:01", "dev", WIRE)
            sender.run("ip", "neighbour", "replace", RECEIVER, *nobody)
            full = _flood(flood, 0, sender, receiver, emulator)
            low, high = -1, FLOOD_OCTAVES * FLOOD_STEPS
            lossless: dict[str, Any] = {}
            while high - low > 1:
                middle = (low + high) // 2
                rate = round(LOWEST_FLOOD * 2 ** (middle / FLOOD_STEPS))
                run = _flood(flood, rate, sender, receiver, emulator)
                if run["delivered"] >= LOSSLESS * run["sent"]:
                    low, lossless = middle, run
                else:
                    high = middle
            report = emulator.report()
    except RuntimeError as error:
        return {"skipped": str(error)}
    return {"full": full, "lossless": lossless, "problems": report["problems"]}


def _flood(
    flood: Path, rate: int, sender: Namespace, receiver: Namespace, emulator: Emulator
) -> dict[str, Any]:
    busy, cpus = emulator.cpu_seconds(), _cpus()
    before, _ = receiver.received()
    words: list[str | Path] = [
        flood,
        RECEIVER,
        str(PORT),
        str(FLOOD_BYTES),
        str(rate),
        str(FLOOD_S),
    ]
    sent, seconds = map(float, sender.run(*words, cpu=OTHER_CPU).split())
    packets = before
    while (now := receiver.received()[0]) > packets:
        packets = now
        time.sleep(SETTLE_S)
    user, system = (b - a for a, b in zip(busy, emulator.cpu_seconds(), strict=True))
    after = _cpus()
    return {
        "sent_per_s": round(sent / seconds),
        "delivered_per_s": round((packets - before) / seconds),
        "sent": int(sent),
        "delivered": packets - before,
        "mover_user_cpus": round(user / seconds, 2),
        "mover_system_cpus": round(system / seconds, 2),
        "softirq_cpus": {
            str(cpu): round((after[cpu] - cpus[cpu]) / seconds, 2)
            for cpu in (OTHER_CPU, MEASURED_CPU)
        },
    }


def _cpus() -> dict[int, float]:
    """Seconds that each CPU spent in soft interrupts."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            found[int(name[3:])] = int(fields[6]) / os.sysconf("SC_CLK_TCK")
    return found
