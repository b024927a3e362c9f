"""docs/guide/video-loop.md, command by command."""

from __future__ import annotations

import json
import re

import pytest
from machine import ROOT, Machine

PAGE = (ROOT / "docs/guide/video-loop.md").read_text()

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]


def test_the_guides_commands(machine: Machine) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 8
    (machine.directory / "experiments").symlink_to(ROOT / "experiments")
    machine.environment["LOOPSCOPE_STM"] = str(machine.directory / "channels/socket")
    activate = f"PATH={machine.directory}/.venv/bin:$PATH\n"
    done = machine.guide(activate, *blocks, timeout_s=240)
    assert re.search(
        r"^camera: \d+ pictures; .* 0 messages to the head are not known$", done.stdout, re.M
    )
    assert "showing at http://127.0.0.1:8080" in done.stdout
    assert re.search(r"^display: \d+ pictures, ", done.stdout, re.M)
    assert re.search(r"^tracker: \d+ pictures, .* 0 refused, 0 undeliverable$", done.stdout, re.M)
    results = json.loads((machine.directory / "runs/video-loop/latest/results.json").read_text())
    assert results["values"]["lost_pictures"]["value"] == 0
    assert re.search(r"^network: less than 1[45]\d ms in each direction$", done.stdout, re.M)
    carried = "_channels-h1/frames:sent → _channels-h2/frames:received"
    # The slowest picture's way, if TCP's events are recorded here, and the table of its packets.
    assert re.search(rf"^  {carried}  [\d.]+ ms", done.stdout, re.M)
    assert carried in done.stdout.split("report: ")[-1]
    experiment = "".join(
        (ROOT / f"experiments/video-loop{name}.yaml").read_text() for name in ("", "-loads")
    )
    for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        assert text in experiment, text


def test_the_guide_and_the_programs_name_the_same_settings_and_events() -> None:
    programs = "".join(
        path.read_text() for path in (ROOT / "apps/video/loopscope_video").glob("*.py")
    )
    for option in set(re.findall(r"--([a-z_]+_(?:s|deg|per_s|deg_s))\b", PAGE)):
        assert f"{option}: float" in programs, option
    for group, name in re.findall(r"`(camera|tracker|head|display):([a-z]+)`", PAGE):
        assert re.search(rf'event\(\s*"{group}",\s*"{name}"', programs), (group, name)
