"""docs/guide/unmodified.md: its experiment and its commands."""

from __future__ import annotations

import re

import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/unmodified.md").read_text()


@pytest.mark.usefixtures("root")
def test_the_guides_programs_are_measured_and_explained(machine: Machine) -> None:
    done = machine.guide(*re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    if found := re.search("no kernel events of class .*(?:tcp|udp).*: (.*)", done.stderr):
        pytest.skip(f"SKIPPED LOUDLY: {found[1]}")
    assert re.search(r"^loop +200 +0 ", done.stdout, re.MULTILINE), done.stdout
    assert "PASS     loop.lost == 0" in done.stdout
    assert "\nwatched frame 200 sent, 200 received; command 200 sent, 200 rec" in done.stdout
    assert "; period 199 fired, 1 more without frame:sent after them\n" in done.stdout
    assert re.search(r"^release +199 +0 ", done.stdout, re.MULTILINE), done.stdout
    main = r"^FAIL +loop\.p99 < 20ms .* above 20\.0+ ms: blocked: controller of h2 slept in "
    assert re.search(main + "clock_nanosleep until", done.stdout, re.MULTILINE), done.stdout
    first = re.findall(r"^message (\d+): loop (\d+)", done.stdout, re.MULTILINE)
    assert len(first) == 2 and {int(number) % 50 for number, _ in first} <= {7, 8}
    assert re.search(r"^controller +200$", done.stdout, re.MULTILINE), done.stdout
    hop = r"^  camera/frame:sent → controller/frame:received "
    assert len(re.findall(hop, done.stdout, re.MULTILINE)) == 3
