"""Hosts whose counter is CLOCK_MONOTONIC_RAW, all of them or one of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from linked_pipeline import linked_pipeline
from machine import BIN, ROOT, Machine

pytestmark = pytest.mark.full

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

RAW = "monotonic-raw"
FREEZES = """
trace:
  user: ["pipe:*"]
  streams:
    recorder: {kind: flight-recorder, triggers: [{path: loop, over: 1ns}], on_death: false}
"""
# Each event has CLOCK_MONOTONIC_RAW from before it, and from after the one before.
TRUTH = """\
import time
from loopscope.phase import Session
from loopscope_trace import event
at = event("truth", "at", before="u64", after_last="u64")
now = lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
with Session(["run"]) as session:
    for _ in session:
        after = 0
        for number in range(10**6):
            before = now()
            at(number, before, after)
            after = now()
            time.sleep(0.002)
"""
COMPONENTS = """\
components:
  truth1: {host: h1, run: PYTHON ./truth.py}
  truth2: {host: h2, run: PYTHON ./truth.py}
"""


def environments(repeat: Path) -> dict[str, dict[str, Any]]:
    """What hosts say of their counters."""
    files = (repeat / "hosts").glob("*/env.json")
    return {file.parent.name: json.loads(file.read_text())["counter"] for file in files}


@pytest.mark.usefixtures("root")
def test_a_run_whose_hosts_all_read_the_kernels_clock(machine: Machine, results: Read) -> None:
    text = (ROOT / "experiments" / "pipeline.yaml").read_text()
    old = 'trace: {user: ["pipe:*"]}\n'
    assert old in text
    machine.write("raw.yaml", text.replace(old, FREEZES).replace("p99 < 5ms", "p99 < 60s"))
    machine.environment["LOOPSCOPE_COUNTER"] = RAW
    done = machine.command("run", "raw.yaml", "-p", "count=400", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CLOCK_MONOTONIC_RAW" not in done.stderr, "it was asked for"
    read = results(done)
    loss = read["loss"]
    assert loss["emitted"] == loss["recorded"] > 0 == loss["dropped"]
    assert all(host["max_err_ns"] < 10_000_000 for host in read["clock"]["hosts"].values())
    repeat = machine.directory / "runs/pipeline/latest/base/1"
    for name, counter in environments(repeat).items():
        assert (counter["kind"], counter["frequency_hz"]) == (RAW, 1_000_000_000), name
        assert counter["read_ns"] > 0 and counter["step_ticks"] > 0
    for host in ("h1", "h2", "h3", "h4"):
        metadata = (repeat / "hosts" / host / "trace/metadata").read_text()
        assert "freq = 1000000000;" in metadata
        recorder = repeat / "hosts" / host / "streams/recorder"
        assert json.loads((recorder / "triggers.json").read_text()), host
        counts = json.loads((recorder / "loss.json").read_text())
        kept = counts["recorded"] + counts["overwritten"] + counts["dropped"]
        assert counts["emitted"] == kept > 0


@pytest.mark.usefixtures("root")
def test_hosts_of_both_kinds_are_on_one_time_line(machine: Machine, results: Read) -> None:
    """Links delay as they are told, and CLOCK_MONOTONIC_RAW itself tells when events were."""
    clock = f"clock: {{counters: {{h1: cycles, h2: {RAW}}}}}\ncomponents:"
    text = linked_pipeline("h2 -> h3: {delay: 20ms}", "h1 -> h2: {delay: 5ms}")
    text = text.replace("components:\n", clock + COMPONENTS.partition("components:")[2])
    text = text.replace('["pipe:*"]', '["pipe:*", "truth:*"]')
    machine.write("truth.py", TRUTH)
    machine.write("mixed.yaml", text.replace("PYTHON", str(BIN / "python")))
    done = machine.command("run", "mixed.yaml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    read = results(done)
    loss = read["loss"]
    assert loss["emitted"] == loss["recorded"] > 0 == loss["dropped"]
    hops = read["paths"]["loop"]["hops"]
    assert [hop["count"] for hop in hops] == [100] * 3
    assert hops[0]["min_ns"] >= 5_000_000 - hops[0]["err_ns"]
    assert hops[2]["min_ns"] >= 20_000_000 - hops[2]["err_ns"]
    repeat = machine.directory / "runs/links/latest/base/1"
    kinds = {host: counter["kind"] for host, counter in environments(repeat).items()}
    assert (kinds["h1"], kinds["h2"]) == ("cycles", RAW)

    table = pq.read_table(repeat / "timeline/truth/at/part-0.parquet")
    events: dict[str, list[dict[str, Any]]] = {"h1": [], "h2": []}
    for row in sorted(table.to_pylist(), key=lambda row: row["id"]):
        if events[row["host"]]:
            events[row["host"]][-1]["after"] = row["after_last"]
        events[row["host"]].append(row)
    of_h1, of_h2 = events["h1"][:-1], events["h2"][:-1]
    assert len(of_h1) > 20 and len(of_h2) > 20

    # The reference's time is a line over the kernel's clock, which both hosts share.
    def bracket(row: dict[str, Any]) -> int:
        width: int = row["after"] - row["before"]
        return width

    first, last = min(of_h1[:9], key=bracket), min(of_h1[-9:], key=bracket)
    slope = (last["ts"] - first["ts"]) / (last["before"] - first["before"])
    # The line may be off by both brackets, and by as much again beyond its two ends.
    off = 3 * (bracket(first) + bracket(last) + first["err_ns"] + last["err_ns"])

    def line(raw: int) -> float:
        return float(first["ts"] + (raw - first["before"]) * slope)

    for row in of_h2:
        assert row["ts"] + row["err_ns"] >= line(row["before"]) - off, (row, off)
        assert row["ts"] - row["err_ns"] <= line(row["after"]) + off, (row, off)


@pytest.mark.usefixtures("root")
def test_where_the_kernel_distrusts_cycles_its_own_clock_is_chosen(machine: Machine) -> None:
    """By the library that a program uses and by the recorder, each for itself."""
    source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    fake = machine.write("source", "hpet\n")
    program = machine.write(
        "program.py", "from loopscope_trace import event\nfor i in range(9): event('x', 'y')(i)\n"
    )
    machine.environment.pop("LOOPSCOPE_COUNTER", None)
    script = (
        f"mount --bind {fake} {source}\nloopscope doctor --json\n"
        f"exec loopscope record -o out -- {BIN / 'python'} {program}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", script],
        cwd=machine.directory,
        env=machine.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {each["what"]: each for each in json.loads(done.stdout)["findings"]}
    cycles = findings["the processor's cycles as counter"]
    assert not cycles["ok"] and "the kernel keeps time by hpet" in cycles["found"]
    assert "events are stamped with CLOCK_MONOTONIC_RAW" in cycles["cost"]
    assert findings["one counter for all processors"]["ok"]
    loss = json.loads((machine.directory / "out/loss.json").read_text())
    assert (loss["emitted"], loss["recorded"]) == (9, 9)
    assert "freq = 1000000000;" in (machine.directory / "out/trace/metadata").read_text()


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (RAW, "its events are stamped with the counter monotonic-raw"),
        ("hpet", "LOOPSCOPE_COUNTER in its environment names no kind of counter"),
    ],
)
def test_a_program_with_another_counter_is_not_recorded(
    machine: Machine, word: str, why: str
) -> None:
    """It is left out with the reason, and its stamps are never taken for the recorder's."""
    machine.environment["LOOPSCOPE_COUNTER"] = "cycles"
    program = machine.write(
        "program.py", "from loopscope_trace import event\nevent('x', 'y')(1)\nprint('ran')\n"
    )
    command = ["env", f"LOOPSCOPE_COUNTER={word}", BIN / "python", program]
    done = machine.command("record", "-o", "out", "--", *command)
    assert "ran" in done.stdout
    (process,) = json.loads((machine.directory / "out/loss.json").read_text())["processes"]
    (doubt,) = process["unknown"]
    assert why in doubt
    assert "this recording's counter is cycles: start the program with LOOPSCOPE_COUNTER" in doubt


def test_a_word_that_names_no_counter_is_refused(machine: Machine) -> None:
    machine.environment["LOOPSCOPE_COUNTER"] = "tsc"
    done = machine.command("record", "-o", "out", "--", "true")
    assert done.returncode == 1
    said = 'LOOPSCOPE_COUNTER: "tsc" is no kind of counter: use cycles or monotonic-raw'
    assert said in done.stderr
    assert not (machine.directory / "out").exists()
