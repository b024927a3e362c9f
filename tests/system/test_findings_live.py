"""What `loopscope findings` says of live runs: experiments/findings, and nothing planted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from machine import ROOT, Machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from effort import SOAK, cases  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]
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
# Runs of some minutes: parameters, and what else their files have in place of what.
SLOWLY: dict[str, tuple[dict[str, str], tuple[str, str], dict[str, tuple[float, float]]]] = {
    # Four times 5 ms are 3 us less than the source's period: three teeth in 100 s.
    "beat": (
        {"count": "9000", "period": "20.003ms"},
        ("", ""),
        {"period": (33_300 * MS, 300 * MS), "difference": (-0.003 * MS, 0.0003 * MS)},
    ),
    "mode-change": (
        {"count": "50000"},
        ("at 6s", "at 100s"),
        {"instant": (100_000 * MS, 50 * MS), "after": (5 * MS, 1 * MS)},
    ),
}


def found_in(machine: Machine, file: str, *options: str) -> dict[str, Any]:
    """What is said of a run of one of the experiments."""
    return found_of(machine, ROOT / "experiments" / f"{file}.yaml", *options)


def found_of(machine: Machine, experiment: Path, *options: str) -> dict[str, Any]:
    """What is said of a run of an experiment."""
    ran = machine.command("run", experiment, *options)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    done = machine.ask("findings", f"runs/{experiment.stem}/latest")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not SOAK, reason="SKIPPED: runs of up to 20 s each; part of make soak")
@pytest.mark.parametrize("experiment", PLANTED)
def test_the_planted_cause_is_found_first(machine: Machine, experiment: str) -> None:
    kind, numbers = PLANTED[experiment]
    first, *_ = found_in(machine, f"findings/{experiment}")["findings"]
    check(first, kind, numbers)
    if experiment == "realtime-thread":
        assert first["activity"][0]["what"].startswith("rt-hog of h2"), first
        assert first["activity"][0]["cpus"] == [0], first


@pytest.mark.skipif(not SOAK, reason="SKIPPED: runs of 200 s each; part of make soak")
@pytest.mark.parametrize("experiment", SLOWLY)
def test_what_is_planted_slowly_is_found_first(machine: Machine, experiment: str) -> None:
    given, (text, instead), numbers = SLOWLY[experiment]
    file = ROOT / f"experiments/findings/{experiment}.yaml"
    machine.write(file.name, file.read_text().replace(text, instead))
    machine.write("every-5ms.txt", (file.parent / "every-5ms.txt").read_text())
    options = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
    first, *_ = found_of(machine, machine.directory / file.name, *options)["findings"]
    check(first, PLANTED[experiment][0], numbers)


def check(first: dict[str, Any], kind: str, numbers: dict[str, tuple[float, float]]) -> None:
    """Checks that a finding is of a kind, certain, and has these numbers within tolerances."""
    assert first["kind"] == kind and first["certain"], first
    for name, (value, tolerance) in numbers.items():
        assert abs(first["evidence"][name]["value"] - value) <= tolerance, (name, first)


@pytest.mark.parametrize("run", range(cases(1, 20)))
def test_nothing_is_certain_where_nothing_is_planted(machine: Machine, run: int) -> None:
    """Other tests that run meanwhile may make a pattern; in `make soak` none do."""
    del run
    for _ in range(cases(3, 1)):
        found = found_in(machine, "pipeline", "-p", "count=2000")
        assert found["messages"] == 2000 and not found["not_searched"], found
        if not any(each["certain"] for each in found["findings"]):
            return
    pytest.fail(str(found))
