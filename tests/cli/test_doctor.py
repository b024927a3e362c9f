"""What ``doctor`` finds on machines that are not like this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import loopscope.testbed
from loopscope.cli import doctor


def test_a_virtual_machine_without_vmclock_costs_the_notice_of_its_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_flags", lambda: {"hypervisor"})
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    finding = doctor._machine()
    assert not finding.ok and "/dev/vmclock0" in finding.found
    assert "snapshot" in finding.cost and "bounds may be wrong" in finding.cost
    monkeypatch.setattr(doctor.os, "access", lambda *_: True)
    finding = doctor._machine()
    assert finding.ok and finding.found == "VMClock, /dev/vmclock0"


def test_what_netem_refuses_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusal = "the kernel takes it, but not all of it: duplicate is refused beside other qdiscs"
    tried = [
        {"mover": "xdp", "works": False, "why": "no AF_XDP"},
        {"mover": "tap", "works": True, "why": "a frame crossed a veth pair"},
        {"mover": "netem", "works": True, "why": refusal},
    ]
    binary = tmp_path / "loopscope-host"
    binary.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(tried)}\nEND\n")
    binary.chmod(0o755)
    monkeypatch.setattr(loopscope.testbed, "host_binary", lambda: binary)
    xdp, tap, netem = doctor._movers()
    assert not xdp.ok and xdp.found == "no AF_XDP" and xdp.cost
    assert tap.ok and "used by mover: auto" in tap.found
    assert netem.ok and refusal in netem.found


@pytest.mark.parametrize("why", ["its rate may change", None])
def test_what_the_kernels_clock_costs_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, why: str | None
) -> None:
    found = {
        "pairs": 1,
        "within_ns": 171.0,
        "limit_ns": 1000,
        "refused": None,
        "counter": {
            "kind": "monotonic-raw",
            "given": why is None,
            "mistrust_of_cycles": why,
            "read_ns": 251.5,
            "step_ns": 72.0,
        },
    }
    binary = tmp_path / "loopscope-host"
    binary.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(found)}\nEND\n")
    binary.chmod(0o755)
    monkeypatch.setattr(loopscope.testbed, "host_binary", lambda: binary)
    cycles, one = doctor._counter()
    assert not cycles.ok and "a reading costs 251.5 ns, and it steps by 72 ns" in cycles.cost
    assert cycles.found == (why or "LOOPSCOPE_COUNTER asks for CLOCK_MONOTONIC_RAW")
    assert one.ok and "within 171 ns" in one.found
