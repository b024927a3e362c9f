"""docs/guide/streams.md, command by command, and its programs."""

from __future__ import annotations

import json
import re

import pytest
from machine import ROOT, Machine

from loopscope.timeline import open_run

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/streams.md").read_text()
FOLDER = ROOT / "docs/guide/streams"


def followed(pictures: list[str], counts: str) -> None:
    """What a tracker has printed is of pictures that the camera put, each once."""
    seen = [re.fullmatch(r"(\d+): mean (\S+), (\S+) ms old", line) for line in pictures]
    assert all(seen) and 1 <= len(seen) <= 100
    numbers = [int(found[1]) for found in seen if found]
    assert numbers == sorted(set(numbers)) and numbers[-1] <= 99
    assert [float(found[2]) for found in seen if found] == numbers
    told = re.fullmatch(r"InputCounts\(floor=100, held=0, lost=(\d+), skipped=(\d+)\)", counts)
    assert told is not None, counts
    # What came before the tracker joined was nobody's: it is there, or was never wanted.
    assert len(numbers) + int(told[1]) + int(told[2]) <= 100


def test_the_guides_commands(machine: Machine) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 10
    (machine.directory / "docs").symlink_to(ROOT / "docs")
    machine.environment["LOOPSCOPE_STM"] = str(machine.directory / "channels/socket")
    activate = f"VIRTUAL_ENV={machine.directory}/.venv; PATH=$VIRTUAL_ENV/bin:$PATH\n"
    done = machine.guide(activate, *blocks, timeout_s=180)
    for name in ("tracked", "tracked-c", "tracked-elsewhere"):
        *pictures, counts = (machine.directory / name).read_text().splitlines()
        followed(pictures, counts)
        assert counts in done.stdout
    (channel,) = json.loads((machine.directory / "channels.json").read_text())
    assert channel["name"] == "frames" and channel["items"] == 4
    assert channel["oldest"]["wanted_by"] == []
    assert not (machine.directory / "channels").exists()
    run = open_run(machine.directory / "runs/streams/latest")
    # The last one has no bytes: it is the end.
    put = run.relation("frames.put").order("ts").project("id, bytes").fetchall()
    assert put == [*((number, 640 * 480) for number in range(100)), (100, 0)]
    assert re.search(r"^\d turns slipped, \d+ were left out$", done.stdout, re.MULTILINE)
    assert "{'x': 0.5, 'y': [1, 2]}\n" in done.stdout
    assert "Threads at channels" in done.stdout and "tracker of h1" in done.stdout
    assert "frames (home 127.0.0.1:7421)" in done.stdout
    far = open_run(machine.directory / "runs/two-hosts/latest")
    put_at, got_at = (
        dict(far.relation(f"frames.{event}").filter("bytes > 0").project("id, ts").fetchall())
        for event in ("put", "got")
    )
    # The link has 5 ms, and takes 12 ms for the picture's bits.
    assert got_at and all(at - put_at[number] > 17_000_000 for number, at in got_at.items())
    for text, name in zip(PAGE.split("```yaml\n")[1:], ("streams", "two-hosts"), strict=True):
        assert text.partition("```")[0] in (FOLDER / f"{name}.yaml").read_text()


def test_the_guide_shows_the_programs() -> None:
    shown = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names = ("camera.py", "tracker.py", "paced.py", "values.py")
    programs = [(FOLDER / name).read_text() for name in names]
    assert all(part in program for part, program in zip(shown, programs, strict=True))
    (shown_c,) = re.findall(r"^```c\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown_c in (FOLDER / "camera.c").read_text()
    lines = [line for program in programs[:2] for line in program.splitlines() if line]
    assert len(lines) <= 30
