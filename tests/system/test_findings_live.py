"""experiments/findings: what `loopscope findings` says of live runs with a planted cause."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from machine import ROOT, Machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from effort import SOAK  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("root"),
    pytest.mark.skipif(not SOAK, reason="SKIPPED: runs of up to 20 s each; part of make soak"),
]
MS = 1e6
# The numbers by which a planted cause is known, and how far off they may be.
PLANTED: dict[str, tuple[str, dict[str, tuple[float, float]]]] = {
    "realtime-thread": ("periodic", {"period": (1100 * MS, 5 * MS), "late by": (30 * MS, 10 * MS)}),
    "beat": (
        "sawtooth",
        {"amplitude": (5 * MS, 0.3 * MS), "difference": (-0.05 * MS, 0.003 * MS)},
    ),
    "quantised": ("quantised", {"grid": (4 * MS, 0.1 * MS)}),
    "mode-change": ("change", {"instant": (6000 * MS, 50 * MS), "after": (5 * MS, 1 * MS)}),
    "cold-window": ("warm-up", {"after": (62 * MS, 10 * MS)}),
    # Those that skip the delay may have modes of their own.
    "two-ways": ("modes", {"mode 1": (0.1 * MS, 0.2 * MS)}),
}


def found_in(machine: Machine, experiment: str) -> list[dict[str, Any]]:
    machine.command("run", str(ROOT / "experiments" / "findings" / f"{experiment}.yaml"))
    done = machine.ask("findings", f"runs/{experiment}/latest")
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


@pytest.mark.parametrize("experiment", PLANTED)
def test_the_planted_cause_is_found_first(machine: Machine, experiment: str) -> None:
    kind, numbers = PLANTED[experiment]
    first, *_ = found_in(machine, experiment)
    assert first["kind"] == kind and first["certain"], first
    for name, (value, tolerance) in numbers.items():
        assert abs(first["evidence"][name]["value"] - value) <= tolerance, (name, first)
    if experiment == "realtime-thread":
        assert first["activity"][0]["what"].startswith("rt-hog of h2"), first
        assert first["activity"][0]["cpus"] == [0], first
