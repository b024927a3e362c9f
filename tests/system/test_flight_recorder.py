"""Flight recorders of experiments: a trigger on one host freezes those of all."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PREFIX = Path(sys.executable).parents[1]


def triggers(repeat: Path, host: str, stream: str = "recorder") -> list[dict[str, Any]]:
    folder = repeat / "hosts" / host / "streams" / stream
    found: list[dict[str, Any]] = json.loads((folder / "triggers.json").read_text())
    loss = json.loads((folder / "loss.json").read_text())
    assert loss["emitted"] == loss["recorded"] + loss["overwritten"] + loss["dropped"]
    return found


def read(folder: Path) -> list[str]:
    """Lines of babeltrace2."""
    done = subprocess.run(["babeltrace2", folder], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.usefixtures("root")
def test_a_late_message_freezes_every_host(machine: Machine) -> None:
    """The path's last host sees it; the deadline is one that every message misses."""
    text = (ROOT / "experiments" / "pipeline.yaml").read_text()
    streams = """
trace:
  user: ["pipe:*"]
  kernel: off
  streams:
    recorder:
      kind: flight-recorder
      triggers: [{path: loop, over: 1ns}]
      on_death: false
    quiet:
      kind: flight-recorder
      triggers: [{path: loop, over: 1h}]
      on_death: false
    tenth:
      filters: [{entities: "pipe:sent", where: "id % 10 == 0"}]
      entities: ["*", "!pipe:received"]
"""
    old = 'trace: {user: ["pipe:*"]}\n'
    assert old in text
    machine.write("late.yaml", text.replace(old, streams).replace("p99 < 5ms", "p99 < 60s"))
    done = machine.command("run", "late.yaml", "-p", "count=600")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stderr
    assert "flight recorder recorder triggered on h1: pipe:received" in said, said
    assert "was late" in said and "flight recorder quiet" not in said
    repeat = machine.directory / "runs" / "pipeline" / "latest" / "base" / "1"
    first = triggers(repeat, "h1")[0]
    assert (first["cause"], first["host"], first["entity"]) == ("path", "h1", "pipe:received")
    for host in ("h2", "h3", "h4"):
        passed_on = triggers(repeat, host)
        assert passed_on, host
        assert {(each["cause"], each["host"]) for each in passed_on} == {("host", "h1")}
    for host in ("h1", "h2", "h3", "h4"):
        assert read(repeat / "hosts" / host / "streams" / "recorder" / "trace"), host
        assert triggers(repeat, host, "quiet") == []
        assert read(repeat / "hosts" / host / "streams" / "quiet" / "trace") == []
    # The source, whose ids count from 0 or from 1, on a stream with a filter.
    loss = json.loads((repeat / "hosts" / "h2" / "streams" / "tenth" / "loss.json").read_text())
    assert (loss["recorded"], loss["filtered"]) == (60, 540)


def compiled(source: Path, home: Path) -> None:
    """Builds a program of one file into a directory, as a user would."""
    shutil.copy(source, home)
    flags = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
    name = source.stem
    compile_it = f"cc -std=c99 -o {name} {name}.c $(pkg-config --cflags --libs loopscope)"
    subprocess.run(compile_it, shell=True, check=True, cwd=home, env=flags)


PING = """
name: ping
hosts: HOSTS
components:
  answerer: {host: h2, run: ./ping answer 5000 SLOW, ready: {port: 5000}}
  asker: {host: h1, run: ./ping ask ADDRESS 5000 200, start: run, ready: {exit: 0}}
phases:
  - {name: run, timeout: 60s}
trace:
  user: ["ping:*"]
  kernel: off
  streams:
    there: {kind: flight-recorder, triggers: [{path: there, over: 1s}], on_death: false}
    patient: {kind: flight-recorder, triggers: [{path: there, over: 1h}], on_death: false}
    back: {kind: flight-recorder, triggers: [{path: back, over: 1s}], on_death: false}
measure:
  paths:
    there: {events: [asker/ping:asked, answerer/ping:heard]}
    back: {events: [answerer/ping:answered, asker/ping:done]}
"""


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("clocks", ["plain", "synthetic"])
@pytest.mark.parametrize("slow", [100, 0])
def test_a_message_late_between_hosts_freezes_both(
    machine: Machine, clocks: str, slow: int
) -> None:
    """The receiver takes two seconds for one of 200 messages, or for none.

    Hidden clocks are at least tens of milliseconds apart, mostly seconds, and neither end is the
    reference there: an offset that is left out either way makes all messages late, or none.
    """
    compiled(ROOT / "tests/c/ping.c", machine.directory)
    plain = clocks == "plain"
    text = PING.replace("HOSTS", "[h1, h2]" if plain else "[h0, h1, h2]")
    text = text.replace("ADDRESS", "10.77.0.2" if plain else "10.77.0.3")
    text += "" if plain else "clocks: {synthetic: {seed: 20071213}}\n"
    machine.write("ping.yaml", text.replace("SLOW", str(slow)))
    done = machine.command("run", "ping.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stderr
    assert "not watched" not in said, said
    told = [line for line in said.splitlines() if "flight recorder" in line]
    repeat = machine.directory / "runs" / "ping" / "latest" / "base" / "1"
    for host, stream in itertools.product(("h1", "h2"), ("patient", "back")):
        assert triggers(repeat, host, stream) == []
    if slow == 0:
        assert told == []
        assert triggers(repeat, "h1", "there") == triggers(repeat, "h2", "there") == []
        return
    (line,) = told
    assert "flight recorder there triggered on h2: ping:heard 100 was late" in line
    (late,) = triggers(repeat, "h2", "there")
    assert (late["cause"], late["entity"], late["id"]) == ("path", "ping:heard", 100)
    (passed_on,) = triggers(repeat, "h1", "there")
    assert (passed_on["cause"], passed_on["host"]) == ("host", "h2")
    # The message's departure is kept as well as its arrival.
    for host, event in (("h1", "asked"), ("h2", "heard")):
        trace = read(repeat / "hosts" / host / "streams" / "there" / "trace")
        assert any(f"ping:{event}: " in each and "id = 100" in each for each in trace), trace[-3:]


@pytest.mark.usefixtures("root")
def test_a_hit_on_one_host_freezes_the_other(machine: Machine) -> None:
    home = machine.directory
    compiled(ROOT / "docs/guide/own-loop/loop.c", home)
    text = (ROOT / "docs/guide/own-loop/own.yaml").read_text().replace("p99 < 2ms", "p99 < 60s")
    streams = """
trace:
  streams:
    recorder:
      kind: flight-recorder
      triggers: [{entities: "loop:received", where: "id == 100"}]
      post: 20ms
      on_death: false
measure:
  subtract_cost: true
"""
    machine.write("own.yaml", text.replace("measure:\n", streams))
    done = machine.command("run", "own.yaml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flight recorder recorder triggered on h2: loop:received 100" in done.stderr
    repeat = home / "runs" / "own" / "latest" / "base" / "1"
    (hit,) = triggers(repeat, "h2")
    assert (hit["cause"], hit["entity"], hit["id"]) == ("entity", "loop:received", 100)
    (passed_on,) = triggers(repeat, "h1")
    assert (passed_on["cause"], passed_on["host"]) == ("host", "h2")
    # All that came before it is there, and what came after it as long as it was to go on.
    trace = repeat / "hosts" / "h2" / "streams" / "recorder" / "trace"
    ids = [int(line.split(" id = ")[1].split(",")[0]) for line in read(trace)]
    assert set(range(1, 101)) <= set(ids)
    assert len(ids) < 1000
    results = json.loads(done.stdout)
    for host in ("h1", "h2"):
        assert results["subtracted"]["hosts"][host]["event_ns"] > 0


@pytest.mark.usefixtures("root")
def test_a_component_that_nobody_records_waits_for_no_attach(machine: Machine) -> None:
    """Killed, it would leave its place to wait behind."""
    machine.write(
        "dormant.yaml",
        """
name: dormant
hosts: [h1]
components:
  a: {host: h1, run: [sh, -c, 'echo "<$$LOOPSCOPE_RUNTIME_DIR>$${LOOPSCOPE_RUNTIME_DIR+set}"'],
      ready: {exit: 0}}
phases: [{name: run, timeout: 10s}]
trace: {user: [], kernel: off}
""",
    )
    done = machine.command("run", "dormant.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    repeat = machine.directory / "runs" / "dormant" / "latest" / "base" / "1"
    log = (repeat / "hosts" / "h1" / "components" / "a" / "stdout.log").read_text()
    assert log.strip().endswith("<>set")
