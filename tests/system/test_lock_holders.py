"""The holder of a lock that a program waits for. Needs root and programs in the kernel."""

from __future__ import annotations

import json
import re

import pytest
from machine import BIN, Machine

pytestmark = pytest.mark.full

SOURCE = """
import random, socket, time
from loopscope_trace import flow_out

sent = flow_out("msg", "sent")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
time.sleep(0.5)
for number in range(100):
    time.sleep(random.uniform(0.01, 0.04))
    sent(number)
    conn.sendto(number.to_bytes(8, "little"), ("h2", 7001))
"""
# Two threads have a lock of the C library by turns. A reader that comes while one has it and the
# other waits is woken by that one.
NODE = """
import ctypes, socket, sys, threading, time
from loopscope_trace import flow_in, flow_out

libc = ctypes.CDLL(None)
mutex, attributes = ctypes.create_string_buffer(128), ctypes.create_string_buffer(128)
libc.pthread_mutexattr_init(attributes)
libc.pthread_mutexattr_setprotocol(attributes, int(sys.argv[1]))
libc.pthread_mutex_init(mutex, attributes)


def other(name):
    PR_SET_NAME = 15
    libc.prctl(PR_SET_NAME, name)
    while True:
        libc.pthread_mutex_lock(mutex)
        time.sleep(0.006)
        libc.pthread_mutex_unlock(mutex)
        time.sleep(0.002)


received, done = flow_in("msg", "received"), flow_out("msg", "done")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
conn.bind(("", 7001))
for name in (b"one", b"two"):
    threading.Thread(target=other, args=(name,), daemon=True).start()
for _ in range(100):
    number = int.from_bytes(conn.recv(8), "little")
    received(number)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_unlock(mutex)
    done(number)
"""
EXPERIMENT = f"""
name: locks
hosts: [h1, h2]
components:
  node: {{host: h2, run: {BIN}/python ./node.py PROTOCOL, start: run, ready: {{exit: 0}}}}
  source: {{host: h1, run: {BIN}/python ./source.py, start: run, ready: {{exit: 0}}}}
phases: [{{name: run, measured: true, timeout: 60s}}]
trace: {{user: ["msg:*"], kernel: ["sched:*", "sleep:*"]}}
measure: {{paths: {{msg: {{key: id, events: [node/msg:received, node/msg:done]}}}}}}
"""


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("inherits", [False, True])
def test_the_holder_of_a_lock_is_named_beside_who_gave_it(machine: Machine, inherits: bool) -> None:
    """With priority inheritance the futex itself has the holder, else the C library's mutex."""
    machine.write("source.py", SOURCE)
    machine.write("node.py", NODE)
    machine.write("locks.yaml", EXPERIMENT.replace("PROTOCOL", str(int(inherits))))
    done = machine.command("run", "locks.yaml")
    if found := re.search("no kernel events of class sleep: (.*)", done.stderr):
        pytest.skip(f"SKIPPED LOUDLY: {found[1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    told = machine.ask("why", "runs/locks/latest", "--over", "4ms")
    assert told.returncode == 0, told.stderr
    named, both = [], set()
    for message in map(json.loads, told.stdout.splitlines()):
        (hop,) = message["hops"]
        assert sum(part["ns"] for part in hop["parts"]) == hop["ns"]
        slept = max(hop["parts"], key=lambda part: part["ns"])
        who = re.search(
            r"slept in futex held by node of h2 \((one|two)\)(?:, woken by node of h2 \((\w+)\))?",
            slept["cause"],
        )
        named.append(who is not None)
        both |= {who.groups()} if who else set()
    assert len(named) > 30 and sum(named) >= 0.9 * len(named), (sum(named), len(named))
    # The one that has it when a reader comes is not the one that gives it to that.
    assert ("one", "two") in both and ("two", "one") in both, both
