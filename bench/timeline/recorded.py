"""The traces that are measured, and processes whose time and memory are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH / "trace"))

from measure import Bench  # noqa: E402

THREADS = 2
RATE = 5_000_000  # of each thread, events/s


@dataclass(frozen=True)
class Done:
    """What a process took."""

    printed: str
    seconds: float
    cpu_s: float
    peak_bytes: int


def run(command: Sequence[str | Path], one_cpu: bool = False, good: Sequence[int] = (0,)) -> Done:
    """Runs a program, on the last CPU alone with `one_cpu`; `good` are exit codes of success."""
    alone = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))] if one_cpu else []
    began = time.perf_counter()
    process = subprocess.Popen([*alone, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in good:
        raise RuntimeError(f"{command}: exit code {process.returncode}")
    return Done(printed, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)


class Recorded:
    """Traces by their number of events, each recorded once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bench = Bench(directory, False)

    def events(self, count: int) -> tuple[Path, int]:
        """A recording of about so many events of 14 bytes by two threads, and how many it has."""
        place = self.directory / f"events-{count}"
        if not place.exists():
            seconds = count / THREADS / RATE
            words = ["loopscope", str(THREADS), str(RATE), str(seconds)]
            program = self.bench.build("sustained")
            self.bench.record(program, *words, output=place, keep=True)
        account = json.loads((place / "loss.json").read_text())
        return place, account["recorded"]
