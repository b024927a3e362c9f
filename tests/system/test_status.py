"""``loopscope status`` and ``logs``, from a second terminal, and the guide to failures."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from typing import Any

import pytest
from machine import ROOT, Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

FILE = """
name: chatty
hosts: [h1, h2]
trace: {kernel: off}
phases: [{name: run, timeout: 60s}]
components:
  ticker: {host: h1, run: [sh, -c, "echo one; until [ -e STOP ]; do sleep 0.01; done; echo two"],
           ready: {exit: 0}, start: run}
  quiet: {host: h2, run: [sh, -c, "printf '\\\\033[31mred\\\\n' >&2; exec sleep 60"],
          ready: started}
"""


def printed(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def standing(machine: Machine) -> dict[str, Any]:
    """What `status` says of the only run."""
    done = machine.command("status", "--json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)
    return dict(one)


def test_a_run_is_seen_from_a_second_terminal(machine: Machine) -> None:
    stop = machine.directory / "stop"
    file = machine.write("chatty.yaml", FILE.replace("STOP", str(stop)))
    run = machine.start("run", file)
    end = time.monotonic() + 30
    while not list(machine.directory.glob("runs/*/2*/base/1/output.jsonl")) or not printed(
        machine.command("logs", "--json", "-c", "ticker")
    ):
        assert time.monotonic() < end and run.poll() is None
    following = machine.start("logs", "-f")
    said = standing(machine)
    assert (said["status"], said["stage"], said["timeout_s"]) == (
        "running",
        "phase run (measured)",
        60,
    )
    assert {each["component"]: each["status"] for each in said["components"]} == {
        "quiet": "ready",
        "ticker": "running",
    }
    text = machine.command("status").stdout
    assert "chatty: goes on" in text and "of at most 60 s" in text
    stop.touch()
    assert run.wait(timeout=60) == 0
    # It ends because the run does, and has all of it; what a terminal would act on is escaped.
    lines, _ = following.communicate(timeout=10)
    assert following.returncode == 0
    texts = sorted(line.split("  ", 1)[1] for line in lines.splitlines())
    assert texts == ["quiet@h2 ! \\x1b[31mred", "ticker@h1 | one", "ticker@h1 | two"]
    one, two = printed(machine.command("logs", "runs/chatty/latest", "--json", "-c", "ticker"))
    assert (one["text"], two["text"], one["stderr"]) == ("one", "two", False)
    assert one["global_ns"] < two["global_ns"] and one["within_ns"] is not None
    said = standing(machine)
    assert said["status"] == "complete"
    ended = {each["component"]: each["status"] for each in said["components"]}
    assert ended == {"quiet": "ended when asked to", "ticker": "ended: exit status 0"}


def test_a_killed_run_is_not_taken_for_one_that_goes_on(machine: Machine) -> None:
    file = machine.write("chatty.yaml", FILE.replace("STOP", "never"))
    run = machine.start("run", file)
    assert run.stderr is not None
    while "phase run" not in run.stderr.readline():
        assert run.poll() is None
    run.send_signal(signal.SIGKILL)
    run.wait()
    # A line that was not finished is none.
    (journal,) = machine.directory.glob("runs/chatty/2*/base/1/journal.jsonl")
    with journal.open("a") as opened:
        opened.write('{"stage": "half a li')
    # The run goes on until its agents have ended the programs.
    end = time.monotonic() + 30
    while (status := standing(machine)["status"]) == "running" and time.monotonic() < end:
        time.sleep(0.05)
    assert status == "killed"
    assert "chatty: killed" in machine.command("status", "runs/chatty/latest").stdout
    following = machine.command("logs", "-f", timeout_s=20)
    assert following.returncode == 0, "there is nothing to wait for"
    machine.command("reset")


def test_what_is_not_there(machine: Machine) -> None:
    for words, said in (
        (["status"], "there is no run below runs"),
        (["logs", "-f"], "there is no run below runs"),
        (["status", "elsewhere"], "elsewhere is no run"),
    ):
        done = machine.command(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
    file = machine.write("bad.yaml", FILE.replace("run: [sh,", "run: [shh,"))
    assert machine.command("run", file).returncode != 0
    (machine.directory / "runs/x/20260101T000000Z-000000").mkdir(parents=True)
    machine.write("runs/x/20260101T000000Z-000000/manifest.json", "{}\n")
    done = machine.command("logs", "runs/x/20260101T000000Z-000000")
    assert done.returncode == 2 and "no repeat has begun" in done.stderr


def test_the_guides_commands(machine: Machine) -> None:
    page = (ROOT / "docs/guide/failures.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert shown == (ROOT / "docs/guide/failures/pump.yaml").read_text()
    shutil.copytree(ROOT / "docs/guide/failures", machine.directory / "docs/guide/failures")
    (first, second) = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    failing = first.replace("pump.yaml\n", "pump.yaml 2>said || echo exit code $?\n")
    assert failing != first
    done = machine.guide(". .venv/bin/activate\n", failing, second)
    assert done.stdout.startswith("exit code 4\n")
    assert "pump: failed" in done.stdout and "gauge@h1 | last reading: 20 bar" in done.stdout
    said = (machine.directory / "docs/guide/failures/said").read_text()
    (text,) = re.findall(r"^```\n(loopscope: .*?)^```", page, re.MULTILINE | re.DOTALL)
    number = re.compile(r"\b\d+\.\d{6}\b|\d{8}T\d{6}Z-[0-9a-f]{6}")
    wanted = {number.sub("#", line) for line in text.splitlines()}
    assert wanted <= {number.sub("#", line) for line in said.splitlines()}
