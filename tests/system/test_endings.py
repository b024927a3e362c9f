"""Components that end otherwise than they should: said, and nothing rests on what they left out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from machine import Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]
Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

PROGRAM = """\
import os, signal, sys, time
from loopscope.phase import Session
from loopscope_trace import event

sent, taken = (event("data", name) for name in ("sent", "taken"))
how = sys.argv[1]
with Session(["run"], arguments=[]) as session:
    for phase in session:
        for number in range(10):
            sent(number)
            taken(number)
        # The phase goes on until the program that leaves early has surely done so.
        time.sleep(0.5)
    # It has been asked to end, and would write down now what it has.
    if how == "stuck":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    if how == "broken":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "unhappy":
        os._exit(3)
"""
FILE = """\
name: endings
hosts: [h1]
trace: {kernel: off}
components:
  a: {host: h1, run: PROGRAM, ready: phases}
  leaver: {host: h1, run: "true", ready: started}
  stayer: {host: h1, run: sleep 60, ready: started}
  waited: {host: h1, run: "true", ready: {exit: 0}}
phases: [{name: run, timeout: 20s}]
measure:
  paths: {loop: {events: [a/data:sent, a/data:taken]}}
expect: [loop.lost == 0, loop.count == 10]
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("well", None),
        ("broken", "a on h1, repeat 1: killed by SIGSEGV (11) as it ended"),
        ("stuck", "a on h1, repeat 1: it did not end in time when it was asked to, and was killed"),
        ("unhappy", "a on h1, repeat 1: asked to end, it ended with exit status 3"),
    ],
)
def test_what_a_program_could_not_finish_is_unknown(
    machine: Machine, results: Read, how: str, said: str | None
) -> None:
    program = machine.write("program.py", PROGRAM)
    file = FILE.replace("PROGRAM", json.dumps([sys.executable, str(program), how]))
    machine.write("endings.yaml", file)
    done = machine.command("run", "endings.yaml", "--json")
    read = results(done)
    verdicts = {each["verdict"] for each in read["expectations"]}
    told = [each for each in read["problems"] if each.startswith("a on h1")]
    if said is None:
        assert (verdicts, told, done.returncode) == ({"PASS"}, [], 0)
    else:
        (line,) = told
        assert line.startswith(said), line
        assert (verdicts, done.returncode) == ({"UNKNOWN"}, 3)
    # The program that leaves early is named, and no other.
    early = "leaver, repeat 1: ended by itself (exit status 0) in phase "
    (line,) = (each for each in read["problems"] if "by itself" in each)
    assert line.startswith(early)
    assert "leaver on h1 ended by itself in phase" in done.stderr
    assert "waited" not in done.stderr and "stayer" not in done.stderr
    again = results(machine.command("report", "runs/endings/latest", "--json"))
    assert again["problems"] == read["problems"]
