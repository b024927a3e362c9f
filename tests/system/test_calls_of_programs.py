"""`why` says in which system call a thread was running.

Needs root, and a kernel that lets programs in.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
from kernel_run import without_loss
from machine import BIN, Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

PROGRAM = """
import os, time
from loopscope_trace import flow_in, flow_out

begin, end = flow_out("own", "begin"), flow_in("own", "end")
random = os.open("/dev/urandom", os.O_RDONLY)
for number in range(40):
    begin(number)
    if number % 2:
        os.read(random, 4_000_000)
    else:
        done = time.perf_counter() + 0.01
        while time.perf_counter() < done:
            pass
    end(number)
    time.sleep(0.001)
"""
EXPERIMENT = """
name: calls
hosts: [h1]
components:
  program: {host: h1, run: PYTHON ./program.py, start: run, ready: {exit: 0}}
phases: [{name: run, timeout: 60s, measured: true}]
trace:
  user: ["own:*"]
  kernel: ["sched:*", "irq:*", "softirq:*", "call:*"]
measure:
  paths:
    loop: {events: [program/own:begin, program/own:end]}
""".replace("PYTHON", f"{BIN}/python")


def test_running_in_a_call_and_in_the_program(machine: Machine) -> None:
    machine.write("program.py", PROGRAM)
    run, _, _ = without_loss(machine, EXPERIMENT, "call")
    told = machine.ask("why", "runs/calls/latest", "--worst", "40")
    messages = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(messages) == 40, told.stderr
    in_program = "program of h1 on cpu"
    for message in messages:
        (hop,) = message["hops"]
        assert sum(part["ns"] for part in hop["parts"]) == hop["ns"]
        ran: Counter[str] = Counter()
        for part in hop["parts"]:
            if part["name"] == "running" and part["cause"].startswith(in_program):
                ran[part["cause"].partition(", ")[2]] += part["ns"]
        call = "in read" if message["id"] % 2 else ""
        assert ran[call] > 0.8 * ran.total(), (message["id"], ran)
    # What the program itself did is all there.
    ((tid,),) = run.relation("own.begin").project("tid").distinct().fetchall()
    calls = run.relation("kernel.system_call").filter(f"tid = {tid}")
    whole = calls.filter("syscall::VARCHAR = 'read' AND result = 4000000")
    ((count, least),) = whole.aggregate("count(*), min(duration_ns)").fetchall()
    assert count == 20 and least > 100_000
    assert len(calls.filter("syscall::VARCHAR = 'clock_nanosleep'").fetchall()) == 40
