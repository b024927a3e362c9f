"""docs/guide/network.md, command by command."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/network.md").read_text()
FILE = (ROOT / "docs/guide/network/links.yaml").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_what_is_shown_is_in_the_file() -> None:
    shown, _, _ = blocks("yaml")
    assert shown in FILE


def test_the_place_of_a_message_s_number_is_right(tmp_path: Path) -> None:
    from loopscope.experiment import check

    _, _, message = blocks("yaml")
    file = tmp_path / "x.yaml"
    place = message.removeprefix("network:\n")
    file.write_text(FILE.replace("network:\n", f"network:\n{place}"))
    assert check(file) == []


def test_links_of_machines_are_right(tmp_path: Path) -> None:
    from loopscope.experiment import check

    _, shown, _ = blocks("yaml")
    file = tmp_path / "x.yaml"
    rest = "components: {a: {host: h1, run: a}, b: {host: h2, run: b}}\n"
    file.write_text(f"name: x\n{shown}{rest}phases: [{{name: run, timeout: 5s}}]\n")
    assert [each.message for each in check(file) if each.severity == "error"] == []


def test_every_key_of_a_link_is_told() -> None:
    from loopscope.experiment.link_settings import LinkSettings

    told = "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE))
    assert set(re.findall(r"`(\w+): ", told)) == set(LinkSettings.model_fields)


@pytest.mark.usefixtures("root")
def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    shutil.copytree(ROOT / "docs/guide/network", home / "docs/guide/network")
    # The runs are below, where this machine looks for what they may leave.
    (home / "runs").mkdir()
    (home / "docs/guide/network/runs").symlink_to(home / "runs")
    done = machine.guide("".join(blocks("sh")), timeout_s=300, forks=True)
    assert re.search(r"^(has|lacks) +mover xdp", done.stdout, re.MULTILINE), done.stdout
    assert done.stdout.count("PASS     way.lost == 0") == 2
    asked = dict.fromkeys(re.findall(r"^h2 h3 (\d+) ", done.stdout, re.MULTILINE))
    assert list(asked) == ["30000000", "40000000"]
    # The second run, which was changed on its way, in both directions.
    latest = home / "runs/links/latest/base/1/hosts/_router/components/_links/files/links.json"
    for link in json.loads(latest.read_text())["links"]:
        if {link["from"], link["to"]} == {"h2", "h3"}:
            asked_ms = [part["asked"]["delay_ns"] // 10**6 for part in link["segments"]]
            assert 80 in asked_ms, link
