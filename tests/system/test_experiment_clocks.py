"""The clocks of an experiment: waited for, read by its programs, and what the probes cost."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from machine import BIN, ROOT, Machine

pytestmark = pytest.mark.usefixtures("root")

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

READERS = """\
name: clocks
hosts: [h1, h2]
trace: {kernel: off}
clocks: CLOCKS
components:
  one: {host: h1, run: ./reader 500, start: run, ready: {exit: 0}}
  two: {host: h2, run: ./reader 500, start: run, ready: {exit: 0}}
phases:
  - {name: run, measured: true, timeout: 60s}
"""
GATED = """\
name: gated
hosts: [h1, h2]
trace: {kernel: off}
clock: {CLOCK}
components:
  one: {host: h1, run: touch begun, start: run, ready: {exit: 0}}
phases:
  - {name: run, measured: true, timeout: 60s}
"""


@pytest.mark.parametrize("clocks", ["plain", "{synthetic: {seed: 7}}"])
def test_programs_read_the_time_line_s_time(machine: Machine, clocks: str) -> None:
    """What a program reads between two of its events lies between them on the time line."""
    source = ROOT / "tests/c/clock_component.c"
    strict = "-std=gnu99 -Wall -Wextra -Werror"
    compile_it = f"cc {strict} -o reader {source} $(pkg-config --cflags --libs loopscope)"
    library = {"PKG_CONFIG_PATH": str(BIN.parent / "lib/pkgconfig")}
    subprocess.run(
        compile_it,
        shell=True,
        check=True,
        cwd=machine.directory,
        env={**machine.environment, **library},
    )
    machine.write("clocks.yaml", READERS.replace("CLOCKS", clocks))
    done = machine.command("run", "clocks.yaml", "--json")
    assert done.returncode == 0, done.stderr
    repeat = machine.directory / "runs/clocks/latest/base/1"
    before, after = (
        {(row["host"], row["id"]): row for row in table.to_pylist()}
        for table in (
            pq.read_table(repeat / f"timeline/reading/{name}/part-0.parquet")
            for name in ("before", "after")
        )
    )
    assert len(after) == 1000
    assert all(row["status"] == 1 for row in after.values())
    for key, row in after.items():
        first = before[key]
        assert row["latest"] >= first["ts"] - first["err_ns"], (first, row)
        assert row["earliest"] <= row["ts"] + row["err_ns"], (first, row)
        # And says something.
        assert row["latest"] - row["earliest"] < 10_000_000


def gated(machine: Machine, clock: str) -> None:
    machine.write("gated.yaml", GATED.replace("CLOCK", clock))


def test_a_run_begins_when_the_clocks_are_known(machine: Machine, results: Read) -> None:
    gated(machine, "within: 10ms")
    done = machine.command("run", "gated.yaml", "--json")
    assert done.returncode == 0, done.stderr
    hosts = results(done)["clock"]["hosts"]
    assert all(host["max_err_ns"] <= 10_000_000 for host in hosts.values())


def test_a_run_is_given_up_when_they_never_are(machine: Machine) -> None:
    gated(machine, "within: 1ns, patience: 1s")
    done = machine.command("run", "gated.yaml")
    assert done.returncode == 4
    said = done.stderr[done.stderr.index("the clocks are not within 1ns after 1s: ") :]
    assert "h2 is within " in said
    assert "it is synchronised; last answered " in said
    assert " at best, " in said
    assert "Raise clock.within" in said
    assert not list(machine.directory.glob("runs/**/begun")), "the measured phase began"
    manifest = json.loads((machine.directory / "runs/gated/latest/manifest.json").read_text())
    assert manifest["status"] == "failed"


def test_waiting_for_clocks_can_be_interrupted(machine: Machine) -> None:
    gated(machine, "within: 1ns, patience: 60s")
    process = machine.start("run", "gated.yaml")
    assert process.stderr is not None
    for line in process.stderr:
        if "waiting for clocks within 1ns" in line:
            assert "h2" in line
            break
    else:
        raise AssertionError("nobody was told what is waited for")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert not list(machine.directory.glob("runs/**/begun"))


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        ("within: 2", "gated.yaml:4:17: '2' has no unit"),
        ("within: 2us, patience: no", "gated.yaml:4:32: 'no' is not a duration"),
    ],
)
def test_a_threshold_needs_its_unit(machine: Machine, clock: str, said: str) -> None:
    gated(machine, clock)
    done = machine.command("check", "gated.yaml")
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("network", ["clock", "data"])
def test_what_probes_cost_is_told(machine: Machine, results: Read, network: str) -> None:
    gated(machine, f"network: {network}, burst: 50, rate: 200Hz")
    done = machine.command("run", "gated.yaml", "--json")
    assert done.returncode == 0, done.stderr
    probes = results(done)["clock"]["probes"]
    assert probes["network"] == network
    # Two bursts, each probe and its reply with 20 + 8 bytes of headers and 144 of its own.
    assert probes["packets"] >= 2 * 2 * 50
    assert probes["bytes"] == 172 * probes["packets"]
    assert probes["seconds"] > 0
    told = machine.command("report", "runs/gated/latest").stdout
    assert ("probes took" in told) == (network == "data")
