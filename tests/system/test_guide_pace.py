"""docs/guide/pace.md, command by command, and its experiment."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/pace.md").read_text()


def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    done = machine.guide("".join(blocks), timeout_s=120)
    assert re.search(r"pace send: \d+ of 2000 packets of 1000 B", done.stdout), done.stdout
    assert re.search(r"pace receive: \d+ of \d+ packets\n", done.stdout), done.stdout
    assert re.search(r"^0-1 s: \d+ packets, ", done.stderr, re.MULTILINE), done.stderr
    sent = json.loads((home / "sent.json").read_text())
    received = json.loads((home / "received.json").read_text())
    assert sent["asked"] == 5000 == sent["sent"] + sent["skipped"]
    assert received["received"] + received["lost"] == received["sent"] == sent["sent"]
    assert '"bit_s": ' in done.stdout


@pytest.mark.usefixtures("root")
def test_the_guides_experiment(
    machine: Machine, results: Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]
) -> None:
    [experiment] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    # What has to come is the same, and a loaded machine can send it.
    experiment = experiment.replace("100us", "2ms").replace("duration: 8s", "duration: 2s")
    file = machine.write("paced.yaml", "name: paced\n" + experiment)
    read = results(machine.command("run", file, "--json"))
    repeat = machine.directory / "runs" / "paced" / "latest" / "base" / "1"
    files = {
        name: json.loads((repeat / f"hosts/{host}/components/{name}/files/result.json").read_text())
        for name, host in (("sender", "h1"), ("receiver", "h2"))
    }
    sent = files["sender"]["sent"]
    assert files["sender"]["asked"] == 1000 == sent + files["sender"]["skipped"]
    assert files["receiver"]["sent"] == sent
    assert files["receiver"]["delay_ns"]["same_clock"] is True
    way = read["paths"]["way"]
    assert way["count"] + way["lost"] == sent
    assert way["lost"] == files["receiver"]["lost"]
