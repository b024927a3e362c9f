"""The README's own commands and files, as a newcomer types them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from machine import ROOT, Machine

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_readmes_experiment_is_the_guides() -> None:
    shown, _ = blocks("yaml")
    assert shown == (ROOT / "docs/guide/own-loop/own.yaml").read_text()


def test_the_readmes_network_is_a_right_one(machine: Machine) -> None:
    _, network = blocks("yaml")
    file = machine.directory / "network.yaml"
    hosts = "hosts: [h1, h2, h3, h4]\ncomponents: {c: {host: h1, run: 'true'}}\n"
    file.write_text(f"name: network\n{hosts}phases: [{{name: run, timeout: 60s}}]\n{network}")
    done = machine.command("check", str(file))
    assert done.returncode == 0, done.stderr


def test_the_readmes_lines_of_c_are_the_guides() -> None:
    (shown,) = blocks("c")
    program = (ROOT / "docs/guide/own-loop/loop.c").read_text()
    for line in shown.split("\n"):
        assert line in program


@pytest.mark.usefixtures("root")
def test_the_readmes_commands(machine: Machine) -> None:
    if shutil.which("babeltrace2") is None:
        pytest.skip("SKIPPED LOUDLY: needs babeltrace2")
    home = machine.directory
    shutil.copytree(ROOT / "docs/guide/own-loop", home / "docs/guide/own-loop")
    # How fast a shared machine is, is not this test's business.
    own = home / "docs/guide/own-loop/own.yaml"
    own.write_text(own.read_text().replace("p99 < 2ms", "p99 < 30s"))
    (home / ".venv").symlink_to(Path(sys.executable).parents[1])
    script = "set -eu\n" + "".join(blocks("sh"))
    environment = {**machine.environment, "VIRTUAL_ENV": "", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["bash", "-c", script], cwd=home, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    assert "emitted 2 000 = recorded 2 000 + dropped 0" in done.stdout
    assert done.stdout.count("loop:sent: {") == 100


def test_the_table_of_verbs_is_the_programs(machine: Machine) -> None:
    shown = set(re.findall(r"^\| `loopscope (\w+)", README, re.MULTILINE))
    helped = machine.command("--help").stdout
    listed = set(re.findall(r"^│ (\w+) ", helped.split("Commands")[1], re.MULTILINE))
    assert shown == listed
