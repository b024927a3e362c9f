"""Kernel events of a run, and what they say of late messages. Needs root and tracefs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import LOCAL, Case
from machine import Machine

pytestmark = pytest.mark.usefixtures("root")
Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

# `hog`, of real time, takes a processor for 30 ms at a time.
HELD = """\
name: held
hosts: [h1, h2]
components:
  source: {host: h1, run: loopscope-host pipe source, with: {to: node, count: 400, period: 2ms}}
  node: {host: h2, run: taskset -c 1 loopscope-host pipe node, with: {to: sink}}
  sink: {host: h1, run: loopscope-host pipe sink}
  hog:
    host: h2
    run: chrt -f 10 taskset -c 1 python3 hog.py
    ready: started
phases:
  - {name: listen, timeout: 20s}
  - {name: connect, timeout: 20s}
  - {name: run, measured: true, timeout: 60s}
trace: {user: ["pipe:*"], kernel: ["sched:*", "irq:*", "softirq:*"]}
measure:
  paths:
    loop:
      key: id
      events: [source/pipe:sent, node/pipe:received, node/pipe:sent, sink/pipe:received]
expect: [loop.count == 400]
"""
HOG = """\
import time
while True:
    end = time.monotonic() + 0.03
    while time.monotonic() < end:
        pass
    time.sleep(0.03)
"""


def tracing() -> list[str]:
    """Mounts of tracefs that a run has made."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    return [line for line in mounts if line.split()[2] == "tracefs" and "/ls-" in line]


def test_what_held_each_message(machine: Machine, results: Read) -> None:
    machine.write("hog.py", HOG)
    text = HELD.replace("hog.py", f"{machine.directory}/hog.py")
    machine.write("held.yaml", text)
    done = machine.command("run", "held.yaml", "--json")
    read = results(done)
    assert read["verdict"] == "PASS", done.stderr
    assert tracing() == []
    counts = read["kernel"]["classes"]
    assert set(counts) == {"sched", "irq", "softirq"}
    for each in counts.values():
        assert each["emitted"] == each["recorded"] + each["dropped"]
    assert not [each for each in read["problems"] if "on the time line" in each]
    (folder,) = (machine.directory / "runs/held").glob("2*")
    _check_each_message(machine, folder)
    _check_streams(folder, counts)


def _check_each_message(machine: Machine, folder: Path) -> None:
    """The parts of every hop add up to it, and the hog is named."""
    done = machine.command("why", folder, "--over", "0ms", "--json")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(messages) == 400
    assert messages == sorted(messages, key=lambda each: -each["ns"])
    for hop in (hop for message in messages for hop in message["hops"]):
        assert hop["unknown"] is None
        assert sum(part["ns"] for part in hop["parts"]) == max(hop["ns"], 0), hop
        assert all(part["ns"] > 0 and part["cause"] for part in hop["parts"])
    behind = "node of h2 waited on cpu1 behind hog of h2"
    waits = [
        part["ns"]
        for message in messages
        for hop in message["hops"]
        for part in hop["parts"]
        if part["name"] == "runnable" and part["cause"].startswith(behind)
    ]
    assert max(waits) > 2_000_000, waits
    held = machine.command("why", folder, "--path", "loop", "--worst", "3")
    assert len(re.findall(r"^message \d+: loop ", held.stdout, re.MULTILINE)) == 3
    one = machine.command("why", folder, "--message", "7")
    assert one.stdout.startswith("message 7: loop ")
    unknown = machine.command("why", folder, "--message", "4000")
    assert unknown.returncode == 2 and "no message 4000" in unknown.stderr


def _check_streams(folder: Path, counts: dict[str, dict[str, int]]) -> None:
    """babeltrace2 reads as many events as were recorded."""
    trace = folder / "base/1/hosts/_kernel/kernel/trace"
    done = subprocess.run(["babeltrace2", trace], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == sum(each["recorded"] for each in counts.values())
    assert any(" kernel:sched_switch: " in line and "prev_tid = " in line for line in lines)


def test_a_killed_agent_leaves_no_tracing(machine: Machine) -> None:
    machine.write(
        "long.yaml",
        "name: long\nhosts: [h1]\n"
        "components: {a: {host: h1, run: sleep 600, start: run, ready: {exit: 0}}}\n"
        'phases: [{name: run, timeout: 600s}]\ntrace: {kernel: ["sched:*"]}\n',
    )
    run = machine.start("run", "long.yaml")
    assert run.stderr is not None
    said = []
    for line in run.stderr:
        said.append(line)
        if line.startswith("phase run"):
            break
    else:
        pytest.fail("".join(said))
    Case(machine, LOCAL, run).signal_agent(signal.SIGKILL, None)
    run.communicate(timeout=60)
    end = time.monotonic() + 30
    while (machine.leftovers() or tracing()) and time.monotonic() < end:
        time.sleep(0.1)
    assert machine.leftovers() == [] and tracing() == []


def test_a_run_without_the_schedulers_events_says_what_to_record(
    machine: Machine, results: Read
) -> None:
    machine.write("held.yaml", re.sub(r"(?m)^  hog:.*\n(    .*\n)*", "", HELD))
    text = (machine.directory / "held.yaml").read_text()
    machine.write("held.yaml", text.replace(', kernel: ["sched:*", "irq:*", "softirq:*"]', ""))
    read = results(machine.command("run", "held.yaml", "--json"))
    assert "kernel" not in read
    done = machine.command("why", "runs/held/latest")
    assert done.returncode == 2 and "kernel: [sched:*" in done.stderr
