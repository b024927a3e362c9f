"""What woke programs that record nothing, against what they know themselves.

Needs root. Interrupts of a disk need one, and a file that is read past the page cache.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from kernel_run import without_loss
from machine import BIN, Machine

from loopscope.timeline import Run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

PERIOD_NS = 5_000_000
TICKS = 200
# Its timer expires at instants that it knows beforehand. Each third time it computes and sends.
TICKER = f"""
import os, socket, struct, threading, time
from loopscope_trace import event, flow_out

before, woke = event("own", "before"), flow_out("own", "woke")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# Another thread, whose timers are others.
threading.Thread(target=lambda: [time.sleep(0.0007) for _ in range(300)], daemon=True).start()
before(0)
begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
for number in range(1, {TICKS} + 1):
    due = begin + number * {PERIOD_NS}
    time.sleep(max(0, (due - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) / 1e9))
    woke(number)
    if number % 3 == 0:
        done = time.perf_counter() + 0.002
        while time.perf_counter() < done:
            pass
        conn.sendto(struct.pack("<Q", number), ("h2", 7001))
"""
SINK = """
import socket
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
conn.bind(("", 7001))
while conn.recv(100):
    pass
"""
READER = """
import mmap, os, sys
from resource import RUSAGE_THREAD, getrusage
from loopscope_trace import flow_out

done = flow_out("own", "read", slept="u32")
path = sys.argv[1]
file = os.open(path, os.O_RDONLY | os.O_DIRECT)
room = mmap.mmap(-1, 4096)
for number in range(100):
    before = getrusage(RUSAGE_THREAD).ru_nvcsw
    os.preadv(file, [room], number % 16 * 4096)
    done(number, getrusage(RUSAGE_THREAD).ru_nvcsw - before)
"""
TOLD = """
name: told
hosts: [h1, h2]
components:
  sink: {host: h2, run: PYTHON ./sink.py, ready: {port: 7001}}
  ticker: {host: h1, run: PYTHON ./ticker.py, start: run, ready: {exit: 0}}
  reader: {host: h2, run: PYTHON ./reader.py FILE, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace:
  user: ["own:*"]
  messages:
    cmd: {protocol: udp, to: 7001}
  wakeups:
    tick: {by: timer, number: own:woke}
    sends: {by: timer, number: cmd:sent}
    every: {by: timer}
    disk: {by: interrupt, interrupt: "virtio*", number: own:read}
measure:
  paths:
    wakes: {events: [ticker/tick:fired, ticker/own:woke]}
    loop: {events: [ticker/sends:fired, ticker/cmd:sent, sink/cmd:received]}
    latest:
      events:
        - ticker/every:fired
        - {event: ticker/cmd:sent, key: id, join: {ticker/every:fired: latest}}
        - sink/cmd:received
expect:
  - loop.lost == 0
  - wakes.lost == 0
  - "latest[ticker/every:fired -> sink/cmd:received].max < 1ms"
""".replace("PYTHON", f"{BIN}/python")


def events(run: Run, table: str, component: str) -> list[tuple[int, int, int]]:
    """Number, time and maximum error of a component's events, by time."""
    rows = run.relation(table).filter(f"process = '{component}'").order("ts")
    return [(int(a), int(b), int(c)) for a, b, c in rows.project("id, ts, err_ns").fetchall()]


def recorded(machine: Machine) -> tuple[Run, dict[str, Any]]:
    machine.write("ticker.py", TICKER)
    machine.write("sink.py", SINK)
    machine.write("reader.py", READER)
    file = machine.directory / "read"
    file.write_bytes(bytes(65536))
    subprocess.run(["sync", str(file)], check=True)
    run, read, _ = without_loss(machine, TOLD.replace("FILE", str(file)), "udp")
    return run, read


def test_what_woke_programs_is_told(machine: Machine) -> None:
    run, read = recorded(machine)
    timers_fire_when_they_are_due(run, read)
    a_path_may_begin_at_a_timer(machine, run, read)
    interrupts_of_a_device_have_events(run, read)


def timers_fire_when_they_are_due(run: Run, read: dict[str, Any]) -> None:
    fired, woke = events(run, "tick.fired", "ticker"), events(run, "own.woke", "ticker")
    assert [each[0] for each in fired] == [number for number, *_ in woke]
    ((begin,),) = run.relation("own.before").project("ts").fetchall()
    ends = ends_of_timer_interrupts(run)
    for (number, at, err), (_, woke_at, woke_err) in zip(fired, woke, strict=True):
        # The kernel may have the clock that it sleeps by run faster by 500 ppm (adjtimex(2)). An
        # interrupt may begin for another timer, and last until this one has expired, too.
        assert ends[at] + err >= begin + number * PERIOD_NS * (1 - 500e-6), number
        assert at <= woke_at + err + woke_err, number
    told = read["watched"]
    assert told["tick"]["events"] == {"fired": TICKS} and told["tick"]["missing"] == 0
    # It sends after each third.
    assert told["sends"]["numberless"] == TICKS - TICKS // 3
    every = events(run, "every.fired", "ticker")
    assert [each[0] for each in every] == list(range(len(every)))
    # The other thread has timers too.
    assert len(every) >= TICKS + 300
    assert {each[1] for each in fired} <= {each[1] for each in every}


def ends_of_timer_interrupts(run: Run) -> dict[int, int]:
    """When each of the processors' timer interrupts ended, by when it began."""
    rows = [
        (at, cpu, begins)
        for begins, table in ((True, "local_timer_entry"), (False, "local_timer_exit"))
        for at, cpu in run.relation(f"kernel.{table}").project("ts, cpu").fetchall()
    ]
    ends: dict[int, int] = {}
    begun: dict[int, int] = {}
    for at, cpu, begins in sorted(rows):
        if begins:
            begun[cpu] = at
        elif cpu in begun:
            ends[begun.pop(cpu)] = at
    return ends


def a_path_may_begin_at_a_timer(machine: Machine, run: Run, read: dict[str, Any]) -> None:
    assert [each["verdict"] for each in read["expectations"]] == ["PASS", "PASS", "FAIL"]
    sent = [number for number, *_ in events(run, "cmd.sent", "ticker")]
    assert [number for number, *_ in events(run, "sends.fired", "ticker")] == sent
    assert sent == list(range(3, TICKS + 1, 3))
    assert read["paths"]["loop"]["lost"] == 0
    # The second path joins the latest of all timers.
    for path, first in (("loop", "sends"), ("latest", "every")):
        told = machine.ask("why", str(run.path), "--path", path, "--worst", "20")
        messages = [json.loads(line) for line in told.stdout.splitlines()]
        assert len(messages) == 20, told.stderr
        hops = [hop for message in messages for hop in message["hops"]]
        assert {hop["first"] for hop in hops} == {f"ticker/{first}:fired", "ticker/cmd:sent"}
        for hop in hops:
            assert sum(part["ns"] for part in hop["parts"]) == hop["ns"]
        # A kernel may not tell when a processor ends its idling.
        known = [hop for hop in hops if "unknown" not in {part["name"] for part in hop["parts"]}]
        assert len(known) > 0.7 * len(hops), hops
    ranked = machine.ask("why", str(run.path), "--path", "latest", "--rank")
    assert json.loads(ranked.stdout)["over_ns"] == 1_000_000
    reason = read["expectations"][2]["reason"]
    assert re.match(r"\d+ % of the \d+ above 1.000 ms: .*: ticker of h1 ", reason), reason


def interrupts_of_a_device_have_events(run: Run, read: dict[str, Any]) -> None:
    read_at = events(run, "own.read", "reader")
    assert len(read_at) == 100
    if not read["watched"]["disk"]["events"]["fired"]:
        pytest.skip("SKIPPED LOUDLY: this machine's disk has no interrupt of a virtio device")
    fired = {number: (at, err) for number, at, err in events(run, "disk.fired", "reader")}
    # The disk may be done before the thread sleeps: then nothing wakes it.
    rows = run.relation("own.read").project("id, slept").fetchall()
    slept = {number for number, count in rows if count}
    if not slept:
        pytest.skip("SKIPPED LOUDLY: this machine's disk is always done before a thread sleeps")
    assert len(fired.keys() & slept) > len(slept) / 2, (slept, fired)
    before = 0
    for number, at, err in read_at:
        if number in fired:
            interrupt, its_err = fired[number]
            assert before - err - its_err <= interrupt <= at + err + its_err, number
        before = at
