"""A connection over a veth pair: see the example `exchange` of crates/stack-service."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from examples import build, example
from figures import in_turns
from targets import spread

ROUNDS = 9
ROUND_TRIPS = 20_000
MEGABYTES = 500
SECONDS = 5
KERNEL = ("blocking", "spinning")
STACK = ("stack", "unmodified", "unmodified-spin", "unmodified-block")
KERNEL_UDP = ("udp-blocking", "udp-spinning")
STACK_UDP = ("udp-unmodified", "udp-unmodified-spin", "udp-unmodified-block")
KERNEL_BULK = ("blocking-bulk", "unsegmented-bulk")
STACK_BULK = ("stack-bulk", "unmodified-bulk")
Values = Mapping[str, Mapping[str, list[float]]]


def round_trips() -> dict[str, Any]:
    """By kind: percentiles of µs and CPU time; of the stack's, their ratios to the kernel's."""
    found = _measured("stack-round-trip", KERNEL + STACK, ROUND_TRIPS)
    return _compared(found, (STACK, KERNEL), ("p50_us", "p999_us"))


def datagrams() -> dict[str, Any]:
    """The same for datagrams of UDP."""
    found = _measured("stack-udp-round-trip", KERNEL_UDP + STACK_UDP, ROUND_TRIPS)
    return _compared(found, (STACK_UDP, KERNEL_UDP), ("p50_us", "p999_us"))


def bulk() -> dict[str, Any]:
    """By kind: Gbit/s, and how many processors both ends took; the stack's ratios."""
    found = _measured("stack-bulk", KERNEL_BULK + STACK_BULK, MEGABYTES)
    return _compared(found, (STACK_BULK, KERNEL_BULK), ("gbit_per_s",))


def idle() -> dict[str, Any]:
    """By kind: percent of a CPU that a client takes which waits for seconds."""
    if os.geteuid() != 0:
        return {"skipped": "network namespaces and programs on devices need root"}
    build("-p", "loopscope-preload")
    program = example("exchange", "loopscope-stack-service")
    kinds = ("kernel", "unmodified")
    calls = {kind: partial(once, program, "idle", kind, str(SECONDS)) for kind in kinds}
    found = in_turns("stack-idle", ROUNDS, calls)
    found["kinds"] = spreads(found.pop("values", {}))
    return found


def _compared(
    found: dict[str, Any], kinds: tuple[tuple[str, ...], tuple[str, ...]], parts: tuple[str, ...]
) -> dict[str, Any]:
    """The spreads by kind, and the stack's ratios to the kernel's kinds in the same round."""
    values: Values = found.pop("values", {})
    found["kinds"] = spreads(values)
    stack, kernel = ([kind for kind in some if kind in values] for some in kinds)
    found["ratios"] = {
        kind: {
            other: {part: ratio(values[kind][part], values[other][part]) for part in parts}
            for other in kernel
        }
        for kind in stack
    }
    return found


def _measured(figure: str, kinds: tuple[str, ...], count: int) -> dict[str, Any]:
    if os.geteuid() != 0:
        return {"skipped": "network namespaces and programs on devices need root"}
    build("-p", "loopscope-preload")
    program = example("exchange", "loopscope-stack-service")
    return in_turns(
        figure, ROUNDS, {kind: partial(once, program, kind, str(count)) for kind in kinds}
    )


def once(program: Path, *words: str) -> dict[str, float]:
    """What the program measures, asked with these words."""
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def spreads(values: Values) -> dict[str, dict[str, dict[str, float]]]:
    """By kind and part: the spread of all rounds."""
    return {
        kind: {part: spread(each) for part, each in measured.items()}
        for kind, measured in values.items()
    }


def ratio(mine: list[float], its: list[float]) -> dict[str, float]:
    """The spread of the ratios in the same rounds."""
    return spread([one / other for one, other in zip(mine, its, strict=False)])
