"""Runs in which none of the kernel's events was lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from machine import Machine

from loopscope.timeline import Run, open_run

# Other tests may fill the buffers of the kernel's events meanwhile.
TRIES = 4


def without_loss(machine: Machine, text: str, needs: str = "") -> tuple[Run, dict[str, Any], str]:
    """Runs an experiment until nothing was lost; the run, its results, and what it said.

    ``needs``: a class of events without which the test is skipped.
    """
    for _ in range(TRIES):
        done = machine.command("run", machine.write("kernel.yaml", text), "--json")
        if needs and (
            found := re.search(f"no kernel events of class .*{needs}.*: (.*)", done.stderr)
        ):
            pytest.skip(f"SKIPPED LOUDLY: {found[1]}")
        read: dict[str, Any] = json.loads(done.stdout)
        assert "kernel" in read, done.stderr
        if not sum(each["dropped"] for each in read["kernel"]["classes"].values()):
            (name,) = re.findall("(?m)^name: (.*)$", text)
            return open_run(machine.directory / "runs" / name / "latest"), read, done.stderr
    raise AssertionError(done.stderr)
