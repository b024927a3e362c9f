"""Channels whose items are of use for a while only, over links that lose packets."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from kernel_run import without_loss
from machine import BIN, Machine

from loopscope.timeline import Run, open_run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

FRAMES = 150
BYTES = 30_000
LIFESPAN_NS = 150_000_000
# Between its look at the time and its put, a mirror may lose the processor.
LATE_NS = LIFESPAN_NS + 20_000_000
CAMERA = f"""
import time

from loopscope import stm

frames = stm.Service().open("frames", puts=True).output()
for turn in stm.Pace(0.02, tolerance=0.02):
    if turn.number >= {FRAMES}:
        break
    frames.put(turn.number, turn.number.to_bytes(4, "little") * {BYTES // 4})
frames.bound({FRAMES})
time.sleep(1)
"""
TRACKER = f"""
import json

from loopscope import stm

into = stm.Service().open("frames").input("oldest")
told = {{"got": [], "none": []}}
for number in range({FRAMES}):
    try:
        with into.get(number, timeout=20) as frame:
            assert frame.view == number.to_bytes(4, "little") * {BYTES // 4}
            told["got"].append(number)
    except (stm.Gone, stm.Never) as error:
        told["none"].append(number)
    into.consume_until(number)
told["lost"] = into.counts().lost
json.dump(told, open("told.json", "w"))
"""
LOOP = """
name: loop
hosts: [h1, h2]
network:
  h1 -> h2: {delay: 10ms, loss: LOSS}
  h2 -> h1: {delay: 10ms, loss: LOSS}
channels:
  frames: {home: h1, item: 30kB, capacity: 64, full: drop, lifespan: 150ms}
components:
  tracker: {host: h2, run: PYTHON ./tracker.py, start: run, ready: {exit: 0}}
  camera: {host: h1, run: PYTHON ./camera.py, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["frames:*"], kernel: off}
"""

# A datagram has its item's time behind a token, a number, and 16 bytes of its head.
FOLLOWED = (
    LOOP.replace("LOSS", "5%")
    .replace("network:\n", "network:\n  message: {offset: 32B, width: 8B}\n")
    .replace("kernel: off", 'kernel: ["sched:*", "irq:*", "softirq:*", "udp:*", "drop:*"]')
    + """\
measure:
  paths: {item: {key: id, events: [_channels-h1/frames:sent, _channels-h2/frames:received]}}
"""
)


def prepared(machine: Machine, text: str) -> str:
    """Writes the programs of an experiment; its text."""
    machine.write("camera.py", CAMERA)
    machine.write("tracker.py", TRACKER)
    return text.replace("PYTHON", f"{BIN}/python")


def ran(machine: Machine, text: str) -> tuple[Run, dict[str, object], Path]:
    file = machine.write("loop.yaml", prepared(machine, text))
    done = machine.command("run", file)
    assert done.returncode == 0, done.stdout + done.stderr
    directory = machine.directory / "runs/loop/latest"
    run = open_run(directory)
    folder = run.repeats[1] / "hosts/h2/components/tracker/files"
    return run, json.loads((folder / "told.json").read_text()), directory


def test_what_a_link_loses_is_sent_again_in_time_or_counted(machine: Machine) -> None:
    run, told, directory = ran(machine, LOOP.replace("LOSS", "5%"))
    got, none = set(told["got"]), set(told["none"])
    assert got | none == set(range(FRAMES)) and not got & none
    assert told["lost"] == len(none)
    # Each has 22 datagrams, so two thirds of the frames lose one.
    assert len(got) > 0.8 * FRAMES
    put, received = (
        dict(run.relation(f"frames.{name}").project("id, ts").fetchall())
        for name in ("put", "received")
    )
    assert set(received) == got
    for number in got:
        # The clocks of two hosts agree to some microseconds.
        took = received[number] - put[number]
        assert 10_000_000 - 100_000 <= took < LATE_NS
    (link,) = (
        each
        for each in json.loads((directory / "results.json").read_text())["links"]
        if (each["from"], each["to"]) == ("h1", "h2")
    )
    # The link has carried the items: TCP's heads alone are a tenth of it.
    assert link["packets"] > 22 * FRAMES


def test_a_link_that_is_too_slow_loses_what_is_late_and_no_more(machine: Machine) -> None:
    """Frames make 13 Mbit/s with their headers, and the link takes 6."""
    slow = LOOP.replace("loss: LOSS", "rate: 6Mbit, queue: 100packets")
    run, told, _ = ran(machine, slow)
    received = dict(run.relation("frames.received").project("id, ts").fetchall())
    put = dict(run.relation("frames.put").project("id, ts").fetchall())
    assert set(received) == set(told["got"]) and told["lost"] == len(told["none"])
    assert FRAMES * 0.25 < len(received) < FRAMES * 0.6
    # At first the home's clock is known by messages that waited in the link's queue.
    late = [each for each in received if received[each] - put[each] > LATE_NS]
    assert all(each < 10 for each in late), late
    # Some come until the end: not all of them are late because they wait for each other.
    assert max(received) > 0.9 * FRAMES


def test_an_item_is_followed_by_its_own_datagrams(machine: Machine) -> None:
    """The link sees the items' times in the datagrams, of which the kernel's events know nothing.

    Needs tracefs and a build with clang.
    """
    run, read, _ = without_loss(machine, prepared(machine, FOLLOWED), "udp")
    sent, received = (
        dict(run.relation(f"frames.{name}").project("id, ts").fetchall())
        for name in ("sent", "received")
    )
    link = 'repeat, "from", "to", number'
    packets = run.relation("link.packet").filter("protocol = 17")
    packets = packets.project('repeat, "from", "to", id AS number')
    on_link: defaultdict[int, list[int]] = defaultdict(list)
    came = run.relation("link.enqueued").join(packets, link).filter('"from" = 0').order("ts")
    for item, ts in came.project("id, ts").fetchall():
        on_link[item].append(ts)
    recorded: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for item, *part in run.relation("frames.datagram").project("id, part, bytes").fetchall():
        recorded[item].append((part[0], part[1]))
    parts_of = run.relation("frames.datagram").project("parts").distinct().fetchall()
    assert parts_of == [(22,)]
    told = machine.ask("why", "runs/loop/latest", "--worst", "1000", "--packets")
    messages = [json.loads(line) for line in told.stdout.splitlines()]
    assert {each["id"] for each in messages} == set(received), told.stderr
    untold = re.compile("is not told" if read["kernel"]["unobservable"] else "(?!)")
    good = lossy = named = 0
    for message in messages:
        (hop,) = message["hops"]
        item, parts, packets = message["id"], hop["parts"], hop.get("packets", ())
        assert sum(part["ns"] for part in parts) == hop["ns"]
        unknown = sum(
            part["ns"]
            for part in parts
            if part["name"] == "unknown" and not untold.search(part["cause"])
        )
        good += bool(packets) and unknown <= max(0.05 * hop["ns"], 2_000)
        if not packets:
            continue
        at_link = [each for each in packets if each.get("link") and each["came"]]
        own = [sent[item] + each["after_ns"] for each in at_link]
        assert len(on_link[item]) == len(recorded[item])
        # Each part has a token, a number and a head before the item's bytes.
        lengths = dict(recorded[item])
        assert sorted(lengths) == list(range(22)) and sum(lengths.values()) == BYTES + 64 * 22
        expected = [ts for ts in on_link[item] if ts <= received[item]]
        near = 2 * hop["err_ns"] + 1_000
        assert len(own) == len(expected), item
        assert all(abs(at - ts) <= near for at, ts in zip(own, expected, strict=True)), item
        came_at = {each["first"]: each["bytes"] for each in packets if each["came"]}
        places = [sum(lengths[part] for part in range(upto)) for upto in range(22)]
        assert came_at == dict(zip(places, (lengths[part] for part in range(22)), strict=True))
        if any(each.get("lost") for each in packets):
            lossy += 1
            again = "sent again, as it was taken for lost; the emulated link h1 → h2 lost it"
            named += any(again in part["cause"] for part in parts)
    least = 0.9 if read["kernel"]["unobservable"] else 0.95
    assert good >= least * len(messages), (good, len(messages))
    assert lossy > 0.5 * len(messages) and named >= 0.8 * lossy, (named, lossy, len(messages))
