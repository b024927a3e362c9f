"""Channels whose items programs of other hosts get, over emulated links."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from machine import BIN, Machine, without_kernel
from ordinary_user import OrdinaryUser
from ssh_machines import SshMachines

from loopscope.timeline import Run, open_run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

FRAMES = 50
DELAY_NS = 20_000_000
# Each frame says when it was put, by the clock of the one kernel that all hosts have here.
CAMERA = f"""
import time

from loopscope import stm

frames = stm.Service().open("frames", puts=True).output()
for number in range({FRAMES}):
    frames.put(number, time.clock_gettime_ns(time.CLOCK_MONOTONIC).to_bytes(8, "little") * 1000)
    time.sleep(0.01)
"""
TRACKER = f"""
import json, time

from loopscope import stm

service = stm.Service()
into = service.open("frames").input("oldest")
poses = service.open("poses", puts=True).output()
told = []
for number in range({FRAMES}):
    with into.oldest(timeout=30) as frame:
        put = int.from_bytes(frame.view[:8], "little")
        told.append([frame.time, put, frame.put_ns, frame.age_error_ns, frame.age_ns])
        assert frame.view == frame.view[:8].tobytes() * 1000
        poses.put(frame.time, b"pose")
    into.consume_until(frame.time)
json.dump(told, open("told.json", "w"))
time.sleep(0.2)
"""
ACTUATOR = f"""
from loopscope import stm

into = stm.Service().open("poses").input("oldest")
for number in range({FRAMES}):
    into.get(number, timeout=30).release()
    into.consume_until(number)
"""
LOOP = """
name: loop
hosts: [h1, h2]
NETWORK
channels:
  frames: {home: h1, item: 8kB, capacity: 100}
  poses: {home: h2, item: 64B, capacity: 100}
components:
  actuator: {host: h1, run: PYTHON ./actuator.py, start: run, ready: {exit: 0}}
  tracker: {host: h2, run: PYTHON ./tracker.py, start: run, ready: {exit: 0}}
  camera: {host: h1, run: PYTHON ./camera.py, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["frames:*", "poses:*", "frames_inside:*"]}
measure:
  paths:
    loop: {key: id, events: [camera/frames:put, tracker/frames:got, actuator/poses:got]}
expect: [loop.lost == 0, loop complete]
"""
# The camera is elsewhere than its channel's home.
ELSEWHERE = """
name: loop
hosts: [h1, h2]
network: {default: {delay: 20ms}}
channels:
  frames: {home: h1, item: 8kB, capacity: 100}
  poses: {home: h1, item: 64B, capacity: 100}
components:
  tracker: {host: h1, run: PYTHON ./tracker.py, start: run, ready: {exit: 0}}
  viewer: {host: h2, run: PYTHON ./viewer.py, start: run, ready: {exit: 0}}
  camera: {host: h2, run: PYTHON ./camera.py, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["frames:*"], kernel: off}
measure:
  paths:
    near: {key: id, events: [camera/frames:put, _channels-h1/frames:received, tracker/frames:got]}
    back: {key: id, events: [camera/frames:put, viewer/frames:got]}
expect: [near.lost == 0, back.lost == 0, back > 39ms]
"""
DELAYED = "network: {default: {delay: 20ms}}"
PROGRAMS = {
    "camera": CAMERA,
    "tracker": TRACKER,
    "actuator": ACTUATOR,
    "viewer": ACTUATOR.replace("poses", "frames"),
}


def made(machine: Machine | SshMachines, text: str) -> Path:
    for name, program in PROGRAMS.items():
        machine.write(f"{name}.py", program)
    return machine.write("loop.yaml", text.replace("PYTHON", f"{BIN}/python"))


def times(run: Run, table: str) -> dict[int, int]:
    found = run.relation(table).project("id, ts").fetchall()
    assert len(found) == FRAMES
    return dict(found)


def intervals(run: Run, table: str) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Begins and ends by process and id."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    rows = run.relation(table).project("process::VARCHAR, id, start, ts").fetchall()
    for process, number, start, end in rows:
        found.setdefault((process, number), []).append((start, end))
    return found


def test_items_of_another_host_are_got_recorded_and_accounted_for(machine: Machine) -> None:
    """Each item's way over the link and back, and how old it is."""
    made(machine, without_kernel(LOOP.replace("NETWORK", DELAYED)))
    done = machine.command("run", "loop.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    directory = machine.directory / "runs/loop/latest"
    run = open_run(directory)
    put, sent, received, got = (
        times(run, f"frames.{name}") for name in ("put", "sent", "received", "got")
    )
    for number in range(FRAMES):
        # The clocks of two hosts agree to some microseconds.
        assert put[number] <= sent[number] <= received[number] - DELAY_NS + 100_000
        assert received[number] <= got[number]
    assert sorted(times(run, "poses.got")) == list(range(FRAMES))

    told = json.loads((run.repeats[1] / "hosts/h2/components/tracker/files/told.json").read_text())
    for number, (time, put_ns, its_put_ns, error_ns, age_ns) in enumerate(told):
        assert time == number
        # It was put right after it was made, as far as the other host can know.
        assert error_ns > 0 and put_ns <= its_put_ns + error_ns
        assert age_ns >= DELAY_NS - error_ns
    # The error is half of a way there and back, and what clocks may drift in a moment.
    errors = sorted(error_ns for *_, error_ns, _ in told)
    assert errors[FRAMES // 2] < 2 * DELAY_NS

    channels = json.loads((directory / "results.json").read_text())["channels"]
    counts = {each["channel"]: each for each in channels["channels"]}
    assert len(channels["channels"]) == 2 and counts["poses"]["host"] == "h2"
    # What the other host has consumed, the home frees; the last may be on its way.
    assert counts["frames"]["put"] == FRAMES and counts["frames"]["dropped"] == 0
    collected = run.relation("frames.collected").project("process::VARCHAR").fetchall()
    assert len(collected) == counts["frames"]["collected"]
    threads = channels["threads"]
    services = [each for each in threads if each["component"].startswith("_")]
    # Two of each channel's home, and two of its mirror.
    assert len(services) == 8 and len(threads) == 8 + 3
    for each in threads:
        parts = ["application", "blocked", "runtime", "messaging"]
        spent = [each[f"{part}_ns"] for part in parts]
        assert sum(spent) == each["time_ns"] and min(spent) >= 0 and each["missing"] == 0
        assert 0 <= each["memory_ns"] + each["synchronisation_ns"] <= each["runtime_ns"]
        assert 0 <= each["messaging_synchronisation_ns"] <= each["messaging_ns"]
        # A service has no application, and no program sends messages.
        assert not (each["application_ns"] if each in services else each["messaging_ns"])
    # The home has sent each item, and the mirror has received it, before it is there.
    messages = intervals(run, "frames.message")
    for number in range(FRAMES):
        for relays in (("_channels-h1", 1), ("_channels-h2", 2)):
            within = (
                sent[number] <= start and end <= received[number] for start, end in messages[relays]
            )
            assert any(within), (number, relays)
    # A place is taken for each item here and there, and freed when it is collected.
    memory = intervals(run, "frames_inside.memory")
    home = sum(len(memory[key]) for key in memory if key[0] in ("camera", "_channels-h1"))
    assert home == FRAMES + counts["frames"]["collected"]
    # The parts of each item's way, from the same events.
    parts = {each["channel"]: each for each in channels["remote_items"]}
    assert {name: each["component"] for name, each in parts.items()} == {
        "frames": "tracker",
        "poses": "actuator",
    }
    frames = parts["frames"]
    assert (frames["items"], frames["undecided_sent"], frames["missing"]) == (FRAMES, 0, 0)
    for name, (start, end) in {
        "put_to_sent": (put, sent),
        "sent_to_received": (sent, received),
        "received_to_got": (received, got),
        "whole": (put, got),
    }.items():
        lengths = sorted(end[number] - start[number] for number in range(FRAMES))
        part = frames[name]
        assert (part["items"], part["max_ns"]) == (FRAMES, lengths[-1])
        assert part["p50_ns"] == lengths[FRAMES // 2 - 1] and part["err_ns"] > 0
    assert "frames of h1 → tracker of h2" in done.stdout
    uses = {(each["component"], each["channel"], each["event"]) for each in channels["uses"]}
    assert uses == {
        ("camera", "frames", "put"),
        ("tracker", "frames", "got"),
        ("tracker", "poses", "put"),
        ("actuator", "poses", "got"),
    }


def test_a_congestion_control_that_is_not_there_is_told(machine: Machine) -> None:
    network = "network: {channels_congestion: none-such}"
    done = machine.command("run", made(machine, without_kernel(LOOP.replace("NETWORK", network))))
    assert done.returncode == 4, done.stdout + done.stderr
    assert "TCP's congestion control none-such: No such file or directory" in done.stderr


def test_machines_over_ssh_get_each_others_items(machines: SshMachines) -> None:
    of_ssh = "testbed: ssh\nmachines: {h1: {user: root}, h2: {user: root}}\nhosts: [h1, h2]"
    text = without_kernel(LOOP).replace("hosts: [h1, h2]", of_ssh).replace("NETWORK", "")
    done = machines.command("run", made(machines, text))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tracker of h2" in done.stdout


def test_an_ordinary_user_gets_them_too(user: OrdinaryUser) -> None:
    for name, program in PROGRAMS.items():
        (user.home / f"{name}.py").write_text(program)
    text = without_kernel(LOOP).replace("PYTHON", "python").replace("NETWORK", DELAYED)
    (user.home / "loop.yaml").write_text(text)
    done = user.command("run", "loop.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_of_another_host_puts(machine: Machine) -> None:
    """Items go to their home, and to a reader of the host that they came from."""
    made(machine, ELSEWHERE)
    done = machine.command("run", "loop.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    directory = machine.directory / "runs/loop/latest"
    run = open_run(directory)
    put, sent = times(run, "frames.put"), times(run, "frames.sent")
    rows = run.relation("frames.received").project("host::VARCHAR, id, ts").fetchall()
    received = {(host, number): ts for host, number, ts in rows}
    assert len(rows) == len(received) == 2 * FRAMES
    for number in range(FRAMES):
        home, back = received["h1", number], received["h2", number]
        assert put[number] + DELAY_NS - 100_000 <= home <= sent[number]
        assert sent[number] + DELAY_NS - 100_000 <= back
        # The next put waited for the answer.
        assert number == 0 or put[number] - put[number - 1] >= 2 * DELAY_NS - 100_000
    (items,) = json.loads((directory / "results.json").read_text())["channels"]["remote_items"]
    assert (items["host"], items["items"]) == ("h2", FRAMES)
    assert items["without_put"] == items["without_sent"] == items["without_received"] == 0
    assert items["whole"]["p50_ns"] >= DELAY_NS - 100_000
    told = json.loads((run.repeats[1] / "hosts/h1/components/tracker/files/told.json").read_text())
    for _, made_ns, put_ns, error_ns, age_ns in told:
        assert abs(put_ns - made_ns) <= error_ns + 5_000_000 and age_ns >= DELAY_NS - error_ns
