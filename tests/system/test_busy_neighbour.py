"""A busy program on a controller's processor: what a user who knows of no cause is told.

It needs root. The kernel may weigh `nice` within a session alone (sched_autogroup_enabled): the
busy program then has half of the processor, else nearly all of it.
"""

from __future__ import annotations

import re

import pytest
from machine import Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root", "real_time")]

EXPERIMENT = """\
name: busy
hosts: [h1, h2]
components:
  controller: {host: h2, run: taskset -c 1 python ./controller.py, ready: {port: 7001}}
  busy: {host: h2, run: nice -n -15 taskset -c 1 python ./busy.py, ready: {line: here}}
  sensor: {host: h1, run: taskset -c 0 python ./sensor.py, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 30s}]
measure:
  paths:
    loop:
      events:
        - sensor/loop:sent
        - controller/loop:received
        - controller/loop:done
        - sensor/loop:answered
expect: [loop.p99 < 2500us]
"""
PROGRAMS = {
    "busy.py": """\
print("here", flush=True)
while True:
    pass
""",
    # A message is answered before the next one goes out, so none waits behind another.
    "sensor.py": """\
import socket, time
from loopscope_trace import flow_in, flow_out

sent, answered = flow_out("loop", "sent"), flow_in("loop", "answered")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + 1
number = 0
while (begin := time.monotonic()) < end:
    sent(number)
    conn.sendto(number.to_bytes(8, "little"), ("h2", 7001))
    conn.recv(8)
    answered(number)
    number += 1
    time.sleep(max(begin + 0.005 - time.monotonic(), 0))
""",
    "controller.py": """\
import socket, time
from loopscope_trace import flow_in, flow_out

received, done = flow_in("loop", "received"), flow_out("loop", "done")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
conn.bind(("", 7001))
while True:
    body, sensor = conn.recvfrom(8)
    number = int.from_bytes(body, "little")
    received(number)
    until = time.thread_time() + 0.001
    while time.thread_time() < until:
        pass
    done(number)
    conn.sendto(body, sensor)
""",
}


def test_the_line_of_the_fail_names_the_busy_program(machine: Machine) -> None:
    for name, text in PROGRAMS.items():
        machine.write(name, text)
    machine.write("busy.yaml", EXPERIMENT)
    done = machine.command("run", "busy.yaml")
    assert done.returncode == 1, done.stdout + done.stderr
    cause = "runnable: controller of h2 waited on cpu1 behind busy of h2"
    fail = rf"^FAIL +loop\.p99 < 2500us  .*  \d+ % of the .* above 2\.500 ms: {cause}$"
    assert re.search(fail, done.stdout, re.MULTILINE), done.stdout
