"""Ctrl-C at every stage of a run: what was measured is kept, said, and can be judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from linked_pipeline import linked_pipeline
from machine import ROOT, Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

BEFORE = ["making ", "synchronising clocks", "starting components", "phase run"]
# From here on all that was to be measured has been.
AFTER = ["ending components", "collecting", "making the time line", "analysing"]

WITH_KERNEL = 'trace: {user: ["pipe:*"]}'
WITHOUT_KERNEL = 'trace: {user: ["pipe:*"], kernel: off}'
STUBBORN = """
name: stubborn
hosts: [h1, h2]
trace: {kernel: off}
components:
  mule: {host: h2, run: [sh, -c, "trap '' TERM; while :; do sleep 0.1; done"], ready: started}
  pump: {host: h1, run: sleep 50, ready: {exit: 0}, start: run}
phases:
  - {name: run, timeout: 60s}
"""


def interrupted(machine: Machine, file: str, *stages: str) -> tuple[subprocess.Popen[str], str]:
    """A run that gets a SIGINT as soon as it tells each of these stages, one after the other."""
    counted = [] if file == "stubborn.yaml" else ["-p", "count=50"]
    process = machine.start("run", file, *counted)
    assert process.stderr is not None
    said, left = "", list(stages)
    for line in process.stderr:
        said += line
        if left and line.startswith(left[0]):
            process.send_signal(signal.SIGINT)
            left.pop(0)
    process.wait(timeout=60)
    assert not left, said
    assert "Traceback" not in said and "loopscope/cli/" not in said, said
    return process, said


def run_of(machine: Machine, name: str) -> Path:
    (run,) = (machine.directory / "runs" / name).glob("2*")
    return run


@pytest.mark.parametrize("stage", BEFORE)
def test_interrupt_before_all_is_measured(machine: Machine, stage: str) -> None:
    machine.write("pipeline.yaml", (ROOT / "experiments" / "pipeline.yaml").read_text())
    process, said = interrupted(machine, "pipeline.yaml", stage)
    assert process.returncode == 130, said
    assert "loopscope: interrupted" in said
    run = run_of(machine, "pipeline")
    assert json.loads((run / "manifest.json").read_text("utf-8"))["status"] == "interrupted"


LINKED = linked_pipeline("h1 -> h2: {delay: 20ms}")


def test_interrupt_while_links_are_started(machine: Machine) -> None:
    machine.write("links.yaml", LINKED)
    process, said = interrupted(machine, "links.yaml", "starting the links")
    assert process.returncode == 130, said
    manifest = json.loads((run_of(machine, "links") / "manifest.json").read_text("utf-8"))
    assert manifest["status"] == "interrupted"
    assert machine.leftovers() == []


def test_interrupt_while_messages_are_waited_for(machine: Machine) -> None:
    """The phases are over, and what is on a link may not arrive: what arrived is kept."""
    machine.write("links.yaml", LINKED + "drain: 20s\n")
    process, said = interrupted(machine, "links.yaml", "waiting 20s for messages")
    assert process.returncode == 130, said
    run = run_of(machine, "links")
    status = json.loads((run / "manifest.json").read_text("utf-8"))["status"]
    assert status == "interrupted" and "collected from 3 of 3 hosts" in said
    results = json.loads(machine.command("report", run, "--json").stdout)
    assert results["paths"]["loop"]["count"] == 50
    assert results["loss"]["balanced"] and results["loss"]["dropped"] == 0
    assert machine.leftovers() == []


def test_interrupt_in_the_second_repeat(machine: Machine) -> None:
    """The first one is whole."""
    machine.write("links.yaml", LINKED + "repeat: 2\n")
    process, said = interrupted(machine, "links.yaml", "repeat 2 of 2")
    assert process.returncode == 130, said
    run = run_of(machine, "links")
    assert json.loads((run / "manifest.json").read_text("utf-8"))["status"] == "interrupted"
    results = json.loads(machine.command("report", run, "--json").stdout)
    assert results["paths"]["loop"]["count"] == 50
    assert machine.leftovers() == []


@pytest.mark.parametrize("stage", AFTER)
def test_interrupt_after_all_was_measured(machine: Machine, stage: str) -> None:
    """Nothing of it is lost, whatever comes after."""
    machine.write("pipeline.yaml", (ROOT / "experiments" / "pipeline.yaml").read_text())
    process, said = interrupted(machine, "pipeline.yaml", stage)
    assert process.returncode == 130, said
    assert "loopscope: interrupted" in said and "all that was to be measured" in said, said
    run = run_of(machine, "pipeline")
    assert json.loads((run / "manifest.json").read_text("utf-8"))["status"] == "complete"
    hosts = sorted(path.parent.name for path in run.glob("base/1/hosts/*/loss.json"))
    assert hosts == ["h1", "h2", "h3", "h4"], said
    done = machine.command("report", run, "--json")
    results = json.loads(done.stdout)
    assert results["paths"]["loop"]["count"] == 50
    assert results["loss"]["balanced"] and results["loss"]["dropped"] == 0
    assert [each["verdict"] for each in results["expectations"][1:3]] == ["PASS", "PASS"]


def test_a_second_one_ends_the_collecting(machine: Machine) -> None:
    """Not what it stands on: the hosts are gone afterwards, and what they wrote is there."""
    machine.write("stubborn.yaml", STUBBORN)
    process, said = interrupted(machine, "stubborn.yaml", "phase run", "ending components")
    assert process.returncode == 130, said
    assert "collected from 0 of 2 hosts" in said, said
    assert machine.leftovers() == []
    run = run_of(machine, "stubborn")
    assert (run / "base/1/hosts/h2/components/mule/exit.json").exists()


def test_a_second_one_while_files_are_fetched(machine: Machine) -> None:
    """It may come when everything is fetched; what is there is said, and nothing stays."""
    machine.write("stubborn.yaml", STUBBORN)
    process, said = interrupted(machine, "stubborn.yaml", "phase run", "collecting")
    assert process.returncode == 130, said
    assert machine.leftovers() == []
    hosts = run_of(machine, "stubborn") / "base/1/hosts"
    for host in ("h1", "h2"):
        assert (hosts / host / "loss.json").exists() or f"of {host}" in said, said


def test_what_a_killed_controller_had_measured_is_kept(machine: Machine) -> None:
    process = in_its_phase(machine)
    run = run_of(machine, "pipeline")
    # A reader meanwhile gets the message that it goes on.
    early = machine.command("report", run)
    assert early.returncode == 2 and "goes on" in early.stderr, early.stderr
    process.kill()
    process.wait()
    done = report_when_it_has_ended(machine, run)
    results = json.loads(done.stdout)
    assert results["paths"]["loop"]["count"] > 0 and results["loss"]["balanced"]
    assert "did not end well (killed)" in done.stdout
    assert results["verdict"] != "PASS"
    assert json.loads((run / "manifest.json").read_text("utf-8"))["status"] == "killed"
    assert machine.leftovers() == []


def test_what_killed_agents_had_recorded_is_kept(machine: Machine) -> None:
    """Nobody was left to close the files: how much is missing nobody knows, so all is UNKNOWN."""
    process = in_its_phase(machine, WITHOUT_KERNEL)
    agents = [pid for pid, what in machine.processes().items() if "loopscope-host agent" in what]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*agents, process.pid):
            os.kill(pid, number)
    process.wait()
    run = run_of(machine, "pipeline")
    assert machine.command("reset").returncode == 0
    results = json.loads(report_when_it_has_ended(machine, run).stdout)
    assert {each["verdict"] for each in results["expectations"]} == {"UNKNOWN"}, results
    assert machine.leftovers() == []


def in_its_phase(machine: Machine, trace: str = WITH_KERNEL) -> subprocess.Popen[str]:
    """A long run of the pipeline, some of whose events are on the disk."""
    text = (ROOT / "experiments" / "pipeline.yaml").read_text()
    assert WITH_KERNEL in text
    machine.write("pipeline.yaml", text.replace(WITH_KERNEL, trace))
    process = machine.start("run", "pipeline.yaml", "-p", "count=100000", "-p", "period=250us")
    assert process.stderr is not None
    next(line for line in process.stderr if line.startswith("phase run"))
    trace = run_of(machine, "pipeline") / "base/1/hosts/h1/trace"
    until = time.monotonic() + 30
    while sum(file.stat().st_size for file in trace.glob("*")) < 50_000:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.01)
    return process


def report_when_it_has_ended(machine: Machine, run: Path) -> subprocess.CompletedProcess[str]:
    until = time.monotonic() + 30
    while True:
        done = machine.command("report", run, "--json")
        if "goes on" not in done.stderr:
            assert "Traceback" not in done.stderr and done.returncode in (1, 3), done.stderr
            return done
        assert time.monotonic() < until, done.stderr
