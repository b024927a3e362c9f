"""What delayed the clocks' probes of a live run. Needs root and tracefs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from machine import Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root", "real_time")]
Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

# `hog`, of real time, takes the agents' processor for 9 ms at a time. The probes go on meanwhile.
DELAYED = """\
name: delayed
hosts: [h1, h2]
clock: {rate: 1000Hz}
components:
  source: {host: h1, run: loopscope-host pipe source, with: {to: sink, count: 300, period: 10ms}}
  sink: {host: h2, run: loopscope-host pipe sink}
  hog: {host: h2, run: chrt -f 10 python3 HOG, ready: {line: here}}
phases:
  - {name: listen, timeout: 20s, kernel: []}
  - {name: connect, timeout: 20s, kernel: []}
  - {name: run, measured: true, timeout: 60s}
trace: {user: ["pipe:*"], kernel: ["sched:*", "irq:*", "softirq:*"]}
measure:
  paths:
    loop:
      key: id
      events: [source/pipe:sent, sink/pipe:received]
"""
HOG = """\
import time
print("here", flush=True)
while True:
    end = time.monotonic() + 0.009
    while time.monotonic() < end:
        pass
    time.sleep(0.007)
"""
BY_HOG = "behind hog of h2"
OVER_NS = 500_000


@pytest.fixture
def on_one_processor(machine: Machine) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command of which every thread has the same processor."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(allowed)})
        try:
            return machine.command(*words)
        finally:
            os.sched_setaffinity(0, allowed)

    return run


def test_a_thread_of_real_time_delays_the_answers_and_not_the_stamps(
    machine: Machine,
    results: Read,
    on_one_processor: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    hog = machine.write("hog.py", HOG)
    machine.write("delayed.yaml", DELAYED.replace("HOG", str(hog)))
    done = on_one_processor("run", "delayed.yaml", "--json")
    read = results(done)
    told = machine.command(
        *("why", "runs/delayed/latest", "--clock", "--json"),
        *("--over", f"{OVER_NS}ns", "--worst", "1000000"),
    )
    assert told.returncode == 0, told.stderr
    (pair,) = (json.loads(line) for line in told.stdout.splitlines())
    assert (pair["host"], pair["peer"]) == ("h2", "h1")
    every = pair["exchanges"] + pair["unrecorded"]
    assert every == read["clock"]["hosts"]["h2"]["exchanges"], done.stderr
    assert pair["exchanges"] > 1000

    # Each exchange is explained as a whole.
    assert len(pair["worst"]) == pair["exchanges"]
    unknown = Counter(
        part["name"] == "unknown"
        for each in pair["worst"]
        for hop in each["hops"]
        for part in hop["parts"]
    )
    for each in pair["worst"]:
        assert sum(hop["ns"] for hop in each["hops"]) == each["ns"]
        for hop in each["hops"]:
            assert sum(part["ns"] for part in hop["parts"]) == hop["ns"], hop
    assert unknown[True] < unknown[False] / 10, unknown

    # The real-time thread delays the threads that answer and read.
    legs = {leg["name"]: leg for leg in pair["legs"]}
    ns: dict[str, Counter[str]] = {}
    for name, leg in legs.items():
        ns[name] = Counter()
        for cause in leg["causes"]:
            by = BY_HOG if BY_HOG in cause["cause"] else f"{cause['name']}: {cause['cause']}"
            ns[name][by] += cause["ns"]
        if leg["slow"]:
            assert sum(cause["share"] for cause in leg["causes"]) == pytest.approx(1)
    waits = ns["answer"] + ns["read"]
    # Other tests may have a real-time thread on this processor as well.
    assert waits[BY_HOG] > waits.total() / 4, waits.most_common(5)
    # The kernel stamps a packet before a thread gets it.
    assert pair["stamps"] == {"kernel": 4 * pair["exchanges"]}
    ways = ns["request"] + ns["reply"]
    assert ways[BY_HOG] < waits[BY_HOG] / 10, ways.most_common(5)

    shown = machine.command("why", "runs/delayed/latest", "--clock", "--worst", "1").stdout
    assert re.search(r"^h2 asks h1: [\d ]+ exchanges", shown), shown
    assert re.search(r"^answer +in h1 +[\d.]+ ", shown, re.MULTILINE), shown
    assert re.search(r"^ +\d+ %  runnable: .* behind hog of h2$", shown, re.MULTILINE), shown
    assert re.search(r"^exchange \d+: h2 → h1 → h2 ", shown, re.MULTILINE), shown

    excluded = machine.command("why", "runs/delayed/latest", "--clock", "--rank")
    assert excluded.returncode == 2
    assert "--clock goes with --worst, --over, --point and --json alone" in excluded.stderr
    # As where no kernel was recorded.
    (recorded,) = machine.directory.glob("runs/delayed/2*/base/1/timeline/kernel")
    shutil.rmtree(recorded)
    without = machine.command("why", "runs/delayed/latest", "--clock")
    assert without.returncode == 2
    assert "has no events of the kernel's scheduler: record them with `kernel: [" in without.stderr
