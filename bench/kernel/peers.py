"""Peers that record tracepoints of all processors: `perf record` and `trace-cmd record`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from kernel import runs
from loopscope.experiment.kernel_events import selected

LIMIT_S = 60
TRACEFS = Path("/sys/kernel/tracing")
OPTIONS = {
    "perf": ["-a"],
    # It neither sets up nor resets the function tracer, of which some kernels refuse every use (not
    # even root may write `kernel.ftrace_enabled` there), and it does not put back anything.
    "trace-cmd": ["-d", "-k"],
}
# The kernel does not let perf sample them, as its samples make them.
REFUSED = {"perf": {"irq_vectors:irq_work_exit"}}
# What `trace-cmd` leaves in another state than it was in.
STATE = (TRACEFS / "tracing_on", TRACEFS / "options/function-trace")


def tracepoints(patterns: Iterable[str]) -> list[str]:
    """Those that loopscope records by patterns, as peers name them.

    Without those that this kernel has not, and without loopscope's own programs in the kernel.
    """
    every = [event for of_class in selected(patterns).values() for event in of_class]
    return [event.replace("/", ":") for event in every if (TRACEFS / "events" / event).exists()]


class Peer:
    """A recording by one of them: it begins with `with`, and ends where it is stopped."""

    def __init__(self, name: str, events: Iterable[str], folder: Path) -> None:
        self.name = name
        events = [event for event in events if event not in REFUSED.get(name, ())]
        self._events = [word for event in events for word in ("-e", event)]
        self._output = folder / f"{name}.data"
        self._said = ""

    def __enter__(self) -> Peer:
        program = shutil.which(self.name)
        if program is None:
            raise RuntimeError(f"{self.name} is not installed: scripts/setup --bench")
        self._state = {file: file.read_text() for file in STATE if file.exists()}
        words = [program, "record", *OPTIONS[self.name], *self._events, "-o", str(self._output)]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        time.sleep(1.0)
        if self._process.poll() is not None:
            self.__exit__()
            raise RuntimeError(f"{self.name} record ended by itself: {self._said}")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.name == "trace-cmd":
            (TRACEFS / "events/enable").write_text("0")
            (TRACEFS / "trace").write_text("")
            for file, text in self._state.items():
                file.write_text(text)
        for file in self._output.parent.glob(f"{self._output.name}*"):
            file.unlink()

    def stop(self) -> None:
        """Has the peer write all that it recorded."""
        assert self._process.stderr is not None
        if self._process.stderr.closed:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._said = self._process.communicate(timeout=LIMIT_S)[1]
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._said = self._process.communicate()[1]

    def figures(self) -> dict[str, float]:
        """Events and bytes that it has written, and events that it lost, when it has stopped."""
        if self.name == "perf":
            words = [*runs.bounded(LIMIT_S), "perf", "report", "--stdio", "--sort", "cpu", "-i"]
            report = subprocess.run(
                [*words, self._output], capture_output=True, text=True, check=True
            )
            return {
                "events": _sum(r"\((\d+) samples\)", self._said),
                "dropped": _sum(r"^# Total Lost Samples: (\d+)", report.stdout),
                "bytes": self._output.stat().st_size,
            }
        counts = "\n".join(each.read_text() for each in TRACEFS.glob("per_cpu/cpu*/stats"))
        return {
            "events": _sum(r"^read events: (\d+)", counts),
            "dropped": _sum(r"^(?:overrun|commit overrun|dropped events): (\d+)", counts),
            # It compresses what it has written when it ends.
            "bytes": _sum(r"(\d+)(?: uncompressed\)| bytes in size$)", self._said),
        }


def _sum(pattern: str, text: str) -> int:
    return sum(int(each) for each in re.findall(pattern, text, re.MULTILINE))
