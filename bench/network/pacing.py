"""Pace against iperf3: intervals, stalls, and the largest rate that is steady."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from targets import spread

from network import intervals
from network.bench import HOST, MEASURED_CPU, OTHER_CPU, Bench
from network.capture import Capture, capture
from network.namespaces import RECEIVER, Namespace, wire

PORT = 5001
SIZE = 1000  # Bytes of a datagram.
INTERVAL_NS = 100_000

ROUNDS = 3
ROUND_S = 4

STALLED_S = 60
STALLS = 10
STALL_S = 0.010
STALLED_PEER_S = 10
SEED = 20071213  # It draws the instants of the stalls.

STEADY = 0.001  # The share of the requested rate by which a second's rate may differ.
LOWEST_RATE = 10_000  # Packets/s.
OCTAVES, STEPS = 8, 8  # Above the lowest rate; steps of an octave.
STEADY_S = 3

# Takes datagrams, so that no ICMP answers them, and leaves them to its full buffer.
SINK = """
import signal, socket, sys
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.bind(("", int(sys.argv[1])))
print(flush=True)
signal.pause()
"""


@contextmanager
def sink(receiver: Namespace) -> Iterator[None]:
    words = [sys.executable, "-c", SINK, str(PORT)]
    with receiver.process(*words, cpu=OTHER_CPU, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield


@contextmanager
def peer(receiver: Namespace) -> Iterator[None]:
    words = ["iperf3", "--server", "--one-off", "--forceflush"]
    with receiver.process(*words, cpu=OTHER_CPU, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield


def pace(rate: int, seconds: float, *options: str, size: int = SIZE) -> list[str]:
    """Words that send `rate` packets/s."""
    words = [str(HOST), "pace", "send", "--to", f"{RECEIVER}:{PORT}", "--size", f"{size}B"]
    words += ["--rate", f"{rate * size * 8}bit", "--duration", f"{seconds}s", "--json"]
    return [*words, *options]


def iperf3(rate: int, seconds: int) -> list[str]:
    words = ["iperf3", "--udp", "--client", RECEIVER, "--length", str(SIZE), "--json"]
    return [*words, "--bitrate", str(rate * SIZE * 8), "--time", str(seconds)]


def compare(bench: Bench) -> dict[str, Any]:
    """Errors of the intervals at 10 000 packets/s, at the receiver's kernel stamp; µs.

    Rounds take pace, iperf3 and the floor, a program that only reads the clock, in turn.
    """
    floor = bench.build("floor")
    rate = 1_000_000_000 // INTERVAL_NS
    found: dict[str, list[dict[str, float]]] = {"pace": [], "iperf3": [], "floor": []}
    for _ in range(ROUNDS):
        with wire() as (sender, receiver), sink(receiver):
            sent, seen = _captured(
                bench, sender, receiver, pace(rate, ROUND_S, "--timer", "sleep-then-spin")
            )
        _all_seen("pace", int(json.loads(sent)["sent"]), seen)
        found["pace"].append(_quality(seen))
        with wire() as (sender, receiver), peer(receiver):
            _, seen = _captured(bench, sender, receiver, iperf3(rate, ROUND_S))
        found["iperf3"].append(_quality(seen))
        words = ["taskset", "--cpu-list", MEASURED_CPU, floor, INTERVAL_NS, rate * ROUND_S]
        beats = subprocess.run([*map(str, words)], check=True, capture_output=True).stdout
        found["floor"].append(_quality(Capture(np.frombuffer(beats, np.int64))))
    result: dict[str, Any] = {
        who: {part: spread([each[part] for each in rounds]) for part in rounds[0]}
        for who, rounds in found.items()
    }
    p99s = zip(found["iperf3"], found["pace"], strict=True)
    result["iperf3_to_pace_p99"] = spread([theirs["p99"] / ours["p99"] for theirs, ours in p99s])
    return result


def stalls(bench: Bench) -> dict[str, Any]:
    """Ten stalls of 10 ms in a minute: bursts, and whether every packet is accounted for."""
    rate = 1_000_000_000 // INTERVAL_NS
    with wire() as (sender, receiver), sink(receiver):
        words = pace(rate, STALLED_S, "--timer", "sleep-then-spin")
        said, seen = _captured(bench, sender, receiver, words, _instants(STALLED_S, STALLS))
    sent = json.loads(said)
    with wire() as (sender, receiver), peer(receiver):
        # Its bursts come with every stall; fewer will do.
        few = _instants(STALLED_PEER_S, STALLS // 3)
        _, theirs = _captured(bench, sender, receiver, iperf3(rate, STALLED_PEER_S), few)
    return {
        "stalls": STALLS,
        "stall_ms": STALL_S * 1e3,
        "seconds": STALLED_S,
        "longest_burst": intervals.longest_burst(seen.stamps, INTERVAL_NS),
        "iperf3_longest_burst": intervals.longest_burst(theirs.stamps, INTERVAL_NS),
        "ideal": rate * STALLED_S,
        "seen": len(seen.stamps),
        "sent": sent["sent"],
        "skipped": sent["skipped"],
    }


def rates(_: Bench) -> dict[str, Any]:
    """The largest rate at which each second's rate is within 0.1 % of it, packets/s."""
    result: dict[str, Any] = {"seconds": STEADY_S, "largest_deviation": STEADY, "tried": {}}
    for who, words, taker in (("pace", pace, sink), ("iperf3", iperf3, peer)):
        low, high = -1, OCTAVES * STEPS
        tried = {}
        while high - low > 1:
            middle = (low + high) // 2
            rate = round(LOWEST_RATE * 2 ** (middle / STEPS))
            # What is not the sender's fault seldom comes twice.
            for _ in range(2):
                with wire() as (sender, receiver), taker(receiver):
                    deviation = _deviation(sender, receiver, words(rate, STEADY_S + 1), rate)
                if deviation < STEADY:
                    break
            tried[rate] = round(deviation, 6)
            low, high = (middle, high) if deviation < STEADY else (low, middle)
        steady = [rate for rate, deviation in tried.items() if deviation < STEADY]
        result[who] = max(steady, default=0)
        result["tried"][who] = tried
    return result


def _captured(
    bench: Bench,
    sender: Namespace,
    receiver: Namespace,
    words: Sequence[str],
    stops: Sequence[float] = (),
) -> tuple[str, Capture]:
    """What a sender prints and what came of it, stopped at some seconds for `STALL_S`."""
    with capture(bench.directory, OTHER_CPU, (receiver, "in")) as (seen,):
        # Pace says on standard error that nobody confirms the end: the sink does not.
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with sender.process(*words, cpu=MEASURED_CPU, **pipes) as process:
            start = time.monotonic()
            for stop in stops:
                time.sleep(start + stop - time.monotonic())
                process.send_signal(signal.SIGSTOP)
                time.sleep(STALL_S)
                process.send_signal(signal.SIGCONT)
            said, errors = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit {process.returncode}: {errors.strip()}")
    return said, seen.of_size(SIZE)


def _instants(seconds: int, count: int) -> list[float]:
    """The instants of the stalls, s: one in each of equal parts of all but the two end seconds."""
    draw = random.Random(SEED)
    part = (seconds - 2) / count
    return [1 + part * (i + draw.uniform(0.1, 0.9)) for i in range(count)]


def _quality(seen: Capture) -> dict[str, float]:
    burst = float(intervals.longest_burst(seen.stamps, INTERVAL_NS))
    errors = intervals.percentiles(intervals.errors(seen.stamps, INTERVAL_NS))
    return {**errors, "longest_burst": burst}


def _all_seen(who: str, sent: int, seen: Capture) -> None:
    if sent != len(seen.stamps):
        raise RuntimeError(f"{who} sent {sent} packets, {len(seen.stamps)} came")


def _deviation(sender: Namespace, receiver: Namespace, words: Sequence[str], rate: int) -> float:
    """The worst of some seconds, as a part of the rate, while a sender runs."""
    start, _ = receiver.received()
    with sender.process(
        *words, cpu=MEASURED_CPU, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while receiver.received()[0] < start + rate // 10:
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(words)}: exit {process.returncode}, nothing came")
            time.sleep(0.01)
        samples = []
        first = time.monotonic()
        for second in range(STEADY_S + 1):
            time.sleep(max(0.0, first + second - time.monotonic()))
            samples.append(_sample(receiver))
        process.wait()
    seconds = zip(samples, samples[1:], strict=False)
    return max(abs((n1 - n0) * 1e9 / (t1 - t0) / rate - 1) for (t0, n0), (t1, n1) in seconds)


def _sample(receiver: Namespace) -> tuple[float, int]:
    """A time and how many packets had come by then; read again where that took long."""
    best = None
    for _ in range(5):
        before = time.monotonic_ns()
        packets, _ = receiver.received()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = after - before, (before + after) / 2, packets
    assert best
    return best[1], best[2]
