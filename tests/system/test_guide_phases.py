"""docs/guide/phases.md, command by command, and its experiment."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/phases.md").read_text()
GUIDE = ROOT / "docs/guide/phases"


def blocks(kind: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for of, text in every if of == kind]


def documents(text: str) -> list[Any]:
    """JSON documents, one after the other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def test_the_page_has_the_experiment_and_its_schedule(machine: Machine) -> None:
    assert blocks("yaml")[0] == (GUIDE / "phases.yaml").read_text()
    done = machine.command("run", "--dry", GUIDE / "phases.yaml")
    assert (done.returncode, done.stdout) == (0, blocks("")[0])
    assert not (machine.directory / "runs").exists()
    read = json.loads(machine.command("run", "--dry", "--json", GUIDE / "phases.yaml").stdout)
    connect = read["stages"][1]
    acts = {act["component"]: act for act in connect["components"]}
    assert connect["phase"] == "connect" and connect["timeout_ns"] == 10_000_000_000
    assert acts["fusion"]["after"] == ["left", "right"]
    assert acts["camera"]["starts"] and acts["camera"]["enters"] is False
    assert read["groups"] == {"sensors": ["left", "right"]}


@pytest.mark.usefixtures("root")
def test_the_guides_commands(machine: Machine) -> None:
    shutil.copytree(GUIDE, machine.directory / "docs/guide/phases")
    activate = ". .venv/bin/activate\n"
    done = machine.guide(activate, *blocks("sh"), timeout_s=120, forks=True)
    start, (shown,), sent, fetched = documents(done.stdout[done.stdout.index("{\n") :])
    phase = shown["camera"]["phase"]
    assert phase in ("connect", "run")
    (said,) = json.loads(blocks("json")[0])
    assert shown == {"camera": {**said["camera"], "phase": phase}}
    assert f"camera on h2 failed in phase {phase}: exit status 3; the run goes on" in done.stderr
    assert set(sent) == {"fusion.py", "map.sh", "sensor.py"}
    for name, about in sent.items():
        assert about["sha256"] == hashlib.sha256((GUIDE / name).read_bytes()).hexdigest()
    written = b"connect: h1 h2\nrun: left right\n"
    digest = hashlib.sha256(written).hexdigest()
    assert fetched == [{"mapper": {"map": {"size": len(written), "sha256": digest}}}]
    assert set(start["components"]) == {"left", "right", "fusion", "mapper"}
    for began in start["components"].values():
        # To begin and to say when both rest on what the host knew of the global clock.
        assert began["late_ns"] >= -2 * began["within_ns"] - 1000, start
    late = [began["late_ns"] for began in start["components"].values()]
    assert start["skew_ns"] == max(late) - min(late)
    (run,) = (machine.directory / "docs/guide/phases/runs/phases").glob("2*")
    printed = (run / "base/1/hosts/h3/components/fusion/stdout.log").read_text().splitlines()
    # The port that the sensors published in this phase reached the fusion within it.
    assert printed == [f"{name} {number}" for name in ("left", "right") for number in range(10)]

    folder = run / "base/1/hosts/h3/components/mapper/files"
    assert (folder / "map").read_bytes() == written


def test_the_guides_table_of_functions(tmp_path: Path) -> None:
    (program,) = blocks("python")
    script = tmp_path / "program.py"
    script.write_text(program)
    command = [sys.executable, str(script), "--gain", "2.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "gain 2.5\n"


@pytest.mark.usefixtures("root")
def test_a_command_that_fails_fails_the_run(machine: Machine) -> None:
    machine.write(
        "commands.yaml",
        "name: commands\nhosts: [h1]\nphases: [{name: run, timeout: 20s}]\ncomponents:\n"
        "  wrapped: {host: h1, commands: {run: [sh, -c, 'echo no sun; exit 3']}}\n",
    )
    done = machine.command("run", "commands.yaml")
    assert done.returncode == 4
    assert "wrapped on h1 failed in phase run: " in done.stderr, done.stderr
    assert "sh -c echo no sun; exit 3: exit status 3" in done.stderr, done.stderr


@pytest.mark.usefixtures("root")
def test_a_background_component_that_ends_fails_the_run(machine: Machine) -> None:
    machine.write(
        "background.yaml",
        "name: background\nhosts: [h1]\nphases: [{name: run, timeout: 20s}]\ncomponents:\n"
        "  stays: {host: h1, run: sleep 60, ready: started}\n"
        "  leaves: {host: h1, run: 'true', ready: started, background: true}\n"
        "  works: {host: h1, run: sleep 15, ready: {exit: 0}, start: run}\n",
    )
    done = machine.command("run", "background.yaml")
    assert done.returncode == 4
    assert "leaves on h1 failed in phase run: it ended (exit status 0)" in done.stderr or (
        "leaves on h1 failed in phase start-up: it ended (exit status 0)" in done.stderr
    ), done.stderr
