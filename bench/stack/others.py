"""Traffic of others on a device of the stack's: see `exchange others` of crates/stack-service."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from examples import example
from figures import in_turns

from stack.exchange import once, ratio, spreads

ROUNDS = 9
COUNT = 200_000
SOURCE = Path(__file__).with_name("pass.bpf.c")
PARTS = ("ns", "gbit_per_s")


def others() -> dict[str, Any]:
    """By what looks at the packets: ns for a datagram, Gbit/s; the service's ratios to each."""
    if os.geteuid() != 0:
        return {"skipped": "network namespaces and programs on devices need root"}
    if shutil.which("clang") is None:
        return {"skipped": "no clang; scripts/setup installs it"}
    program = example("exchange", "loopscope-stack-service")
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as folder:
        passing = Path(folder) / "pass.o"
        subprocess.run(["clang", "-O2", "-target", "bpf", "-c", SOURCE, "-o", passing], check=True)
        calls = {
            "none": partial(once, program, "others", "none", str(COUNT)),
            "xdp": partial(once, program, "others", "xdp", str(COUNT), str(passing)),
            "service": partial(once, program, "others", "service", str(COUNT)),
        }
        found = in_turns("stack-others", ROUNDS, calls)
    values = found.pop("values", {})
    found["kinds"] = spreads(values)
    found["ratios"] = {
        kind: {part: ratio(values["service"][part], values[kind][part]) for part in PARTS}
        for kind in ("xdp", "none")
        if kind in values and "service" in values
    }
    return found
