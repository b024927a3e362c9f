"""Requests over many connections: see `exchange many` of crates/stack-service."""

from __future__ import annotations

import os
import resource
from functools import partial
from typing import Any

from examples import build, example
from figures import in_turns

from stack.exchange import once, ratio, spreads

ROUNDS = 5
SECONDS = 3
CONNECTIONS = (10, 100, 1000, 10_000)
KINDS = ("kernel", "unmodified")
# Descriptors of a process besides two for each connection.
OTHERS = 200
PARTS = ("per_s", "p99_us", "cpu_us")


def many() -> dict[str, Any]:
    """By number of connections and kind: requests a second, µs, CPU time; the stack's ratios."""
    if os.geteuid() != 0:
        return {"skipped": "network namespaces and programs on devices need root"}
    build("-p", "loopscope-preload")
    program = example("exchange", "loopscope-stack-service")
    counts = numbers(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    calls = {
        f"{kind} {count}": partial(once, program, "many", kind, str(count), str(SECONDS))
        for count in counts
        for kind in KINDS
    }
    found = in_turns("stack-many", ROUNDS, calls)
    values = found.pop("values", {})
    found["kinds"] = spreads(values)
    kernel, stack = KINDS
    found["ratios"] = {
        str(count): {
            part: ratio(values[f"{stack} {count}"][part], values[f"{kernel} {count}"][part])
            for part in PARTS
        }
        for count in counts
        if f"{stack} {count}" in values and f"{kernel} {count}" in values
    }
    return found


def numbers(descriptors: int) -> list[int]:
    """Numbers of connections, as far as so many descriptors of a process allow."""
    if descriptors == resource.RLIM_INFINITY:
        return list(CONNECTIONS)
    most = (descriptors - OTHERS) // 2
    return sorted({min(count, most) for count in CONNECTIONS if min(count, most) > 0})
