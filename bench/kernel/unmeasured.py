"""What recording system calls costs a program that is not measured."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from figures import in_turns
from targets import added, spread

from kernel import runs
from kernel.peers import Peer, tracepoints

ROUNDS = 7
SECONDS = 2
EXPERIMENT = f"""\
name: unmeasured
hosts: [h1]
components:
  measured: {{host: h1, run: sleep {SECONDS + 1}, start: run, ready: {{exit: 0}}}}
phases:
  - {{name: run, measured: true, timeout: 60s}}
trace: {{kernel: KERNEL}}
"""
# By kind: `trace: kernel`, and the peer that records instead. `auto` has no system calls in it.
KINDS = {
    "off": ("off", ""),
    "auto": ("auto", ""),
    "syscall": ('["syscall:*"]', ""),
    "call": ('["call:*"]', ""),
    "perf record": ("off", "perf"),
    "trace-cmd record": ("off", "trace-cmd"),
}


def measure(folder: Path) -> dict[str, Any]:
    """By kind of recording: ns of a system call, and what that is more than without."""
    program = runs.compiled("unmeasured.c", folder)
    every = {
        name: partial(_once, folder, program, kernel, peer)
        for name, (kernel, peer) in KINDS.items()
    }
    found = in_turns("kernel-unmeasured", ROUNDS, every)
    values = found.pop("values")
    off = values.get("off", {})
    kinds = {
        kind: {name: spread(each) for name, each in of_kind.items()}
        | {f"{name}_added": added(of_kind[name], off[name]) for name in off if kind != "off"}
        for kind, of_kind in values.items()
    }
    return {**found, "kinds": kinds}


def _once(folder: Path, program: Path, kernel: str, peer: str) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(dir=folder))
    experiment = folder / "unmeasured.yaml"
    experiment.write_text(EXPERIMENT.replace("KERNEL", kernel))
    found: dict[str, float] = {}
    try:
        events = tracepoints(["syscall:*"])
        with Peer(peer, events, folder) if peer else nullcontext() as recording:
            results = runs.results_of(experiment, measured=_beside(program, found, recording))
            counts = recording.figures() if recording else {}
    finally:
        shutil.rmtree(folder)
    if kernel != "off":
        classes = runs.recorded(results)["classes"].values()
        counts = {
            "events": sum(each["emitted"] for each in classes),
            "dropped": sum(each["dropped"] for each in classes),
        }
    return found | counts


@contextmanager
def _beside(program: Path, found: dict[str, float], peer: Peer | None) -> Iterator[None]:
    """Runs the program in the machine's own namespaces, where the run has no hosts."""
    time.sleep(0.2)
    words = [*runs.bounded(SECONDS + 30), program, str(SECONDS)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found |= json.loads(done.stdout)
    if peer is not None:
        peer.stop()
    yield
