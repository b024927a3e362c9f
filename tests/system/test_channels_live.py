"""Channels of an experiment: what its programs do is recorded, judged and accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machine import BIN, Machine, without_kernel
from ordinary_user import OrdinaryUser
from ssh_machines import SshMachines

from loopscope.timeline import Run, open_run

pytestmark = pytest.mark.usefixtures("root")

FRAMES = 60
# It tells by its own clock for how long it worked between its puts, and for how long it put.
CAMERA = f"""
import json, time

from loopscope import stm

frames = stm.Service().open("frames", puts=True).output()
ends, begins, since = [], [], 0
for number in range({FRAMES}):
    while ends and time.perf_counter_ns() < ends[-1] + 3_000_000:
        pass
    ran = time.thread_time_ns() - since
    begins.append(time.perf_counter_ns())
    frames.put(number, bytes(100 + number))
    ends.append(time.perf_counter_ns())
    since = since or time.thread_time_ns()
worked = sum(begins[1:]) - sum(ends[:-1])
json.dump([worked, sum(ends) - sum(begins), ran], open("times.json", "w"))
"""
TRACKER = """
from loopscope import stm

service = stm.Service()
into = service.open("frames").input("oldest")
poses = service.open("poses", puts=True).output()
while True:
    with into.oldest() as frame:
        poses.put(frame.time, b"%d" % len(frame))
    into.consume_until(frame.time)
"""
ACTUATOR = """
from loopscope import stm

into = stm.Service().open("poses").input()
latest = None
while True:
    try:
        latest = into.look(latest).time
    except stm.NotYet:
        into.get(0 if latest is None else latest + 1, timeout=60).release()
    else:
        into.consume_until(latest - 1)
"""
LOOP = """
name: loop
hosts: [h1, h2]
channels:
  frames: {home: h1, item: 300B, capacity: 8}
  poses: {home: h1, item: 64B, capacity: 100}
components:
  actuator: {host: h1, run: PYTHON ./actuator.py, ready: started}
  tracker: {host: h1, run: PYTHON ./tracker.py, ready: started}
  camera: {host: h1, run: PYTHON ./camera.py, start: run, ready: {exit: 0}}
  stranger: {host: h2, run: PYTHON ./stranger.py, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["frames:*", "poses:*"]}
measure:
  paths:
    loop: {key: id, events: [camera/frames:put, tracker/frames:got, tracker/poses:put]}
expect: [loop.lost == 0, loop complete]
"""
# Another host has not this memory, though it is the same machine.
STRANGER = """
from loopscope import stm

try:
    stm.Service("@loopscope-stm-RUN-h1").open("frames")
except stm.StmError as error:
    assert "no service of channels answers" in str(error), error
else:
    raise SystemExit("a host has another one's memory")
"""


def rows(run: Run, table: str, columns: str) -> list[tuple[Any, ...]]:
    return run.relation(table).order("ts").project(columns).fetchall()


PROGRAMS = {"camera": CAMERA, "tracker": TRACKER, "actuator": ACTUATOR, "stranger": STRANGER}


def services(directory: Path) -> list[str]:
    """The processes that serve channels of runs in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            serves = b"stm\0serve" in (process / "cmdline").read_bytes()
            if serves and (process / "cwd").resolve().is_relative_to(directory.resolve()):
                found.append(process.name)
        except OSError:  # It has ended meanwhile.
            continue
    return found


def made(machine: Machine | SshMachines, text: str) -> Path:
    """The experiment's file, with its programs."""
    for name, program in PROGRAMS.items():
        machine.write(f"{name}.py", program)
    return machine.write("loop.yaml", text.replace("PYTHON", f"{BIN}/python"))


def test_what_programs_do_with_channels_is_recorded_and_accounted_for(machine: Machine) -> None:
    """Every item's way, what was collected, and how each thread spent its time."""
    made(machine, without_kernel(LOOP))
    done = machine.command("run", "loop.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    directory = machine.directory / "runs/loop/latest"
    run = open_run(directory)
    every = list(range(FRAMES))

    assert rows(run, "frames.put", "id, bytes") == [(n, 100 + n) for n in every]
    assert rows(run, "frames.got", "id, bytes") == [(n, 100 + n) for n in every]
    assert rows(run, "frames.consumed", "id, until") == [(n, 1) for n in every]
    assert rows(run, "frames.collected", "id, dropped") == [(n, 0) for n in every]
    put = dict(rows(run, "poses.put", "id, ts"))
    looked = dict(rows(run, "poses.looked", "id, ts"))
    assert sorted(put) == every and set(looked) <= set(put)
    assert all(put[number] < ts for number, ts in looked.items())
    collected = sorted(number for (number,) in rows(run, "poses.collected", "id"))
    assert collected == every[: len(collected)] and len(collected) >= FRAMES - 2

    results = json.loads((directory / "results.json").read_text())["channels"]
    frames, poses = results["channels"]
    assert frames == {
        "repeat": 1,
        "host": "h1",
        "channel": "frames",
        "capacity": 8,
        "put": FRAMES,
        "collected": FRAMES,
        "dropped": 0,
        "left": 0,
    }
    assert poses["put"] == FRAMES and poses["left"] == FRAMES - poses["collected"]
    uses = {
        (each["component"], each["channel"], each["event"]): (each["items"], each["bytes"])
        for each in results["uses"]
    }
    every_byte = sum(100 + number for number in every)
    assert uses["camera", "frames", "put"] == (FRAMES, every_byte)
    assert uses["tracker", "frames", "got"] == (FRAMES, every_byte)
    assert uses["tracker", "poses", "put"] == (FRAMES, 3 * FRAMES)
    assert uses["actuator", "poses", "looked"] == (len(looked), 3 * len(looked))
    (camera_rate,) = (each["rate_hz"] for each in results["uses"] if each["component"] == "camera")
    assert 0 < camera_rate <= 1 / 0.003
    threads = {each["component"]: each for each in results["threads"]}
    assert sorted(threads) == ["actuator", "camera", "tracker"]
    for each in threads.values():
        parts = [each[f"{part}_ns"] for part in ("application", "blocked", "runtime")]
        assert sum(parts) == each["time_ns"] and min(parts) >= 0 and each["missing"] == 0
        # No events of the kernel were asked for.
        assert each["application_cpu_ns"] is None and each["runtime_cpu_ns"] is None
    # Python works within its `put`, too, around the library's calls.
    times = run.repeats[1] / "hosts/h1/components/camera/files/times.json"
    worked, put, _ = json.loads(times.read_text())
    camera = threads["camera"]
    assert worked <= camera["application_ns"] and camera["time_ns"] <= worked + put
    assert 0 < camera["blocked_ns"] + camera["runtime_ns"] <= put
    # The tracker does nothing but wait for the camera.
    assert threads["tracker"]["blocked_ns"] > 0.5 * threads["tracker"]["time_ns"]
    text = done.stdout
    assert "frames of h1   60         60        0     0         8" in text
    assert "Threads at channels" in text and "camera of h1 → frames" in text
    assert "poses → actuator of h1 (looked)" in text


@pytest.mark.full
def test_the_runtimes_processor_time_is_told_from_the_kernels_events(machine: Machine) -> None:
    made(machine, LOOP.replace('"poses:*"]', '"poses:*"], kernel: ["sched:*"]'))
    done = machine.command("run", "loop.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    directory = machine.directory / "runs/loop/latest"
    threads = json.loads((directory / "results.json").read_text())["channels"]["threads"]
    told = {
        each["component"]: (each, each["application_cpu_ns"] + each["runtime_cpu_ns"])
        for each in threads
        # Some virtual machines' kernels do not tell when certain threads come and leave.
        if each["application_cpu_ns"] is not None
    }
    for each, ran_ns in told.values():
        assert 0 <= ran_ns <= each["application_ns"] + each["runtime_ns"]
        assert each["runtime_cpu_ns"] <= each["runtime_ns"]
    # It works for all of its time but the waits, and the others wait for most of it.
    if "camera" in told:
        file = open_run(directory).repeats[1] / "hosts/h1/components/camera/files/times.json"
        *_, ran_ns = json.loads(file.read_text())
        assert told["camera"][1] >= 0.98 * ran_ns
    if "tracker" in told:
        each, ran_ns = told["tracker"]
        assert ran_ns < 0.5 * each["time_ns"]


@pytest.mark.full
def test_machines_over_ssh_have_channels_of_their_own(machines: SshMachines) -> None:
    of_ssh = "testbed: ssh\nmachines: {h1: {user: root}, h2: {user: root}}\nhosts: [h1, h2]"
    file = made(machines, without_kernel(LOOP).replace("hosts: [h1, h2]", of_ssh))
    done = machines.command("run", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "frames of h1   60         60        0     0         8" in done.stdout
    assert "Threads at channels" in done.stdout


@pytest.mark.full
def test_an_ordinary_user_has_them_too(user: OrdinaryUser) -> None:
    for name, program in PROGRAMS.items():
        (user.home / f"{name}.py").write_text(program)
    (user.home / "loop.yaml").write_text(without_kernel(LOOP).replace("PYTHON", "python"))
    done = user.command("run", "loop.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "frames of h1   60         60        0     0         8" in done.stdout


@pytest.mark.full
def test_a_run_leaves_no_channel_and_a_killed_programs_items_are_told(machine: Machine) -> None:
    """The service collects what a program wanted that was killed, and records it."""
    killed = """
import os, signal
from loopscope import stm

service = stm.Service()
into = service.open("notes").input()
out = service.open("notes", puts=True).output()
for number in range(3):
    out.put(number, b"")
os.kill(os.getpid(), signal.SIGKILL)
"""
    machine.write("killed.py", killed)
    text = """
name: loop
hosts: [h1]
channels: {notes: {home: h1, item: 8B, orphans: discard}}
components:
  killed: {host: h1, run: PYTHON ./killed.py, ready: {exit: 0}, allow_failure: true}
  after: {host: h1, run: [sleep, "0.5"], start: run, ready: {exit: 0}}
phases: [{name: run, timeout: 60s}]
trace: {user: ["notes:*"], kernel: off}
"""
    made(machine, text)
    done = machine.command("run", "loop.yaml")
    run = open_run(machine.directory / "runs/loop/latest")
    assert sorted(rows(run, "notes.collected", "process::VARCHAR, id")) == [
        ("_channels-h1", number) for number in range(3)
    ], done.stdout + done.stderr
    assert not services(machine.directory)


@pytest.mark.full
def test_a_channel_that_nobody_uses_is_counted_all_the_same(machine: Machine) -> None:
    machine.write("opens.py", 'from loopscope import stm\nstm.Service().open("idle").input()\n')
    text = """
name: loop
hosts: [h1]
channels: {idle: {home: h1, item: 8B}}
components:
  opens: {host: h1, run: PYTHON ./opens.py, start: run, ready: {exit: 0}}
phases: [{name: run, timeout: 60s}]
trace: {user: ["idle:*"], kernel: off}
"""
    made(machine, text)
    done = machine.command("run", "loop.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    read = json.loads((machine.directory / "runs/loop/latest/results.json").read_text())["channels"]
    (idle,) = read["channels"]
    assert (idle["put"], idle["left"], read["uses"], read["threads"]) == (0, 0, [], [])


@pytest.mark.full
def test_a_channel_for_which_there_is_no_memory_ends_the_run(machine: Machine) -> None:
    made(machine, LOOP.replace("item: 300B, capacity: 8", "item: 4GB, capacity: 100000"))
    done = machine.command("run", "loop.yaml")
    assert done.returncode == 4, done.stdout
    assert "cannot make channel frames" in done.stdout + done.stderr
