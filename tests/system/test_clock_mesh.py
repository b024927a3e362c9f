"""Followers that probe each other: the residuals of the loops that they close, in the results."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from machine import ROOT, Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

THREE = """\
name: three
hosts: [h1, h2, h3]
trace: {kernel: off}
MORE
components:
  one: {host: h1, run: sleep 1, start: run, ready: {exit: 0}}
phases:
  - {name: run, measured: true, timeout: 60s}
"""


def run(machine: Machine, results: Read, *more: str) -> tuple[dict[str, Any], str]:
    machine.write("three.yaml", THREE.replace("MORE", "\n".join(more)))
    done = machine.command("run", "three.yaml", "--json")
    assert done.returncode == 0, done.stderr
    return results(done), done.stderr


def test_many_hosts_share_a_reference_and_check_six_others_each(
    machine: Machine, results: Read
) -> None:
    """A round trip between two of them, with the defaults: the probes leave room for it."""
    hosts = [f"h{n}" for n in range(1, 101 if "LOOPSCOPE_SOAK" in os.environ else 25)]
    text = (ROOT / "experiments/stimulus-response.yaml").read_text()
    assert "hosts: [h1, h2]" in text
    machine.write("many.yaml", text.replace("[h1, h2]", f"[{', '.join(hosts)}]"))
    done = machine.command("run", "many.yaml", "-p", "count=200", "--json")
    found = results(done)
    assert found["paths"]["response"]["count"] == 200 and found["paths"]["response"]["lost"] == 0
    assert set(found["clock"]["hosts"]) == set(hosts)
    assert all(host["max_err_ns"] is not None for host in found["clock"]["hosts"].values())
    loops = found["clock"]["loops"]
    assert len(loops) == 3 * (len(hosts) - 1)
    for follower in hosts[1:]:
        assert sum(follower in (loop["host"], loop["peer"]) for loop in loops) == 6
    # One line about the rate, and losses summed up, not a line or two of each host.
    assert "probes the reference" in done.stderr and len(done.stderr.splitlines()) < 30, done.stderr


@pytest.mark.parametrize("clocks", ["plain", "{synthetic: {seed: 7}}"])
def test_a_loop_closes_within_its_width(machine: Machine, results: Read, clocks: str) -> None:
    found, said = run(machine, results, f"clocks: {clocks}")
    (loop,) = found["clock"]["loops"]
    assert (loop["host"], loop["peer"]) == ("h3", "h2")
    assert loop["exchanges"] >= 40, "two bursts and what is between"
    assert (loop["unknown"], loop["contradictions"]) == (0, 0)
    assert 0 <= loop["p50_ns"] <= loop["p99_ns"] <= loop["max_ns"]
    widths = sum(host["max_err_ns"] for host in found["clock"]["hosts"].values())
    assert loop["max_ns"] <= loop["err_ns"] < 10 * widths
    assert not found["clock"]["events"]
    assert "contradict" not in said
    told = machine.command("report", "runs/three/latest").stdout
    assert "h3 h2 is the farthest of 1" in told
    page = (machine.directory / "runs/three/latest/report.html").read_text()
    assert '<table id="clock-loops">' in page


def test_without_a_mesh_there_is_a_star(machine: Machine, results: Read) -> None:
    found, _ = run(machine, results, "clock: {mesh: false}")
    assert found["clock"]["loops"] == []
    logs = machine.directory.glob("runs/three/*/base/1/hosts/*/clock/*")
    assert {log.name for log in logs} == {"probes", "estimates"}
    assert "loops" not in machine.command("report", "runs/three/latest").stdout


def test_half_of_an_asymmetry_shows(machine: Machine, results: Read) -> None:
    """The link is crossed only by the edge between the followers."""
    links = "network: {h3 -> h2: {delay: 2ms}}"
    found, _ = run(machine, results, "clock: {network: data}", links)
    (loop,) = found["clock"]["loops"]
    assert loop["contradictions"] == 0
    assert loop["covered"] == 0, "nobody who takes paths for symmetric can know"
    # What emulation is late by comes on top.
    assert 900_000 < loop["p50_ns"] < 1_500_000
    assert loop["p50_ns"] <= loop["err_ns"]


def test_a_silent_peer_is_told_of_and_fails_nothing(machine: Machine, results: Read) -> None:
    links = "network: {h3 -> h2: {loss: 100%}}"
    found, said = run(machine, results, "clock: {network: data}", links)
    (loop,) = found["clock"]["loops"]
    assert (loop["exchanges"], loop["p50_ns"]) == (0, None)
    assert "only 0 probes and 0 replies" in loop["problem"]
    assert any("clock/mesh/h2: the clock of h3 against h2" in each for each in found["problems"])
    assert "host h3: h2 answered none of its probes" in said
    told = machine.command("report", "runs/three/latest").stdout
    assert "nothing known of 1" in told


def test_a_contradiction_is_loud(machine: Machine, results: Read) -> None:
    """The probes between the followers are those of other clocks than the followers'."""
    run(machine, results, "clocks: {synthetic: {seed: 8}}")
    other = (machine.directory / "runs/three/latest").resolve()
    run(machine, results, "clocks: {synthetic: {seed: 7}}")
    latest = (machine.directory / "runs/three/latest").resolve()
    for log in ("h3/clock/mesh", "h2/clock/answers"):
        log = f"base/1/hosts/{log}"
        shutil.rmtree(latest / log)
        shutil.copytree(other / log, latest / log)
    found = results(machine.command("report", "runs/three/latest", "--json"))
    (loop,) = found["clock"]["loops"]
    assert loop["contradictions"] == loop["instants"]
    (event,) = found["clock"]["events"]
    assert (event["host"], event["kind"]) == ("h3", "contradiction")
    assert "its time and h2's contradict the probes between the two" in event["what"]
    assert any(event["what"] in problem for problem in found["problems"])
    told = machine.command("report", "runs/three/latest").stdout
    assert "1 CONTRADICTED: maximum errors may be wrong" in told


def test_of_many_hosts_each_checks_few(machine: Machine, results: Read) -> None:
    """Nine hosts are the fewest of which not every two followers check each other."""
    hosts = ", ".join(f"h{number}" for number in range(1, 10))
    text = THREE.replace("h1, h2, h3", hosts).replace("MORE", "").replace("sleep 2", "sleep 1")
    machine.write("nine.yaml", text)
    done = machine.command("run", "nine.yaml", "--json")
    assert done.returncode == 0, done.stderr
    loops = results(done)["clock"]["loops"]
    assert len(loops) == 20, "of 28 pairs those 1, 2 and 4 places apart"
    assert all(loop["exchanges"] > 0 and not loop["contradictions"] for loop in loops)
    assert "no component runs on 8 of 9 hosts: h2, h3, h4, …" in done.stderr
