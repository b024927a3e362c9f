"""Classes of the kernel's events that are recorded in some phases alone. Needs root."""

from __future__ import annotations

import json

import pytest
from kernel_run import without_loss
from machine import BIN, Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

PROGRAM = """
import time
from loopscope_trace import flow_in, flow_out

begin, end = flow_out("own", "begin"), flow_in("own", "end")
for number in range(100):
    begin(number)
    time.sleep(0.004)
    end(number)
"""
PHASES = """
name: phases
hosts: [h1]
components:
  warm: {host: h1, run: PYTHON ./program.py, start: warm-up, ready: {exit: 0}}
  run: {host: h1, run: PYTHON ./program.py, start: run, ready: {exit: 0}}
  last: {host: h1, run: PYTHON ./program.py, start: last, ready: {exit: 0}}
phases:
  - {name: warm-up, timeout: 60s, kernel: [irq, sleep]}
  - {name: run, timeout: 60s}
  - {name: last, timeout: 60s, kernel: []}
trace:
  user: ["own:*"]
  kernel: ["sched:*", "irq:*", "sleep:*"]
measure:
  paths:
    warm: {events: [warm/own:begin, warm/own:end]}
    run: {events: [run/own:begin, run/own:end]}
""".replace("PYTHON", f"{BIN}/python")
CLASSES = {
    "kernel.sched_switch": {"run"},
    "kernel.local_timer_entry": {"warm", "run"},
    "kernel.interruptible_sleep": {"warm", "run"},
}
"""In which components' phases each was recorded."""


def test_a_phase_has_the_classes_that_it_names(machine: Machine) -> None:
    machine.write("program.py", PROGRAM)
    run, _, said = without_loss(machine, PHASES)
    for table, recorded in CLASSES.items():
        if table == "kernel.interruptible_sleep" and "no kernel events of class" in said:
            continue
        for component in ("warm", "run", "last"):
            ours = run.relation("own.begin").filter(f"process = '{component}'")
            ((first, last),) = ours.aggregate("min(ts), max(ts)").fetchall()
            # The bounds are in another clock than the table.
            rows = run.relation(table).filter(f"ts BETWEEN {first} + 1000000 AND {last} - 1000000")
            ((count,),) = rows.aggregate("count(*)").fetchall()
            assert (count > 50) == (component in recorded), (table, component, count)
            assert count == 0 or component in recorded, (table, component, count)
    # What was not recorded is not known.
    names = {}
    for path in ("warm", "run"):
        told = machine.command(
            "why", "runs/phases/latest", "--path", path, "--message", "50", "--json"
        )
        (message,) = map(json.loads, told.stdout.splitlines())
        ((part, *_),) = (hop["parts"] for hop in message["hops"])
        names[path] = part["name"], part["cause"]
    assert names["warm"][0] == "unknown"
    assert "events of the kernel are missing" in names["warm"][1]
    assert names["run"][0] != "unknown", names
