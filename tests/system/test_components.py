"""What a component runs as, where its paths begin, whom it finds by name, what is kept of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from machine import BIN, ROOT, Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

FILE = """
name: components
hosts: [h1, h2]
trace: {kernel: off}
phases: [{name: run, timeout: 60s}]
components:
  %s
"""


def latest(machine: Machine, name: str, file: str) -> str:
    return (machine.directory / "runs" / name / "latest" / file).read_text()


def test_events_of_another_user_are_recorded(machine: Machine) -> None:
    pipeline = (ROOT / "experiments" / "pipeline.yaml").read_text()
    machine.write("pipeline.yaml", pipeline.replace("{host: ", "{user: nobody, host: "))
    done = machine.command("run", "pipeline.yaml", "-p", "count=50", "--json")
    assert done.returncode in (0, 1, 3), done.stderr
    loss: dict[str, Any] = json.loads(done.stdout)["loss"]
    assert loss["balanced"] and loss["recorded"] == loss["emitted"] == 400, loss
    manifest = json.loads(latest(machine, "pipeline", "manifest.json"))
    for component in manifest["experiment"]["components"]:
        assert component["user"] == "nobody"
        assert component["environment"] == ["PATH", "LANG", "LANGUAGE", "LC_*", "TZ"]


def test_paths_begin_in_the_folder_of_the_file_and_hosts_have_names(machine: Machine) -> None:
    """Wherever the command is typed."""
    folder = machine.directory / "mine"
    folder.mkdir()
    (folder / "show").write_text('#!/bin/sh\ncat "$1"\ngetent hosts h1 h2\n')
    (folder / "show").chmod(0o755)
    (folder / "text").write_text("mine\n")
    (folder / "own.yaml").write_text(
        FILE % "show: {host: h1, run: ./show ./text, ready: {exit: 0}, start: run}"
    )
    done = machine.command("run", "mine/own.yaml")
    assert done.returncode == 0, done.stderr
    said = latest(machine, "components", "base/1/hosts/h1/components/show/stdout.log")
    assert [line.split() for line in said.splitlines()] == [
        ["mine"],
        ["10.77.0.1", "h1"],
        ["10.77.0.2", "h2"],
    ]


def test_a_user_that_does_not_exist(machine: Machine) -> None:
    machine.write("own.yaml", FILE % "a: {host: h1, run: sleep 60, user: no-such-user}")
    done = machine.command("run", "own.yaml")
    assert done.returncode == 4
    assert 'there is no user "no-such-user" on its host' in done.stderr


def test_output_is_limited_and_harmless(machine: Machine) -> None:
    flood = "head -c 1000000 /dev/zero; printf '\\\\033]0;owned\\\\007\\\\n'; exit 3"
    machine.write(
        "own.yaml",
        FILE % f'a: {{host: h1, run: [sh, -c, "{flood}"], output: 128KiB, ready: {{exit: 0}}}}',
    )
    done = machine.command("run", "own.yaml")
    assert done.returncode == 4
    assert "\x1b" not in done.stderr and "\x07" not in done.stderr and "\0" not in done.stderr
    assert r"\x1b]0;owned\x07" in done.stderr
    assert "bytes of its stdout were left out, beyond 128KiB" in done.stderr
    assert re.search(r"what it printed, without 8\d{5} bytes in the middle: hosts/h1", done.stderr)
    log = machine.directory / "runs/components/latest/base/1/hosts/h1/components/a/stdout.log"
    kept = log.read_bytes()
    assert kept.endswith(b"\x1b]0;owned\x07\n") and len(kept) < 140_000


CONFIGURED = """\
from loopscope.phase import Session
with Session(["run"]) as session:
    for phase in session:
        print(len(session.config["text"]), len(session.config["list"]), flush=True)
"""


def test_a_configuration_may_be_larger_than_a_pipes_buffer(machine: Machine) -> None:
    """Such as that of a component that gets the addresses of 890 others."""
    machine.write("c.py", CONFIGURED)
    text, numbers = "x" * 300_000, ", ".join(map(str, range(20_000)))
    machine.write(
        "large.yaml",
        "name: large\nhosts: [h1]\ntrace: {kernel: off}\ncomponents:\n"
        f"  one: {{host: h1, run: {BIN}/python {machine.directory}/c.py, "
        f"with: {{text: {text}, list: [{numbers}]}}}}\n"
        "phases: [{name: run, measured: true, timeout: 30s}]\n",
    )
    done = machine.command("run", "large.yaml", "-v")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "300000 20000" in done.stdout + done.stderr
