"""On what programs sleep, planted and found. Needs root and programs in the kernel."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from machine import BIN, Machine

SOURCE = """
import socket, time
from loopscope_trace import flow_out

sent = flow_out("msg", "sent")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# Until the node listens.
time.sleep(0.5)
for number in range(200):
    time.sleep(0.01)
    sent(number)
    conn.sendto(number.to_bytes(8, "little"), ("h2", 7001))
"""
NODE = """
import socket, subprocess, threading, time
from loopscope_trace import flow_in, flow_out

received, done = flow_in("msg", "received"), flow_out("msg", "done")
lock = threading.Lock()


def other():
    while True:
        with lock:
            time.sleep(0.03)
        time.sleep(0.15)


conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
conn.bind(("", 7001))
threading.Thread(target=other, daemon=True).start()
while True:
    number = int.from_bytes(conn.recv(8), "little")
    received(number)
    if number % 40 == 20:
        subprocess.run(["sleep", "0.05"], check=True)
    elif number % 40 == 0:
        time.sleep(0.02)
    else:
        lock.acquire()
        lock.release()
    done(number)
    if number == 199:
        break
"""
EXPERIMENT = """
name: sleeps
hosts: [h1, h2]
components:
  node: {host: h2, run: PYTHON ./node.py, start: run, ready: {exit: 0}}
  source: {host: h1, run: PYTHON ./source.py, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["msg:*"], kernel: ["sched:*", "irq:*", "softirq:*", "sleep:*"]}
measure:
  paths:
    msg: {key: id, events: [source/msg:sent, node/msg:received, node/msg:done]}
"""


@pytest.mark.usefixtures("root")
def test_what_a_program_waits_for_is_named(machine: Machine) -> None:
    machine.write("source.py", SOURCE)
    machine.write("node.py", NODE)
    machine.write("sleeps.yaml", EXPERIMENT.replace("PYTHON", f"{BIN}/python"))
    done = machine.command("run", "sleeps.yaml")
    if found := re.search("no kernel events of class sleep: (.*)", done.stderr):
        pytest.skip(f"SKIPPED LOUDLY: {found[1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    told = machine.ask("why", "runs/sleeps/latest", "--over", "0ns")
    assert told.returncode == 0, told.stderr
    causes: dict[int, Counter[str]] = {}
    for message in map(json.loads, told.stdout.splitlines()):
        (hop,) = (hop for hop in message["hops"] if hop["last"] == "node/msg:done")
        assert sum(part["ns"] for part in hop["parts"]) == hop["ns"]
        sums = causes.setdefault(message["id"], Counter())
        for part in hop["parts"]:
            sums[f"{part['name']}: {part['cause']}"] += part["ns"]
    longest = {number: sums.most_common(1)[0] for number, sums in causes.items()}
    for number in range(20, 200, 40):
        cause, ns = longest[number]
        assert cause.startswith("blocked: node of h2 slept in wait4"), causes[number]
        assert 45e6 < ns < 500e6
    for number in range(40, 200, 40):
        cause, ns = longest[number]
        assert cause.startswith("blocked: node of h2 slept in clock_nanosleep"), causes[number]
        assert 19e6 < ns < 500e6
    others = [each for number, each in longest.items() if number % 20]
    locked = [cause for cause, ns in others if ns > 5e6 and "blocked" in cause]
    # The thread that has it sleeps, and runs before and afterwards.
    of_lock = "blocked: node of h2 slept in futex, woken by node of h2 (python), which slept in "
    of_lock += "clock_nanosleep until an interrupt"
    assert len(locked) >= 4 and set(locked) == {of_lock}, Counter(locked)
    # What the kernel waits for on a program's behalf it tells with its own functions: to start
    # another program, its parent waits.
    query = (
        "select syscall, stack from kernel.uninterruptible_sleep where syscall in "
        "('vfork', 'clone', 'clone3')"
    )
    found = machine.ask("query", "runs/sleeps/latest", query)
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(rows) >= 5 and all("clone" in row["stack"] for row in rows), rows
