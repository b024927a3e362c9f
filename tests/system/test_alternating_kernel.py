"""`trace.alternate`: the kernel is recorded in every other time, and what that adds. Needs root."""

from __future__ import annotations

import os
import re
from operator import sub
from pathlib import Path
from typing import Any

import pytest
from machine import BIN, Machine

from loopscope.analysis import analyse
from loopscope.report.rows import kernel_line
from loopscope.timeline import open_run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

PROGRAM = """
import os, time
from loopscope_trace import flow_in, flow_out

begin, end = flow_out("own", "begin"), flow_in("own", "end")
for number in range(1500):
    begin(number)
    os.stat("/")
    end(number)
    time.sleep(0.001)
"""
EXPERIMENT = """
name: alternate
hosts: [h1]
components:
  program: {host: h1, run: PYTHON ./program.py, start: run, ready: {exit: 0}}
phases: [{name: run, timeout: 60s, measured: true}]
trace:
  user: ["own:*"]
  kernel: ["sched:*", "irq:*"]
  alternate: 100ms
measure:
  paths:
    loop: {events: [program/own:begin, program/own:end]}
""".replace("PYTHON", f"{BIN}/python")


def stolen_ns() -> int | None:
    """What a hypervisor has taken of the processors, by the kernel; None: there is none."""
    if " hypervisor" not in Path("/proc/cpuinfo").read_text("utf-8"):
        return None
    (line,) = [
        line for line in Path("/proc/stat").read_text("utf-8").splitlines() if line[:4] == "cpu "
    ]
    return int(line.split()[8]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def test_nothing_is_recorded_in_every_other_time(machine: Machine, results: Any) -> None:
    machine.write("program.py", PROGRAM)
    machine.write("alternate.yaml", EXPERIMENT)
    before = stolen_ns()
    done = machine.command("run", "alternate.yaml", "--json")
    read = results(done)
    assert "kernel" in read, done.stderr
    stolen, after = read["kernel"]["stolen_ns"], stolen_ns()
    if before is None or after is None:
        assert stolen is None
    else:
        assert 0 <= stolen <= after - before
    run = open_run(machine.directory / "runs/alternate/latest")
    ((kernel, classes),) = ((name, of) for (_, name), of in run.kernel_gaps.items())
    times = [gap for gap in classes["sched"] if gap.events == 0]
    assert kernel == "_kernel" and len(times) >= 5, classes
    assert len([gap for gap in classes["irq"] if gap.events == 0]) == len(times)
    recorded = run.relation("kernel.sched_switch").order("counter").project("counter, ts")
    rows = recorded.fetchall()
    rate = (rows[-1][0] - rows[0][0]) / (rows[-1][1] - rows[0][1])
    # A gap ends when the last tracepoint is on again, and the first one records before that.
    # Between the two the controller sleeps for at least 75 ms, but for the last time: it ends with
    # the phase, whenever that is.
    for gap in sorted(times)[:-1]:
        there = [counter for counter, _ in rows if gap.begin < counter < gap.end]
        marks = [gap.begin, *there, gap.end]
        assert max(map(sub, marks[1:], marks)) > 74_000_000 * rate, (gap, there)
    added = read["kernel"]["added"]["loop"]
    # In a time in which the program got no processor there is no message.
    assert len(times) / 2 <= added["pairs"] <= len(times)
    assert added["messages_with"] > 200 and added["messages_without"] > 200
    assert added["messages_with"] + added["messages_without"] <= 1500
    for name in ("p50", "p99"):
        of = added[name]
        assert of["added_ns"] == of["with_ns"] - of["without_ns"]
        assert of["low_ns"] is None or of["low_ns"] <= of["high_ns"]
    assert read["kernel"]["costs"] == {}
    said = r"; recording loop added \S+ .?s \(.+ to .+\) to its p50 of .+, .+ to its p99 of .+"
    assert re.search(said, kernel_line(analyse(run)))
