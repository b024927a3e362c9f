"""docs/guide/why.md: its experiment and its commands."""

from __future__ import annotations

import re

import pytest
from machine import ROOT, Machine

PAGE = (ROOT / "docs/guide/why.md").read_text()


@pytest.mark.usefixtures("root")
def test_the_guides_commands_name_the_cause(machine: Machine) -> None:
    [experiment] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    machine.write("late.yaml", experiment)
    done = machine.guide(*re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert re.search(r"^FAIL +loop\.p99 < 5ms", done.stdout, re.MULTILINE), done.stdout
    first = re.findall(r"^message \d+: loop (.*)$", done.stdout, re.MULTILINE)
    assert len(first) == 3
    cause = r": [\d.]+ ms runnable: \w+ of h\d waited on cpu0 behind other of h2"
    assert all(re.search(cause, each) for each in first), first
    assert "next_comm" in done.stdout
