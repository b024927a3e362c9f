"""Messages whose last segment is lost: see `exchange lost` of crates/stack-service."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from examples import build, example
from figures import in_turns

from stack.exchange import once, ratio, spreads

ROUNDS = 5
COUNT = 20
KINDS = ("kernel", "unmodified")
# Bytes of a message: one segment, and ten of them.
SIZES = (64, 14_000)
# The least retransmission time-out, µs: by default, and as it can be set.
LEAST = (200_000, 1_000)
SOURCE = Path(__file__).with_name("drop.bpf.c")


def lost() -> dict[str, Any]:
    """By kind, bytes and least time-out: ms until the answer; the stack's ratios to the kernel."""
    if os.geteuid() != 0:
        return {"skipped": "network namespaces and programs on devices need root"}
    if shutil.which("clang") is None:
        return {"skipped": "no clang; scripts/setup installs it"}
    if not Path("/proc/sys/net/ipv4/tcp_rto_min_us").exists():
        return {"skipped": "net.ipv4.tcp_rto_min_us needs Linux 6.11"}
    build("-p", "loopscope-preload")
    program = example("exchange", "loopscope-stack-service")
    cases = [f"{size} {least}" for size in SIZES for least in LEAST]
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as folder:
        drop = Path(folder) / "drop.o"
        subprocess.run(["clang", "-O2", "-target", "bpf", "-c", SOURCE, "-o", drop], check=True)
        calls = {
            f"{kind} {size} {least}": partial(
                once, program, "lost", kind, str(size), str(COUNT), str(least), str(drop)
            )
            for size in SIZES
            for least in LEAST
            for kind in KINDS
        }
        found = in_turns("stack-lost", ROUNDS, calls)
    values = found.pop("values", {})
    found["kinds"] = spreads(values)
    kernel, stack = KINDS
    found["ratios"] = {
        case: ratio(values[f"{stack} {case}"]["p50_ms"], values[f"{kernel} {case}"]["p50_ms"])
        for case in cases
        if f"{stack} {case}" in values and f"{kernel} {case}" in values
    }
    return found
