"""LTTng's userspace tracer as the peer: a session daemon of the bench's own.

Meant for the namespaces that run.py makes: there ``/run`` and ``/dev/shm``, where LTTng keeps its
sockets, are the bench's alone, and nothing outlives it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READY_S = 20


def missing() -> str | None:
    """Why LTTng cannot be measured here; ``None`` if it can."""
    for tool in ("lttng", "lttng-sessiond"):
        if shutil.which(tool) is None:
            return f"no {tool}; scripts/setup --bench installs it"
    if not list(Path("/usr/include").glob("**/lttng/tracepoint.h")):
        return "no lttng/tracepoint.h; scripts/setup --bench installs it"
    return None


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def consumer_cpu_seconds() -> float:
    """CPU time of the daemons that write LTTng's streams."""
    total = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().startswith("lttng-consumerd"):
                total += cpu_seconds(int(process.name))
        except OSError:
            continue
    return total


@contextmanager
def daemon(home: Path) -> Iterator[None]:
    """Runs a session daemon; ``LTTNG_HOME`` is set meanwhile."""
    os.environ["LTTNG_HOME"] = str(home)
    process = subprocess.Popen(
        ["lttng-sessiond", "--no-kernel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + READY_S
        while subprocess.run(["lttng", "list"], capture_output=True, check=False).returncode != 0:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"lttng-sessiond is not up after {READY_S} s")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()
        del os.environ["LTTNG_HOME"]


class Recording:
    """What a session has recorded, once it is over."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.discarded = 0
        self.consumer_cpu_s = 0.0

    def bytes(self) -> int:
        """The size of the stream files, without metadata and index."""
        files = (path for path in self.output.rglob("*") if path.is_file())
        return sum(
            path.stat().st_size
            for path in files
            if path.name != "metadata" and path.suffix != ".idx"
        )


def _lttng(*words: str) -> str:
    done = subprocess.run(["lttng", *words], check=True, capture_output=True, text=True)
    return done.stdout


@contextmanager
def session(output: Path, *events: str) -> Iterator[Recording]:
    """Records events into ``output``, with the buffers that LTTng has by default."""
    name = output.name
    recording = Recording(output)
    _lttng("create", name, f"--output={output}")
    for event in events:
        _lttng("enable-event", "--userspace", event, f"--session={name}")
    _lttng("start", name)
    before = consumer_cpu_seconds()
    try:
        yield recording
    finally:
        _lttng("stop", name)
        shown = _lttng("list", name)
        recording.discarded = sum(map(int, re.findall(r"Discarded events: (\d+)", shown)))
        recording.consumer_cpu_s = consumer_cpu_seconds() - before
        _lttng("destroy", name)
