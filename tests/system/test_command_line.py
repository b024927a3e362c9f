"""What a newcomer types: help, mistakes, doctor."""

from __future__ import annotations

import json

import pytest
from machine import ROOT, Machine
from typer.testing import CliRunner

from loopscope.cli import app

pytestmark = pytest.mark.full

FIVE = """name: five
testbed: local
hosts: [h1, h2]
hots: [h3]
components:
  source: {host: h3, run: sleep 1}
  sink: {host: h2, run: sleep 1, ready: {exit: 0}, start: rnu}
phases:
  - {name: run, timeout: 10}
trace: {user: ["*"]}
measure:
  paths:
    loop: {key: id, events: [source/pipe:sent, snik/pipe:received]}
"""


def test_five_mistakes_are_five_problems(machine: Machine) -> None:
    machine.write("five.yaml", FIVE)
    done = machine.command("check", "five.yaml")
    assert done.returncode == 2
    places = [
        line.split(":")[1] for line in done.stderr.splitlines() if line.startswith("five.yaml:")
    ][:5]
    assert sorted(map(int, places)) == [4, 6, 7, 9, 13], done.stderr
    assert "five.yaml: 5 problems" in done.stderr
    for spelling in ("hosts", "h2", "run", "sink"):
        assert f"did you mean {spelling}" in done.stderr or spelling == "h2", done.stderr
    as_json = json.loads(machine.command("check", "five.yaml", "--json").stdout)
    assert len(as_json["problems"]) == 5
    # A run refuses the same file with the same words, and makes nothing.
    run = machine.command("run", "five.yaml")
    assert run.returncode == 2
    assert not (machine.directory / "runs").exists()


def test_the_published_schema_is_the_programs(machine: Machine) -> None:
    printed = json.loads(machine.command("check", "--schema").stdout)
    assert printed == json.loads((ROOT / "schema" / "experiment.schema.json").read_text())


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (ROOT / "experiments").glob("*.yaml"))
)
def test_shipped_experiments_are_good(name: str) -> None:
    done = CliRunner().invoke(app, ["check", str(ROOT / "experiments" / name)])
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    "verb",
    [
        "run",
        "check",
        "record",
        "attach",
        "resume",
        "trigger",
        "enable",
        "disable",
        "net show",
        "net set",
        "clock status",
        "clock verify",
        "entities",
        "report",
        "reset",
        "doctor",
    ],
)
def test_every_verb_has_help_and_json(verb: str) -> None:
    done = CliRunner().invoke(app, [*verb.split(), "--help"])
    assert done.exit_code == 0
    assert "--json" in done.stdout


def test_doctor(machine: Machine) -> None:
    findings = json.loads(machine.command("doctor", "--json").stdout)["findings"]
    (counters,) = (f for f in findings if f["what"] == "one counter for all processors")
    assert counters["ok"] and "ns of each other, by" in counters["found"]
    found = {finding["what"] for finding in findings}
    wanted = {"kernel", "root", "local testbed", "loopscope-host"}
    assert wanted | {"the processor's cycles as counter"} <= found
    assert len([what for what in found if what.startswith("mover ")]) == 3
    for finding in findings:
        assert finding["ok"] or finding["cost"], finding


@pytest.mark.parametrize(
    "words",
    [
        ["run", "missing.yaml"],
        ["run"],
        ["rnu"],
        ["check"],
        ["report", "nowhere"],
        ["run", "missing.yaml", "-p", "count"],
        ["record", "--", "true"],
        ["resume", "nowhere"],
        ["net", "set", "h1 -> h2", "delay=5"],
        ["net", "show"],
        ["clock", "status", "--page", "nowhere"],
        ["clock", "join", "127.0.0.1:1", "--key", "nowhere"],
        ["clock", "serve"],
        ["clock", "verify", "idel"],
    ],
)
def test_mistakes_exit_2_without_a_traceback(machine: Machine, words: list[str]) -> None:
    done = machine.command(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()
