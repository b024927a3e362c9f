"""A connection over a veth pair: see the example `exchange` of crates/stack-service."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from examples import example
from figures import in_turns
from targets import spread

ROUNDS = 9
ROUND_TRIPS = 20_000
MEGABYTES = 500
ROUND_TRIP_KINDS = ("blocking", "spinning", "stack")
BULK_KINDS = ("blocking-bulk", "unsegmented-bulk", "stack-bulk")
Values = Mapping[str, Mapping[str, list[float]]]


def round_trips() -> dict[str, Any]:
    """By kind: percentiles of µs and CPU time; of the stack's, their ratios to the kernel's."""
    found = _measured("stack-round-trip", ROUND_TRIP_KINDS, ROUND_TRIPS)
    values: Values = found.pop("values", {})
    found["kinds"] = {kind: _spreads(values[kind]) for kind in values}
    found["ratios"] = {
        kind: {part: _ratio(values, kind, part) for part in ("p50_us", "p999_us")}
        for kind in ("blocking", "spinning")
        if {kind, "stack"} <= values.keys()
    }
    return found


def bulk() -> dict[str, Any]:
    """By kind: Gbit/s, and how many processors both ends took; the stack's ratios."""
    found = _measured("stack-bulk", BULK_KINDS, MEGABYTES)
    values: Values = found.pop("values", {})
    found["kinds"] = {kind: _spreads(values[kind]) for kind in values}
    found["ratios"] = {
        kind: {"gbit_per_s": _ratio(values, kind, "gbit_per_s", "stack-bulk")}
        for kind in ("blocking-bulk", "unsegmented-bulk")
        if {kind, "stack-bulk"} <= values.keys()
    }
    return found


def _measured(figure: str, kinds: tuple[str, ...], count: int) -> dict[str, Any]:
    if os.geteuid() != 0:
        return {"skipped": "network namespaces and programs on devices need root"}
    program = example("exchange", "loopscope-stack-service")
    return in_turns(figure, ROUNDS, {kind: partial(_once, program, kind, count) for kind in kinds})


def _once(program: Path, kind: str, count: int) -> dict[str, float]:
    done = subprocess.run(
        [program, kind, str(count)], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _spreads(values: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    return {part: spread(each) for part, each in values.items()}


def _ratio(values: Values, kind: str, part: str, stack: str = "stack") -> dict[str, float]:
    """The stack's by another's of the same round."""
    pairs = zip(values[stack][part], values[kind][part], strict=False)
    return spread([mine / its for mine, its in pairs])
