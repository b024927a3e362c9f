"""Recordings reached while they go on: ``attach``, ``trigger``, ``enable``, ``disable``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import Machine

pytestmark = pytest.mark.full

PREFIX = Path(sys.executable).parents[1]

# Does as many rounds as each line of its input says, and says when they are done.
PROGRAM = """
#include <loopscope/trace.h>
#include <stdio.h>

LOOPSCOPE_HISTOGRAM_RANGE("demo", "size", 0, 10, 10);

int main(void)
{
    long next = 0, rounds;

    while (scanf("%ld", &rounds) == 1) {
        for (; rounds > 0; rounds--, next++) {
            LOOPSCOPE_EVENT("demo", "tick", next, LOOPSCOPE_U32(size, next % 10));
            LOOPSCOPE_EVENT("demo", "tock", next);
            LOOPSCOPE_COUNTER_ADD("demo", "rounds", 1);
            LOOPSCOPE_HISTOGRAM_ADD("demo", "size", next % 10);
        }
        printf("%ld\\n", next);
        fflush(stdout);
    }
    return 0;
}
"""


class Program:
    """A running instrumented program that was started with nothing but the library."""

    def __init__(self, binary: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [binary],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # It has registered with the library once it has done something.
        self.rounds(1)

    @property
    def pid(self) -> int:
        return self.process.pid

    def rounds(self, count: int) -> None:
        """Returns when they are done."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=20) == 0


@pytest.fixture
def start(machine: Machine) -> Iterator[Callable[..., Program]]:
    source = machine.write("steps.c", PROGRAM)
    binary = machine.directory / "steps"
    flags = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
    subprocess.run(
        f"cc -std=c99 -Wall -Wextra -Werror -o {binary} {source} "
        "$(pkg-config --cflags --libs loopscope)",
        shell=True,
        check=True,
        env=flags,
    )
    running: list[Program] = []

    def started(**environment: str) -> Program:
        running.append(Program(binary, {**machine.environment, **environment}))
        return running[-1]

    yield started
    for program in running:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()


def attached(machine: Machine, pid: int, *words: str | Path) -> subprocess.Popen[str]:
    """An attach that records already: it has answered."""
    attach = machine.start("attach", str(pid), *words)
    deadline = time.monotonic() + 30
    while True:
        asked = machine.command("enable", "none:*", "--to", str(pid))
        if asked.returncode == 0 or "there is no stream" in asked.stderr:
            return attach
        assert attach.poll() is None, attach.communicate()
        assert time.monotonic() < deadline


def ids(folder: Path, entity: str) -> list[int]:
    """As babeltrace2 reads them."""
    done = subprocess.run(["babeltrace2", folder], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if f" {entity}: " in line]
    return [int(line.split(" id = ")[1].split(",")[0].split(" }")[0]) for line in lines]


def account(done: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(done.splitlines()[-1])
    return parsed


def test_attach_until_the_program_ends(machine: Machine, start: Callable[..., Program]) -> None:
    program = start()
    attach = attached(machine, program.pid, "-o", "out", "--json")
    program.rounds(500)
    program.end()
    out, err = attach.communicate(timeout=60)
    assert attach.returncode == 0, err
    assert ids(machine.directory / "out" / "trace", "demo:tick") == list(range(1, 501))
    found = account(out)
    assert (found["emitted"], found["recorded"], found["dropped"]) == (1000, 1000, 0)
    # The rounds that nobody recorded are not counted.
    assert found["counters"] == {"demo:rounds": 500}
    size = found["histograms"]["demo:size"]
    assert (size["count"], size["sum"], size["p50"], size["p99"]) == (500, 2250, 4, 9)
    assert found["cost"]["event_ns"]["p10"] > 0


def test_ctrl_c_lets_go(machine: Machine, start: Callable[..., Program]) -> None:
    program = start()
    attach = attached(machine, program.pid, "-o", "out", "--where", "demo:*: id % 10 == 3")
    program.rounds(100)
    os.killpg(attach.pid, signal.SIGINT)
    _, err = attach.communicate(timeout=60)
    assert attach.returncode == 0, err
    assert "20 emitted = 20 recorded + 0 dropped" in err
    # Unrecorded, it goes on; and may be attached to again.
    program.rounds(100)
    again = machine.command("attach", str(program.pid), "-o", "again", "--for", "10ms", "--json")
    assert again.returncode == 0, again.stderr
    assert account(again.stdout)["emitted"] == 0
    program.end()
    assert ids(machine.directory / "out" / "trace", "demo:tick") == list(range(3, 100, 10))


def test_entities_are_chosen_while_it_records(
    machine: Machine, start: Callable[..., Program]
) -> None:
    program = start()
    attach = attached(machine, program.pid, "-o", "out", "-e", "demo:tick")
    program.rounds(10)
    done = machine.command("enable", "demo:*", "--to", str(program.pid))
    assert done.returncode == 0 and "enabled: demo:*" in done.stdout
    program.rounds(10)
    done = machine.command("disable", "demo:t?ck", "--json")
    assert json.loads(done.stdout)["recording"]["kind"] == "attach"
    program.rounds(10)
    wrong = machine.command("enable", "demo:*", "--stream", "other")
    assert wrong.returncode == 2 and 'no stream "other" (there are: main)' in wrong.stderr
    assert machine.command("enable", "demo").returncode == 2
    for verb in ("enable", "disable"):
        unknown = machine.command(verb, "demo:tcik")
        assert unknown.returncode == 0 and verb not in unknown.stdout
        assert 'no entity matches "demo:tcik"; did you mean demo:tick?' in unknown.stderr
    program.end()
    attach.communicate(timeout=60)
    trace = machine.directory / "out" / "trace"
    assert ids(trace, "demo:tick") == list(range(1, 21))
    assert ids(trace, "demo:tock") == list(range(11, 21))


RECORDER = """
recorder:
  kind: flight-recorder
  entities: ["demo:tick"]
  buffer: 64KiB
  triggers: [{entities: "demo:tick", where: "id == 10000"}]
  on_death: false
"""


def test_flight_recorders(machine: Machine, start: Callable[..., Program]) -> None:
    machine.write("streams.yaml", RECORDER)
    program = start()
    attach = attached(machine, program.pid, "-o", "out", "--streams", "streams.yaml", "--json")
    assert not (machine.directory / "out" / "trace").exists()
    # More than the buffer has room for.
    program.rounds(20_000)
    done = machine.command("trigger", str(program.pid), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recording"]["flight_recorders"] == ["recorder"]
    # An answer means that the snapshot before it has been begun; the next waits for its end.
    while machine.command("trigger").returncode != 0:
        pass
    program.rounds(10)
    program.end()
    out, _ = attach.communicate(timeout=60)
    found = account(out)["streams"]["recorder"]
    causes = [trigger["cause"] for trigger in found["triggers"]]
    assert causes == ["entity", "command", "command"]
    assert found["triggers"][0]["id"] == 10_000
    assert found["emitted"] == 20_010
    assert found["emitted"] == found["recorded"] + found["overwritten"] + found["dropped"]
    assert found["overwritten"] > 0
    seen = ids(machine.directory / "out" / "streams" / "recorder" / "trace", "demo:tick")
    assert len(seen) == found["recorded"]
    # The newest before the trigger, and the very first ones.
    assert {1, *range(9_000, 10_001)} <= set(seen)
    assert 5000 not in seen
    assert seen == sorted(set(seen))


def test_trigger_and_enable_where_nothing_is(machine: Machine) -> None:
    for words in (["trigger"], ["enable", "a:*"], ["disable", "a:*"]):
        done = machine.command(*words)
        assert done.returncode == 2
        assert "is being recorded by this user" in done.stderr
    done = machine.command("trigger", "1")
    assert done.returncode == 2 and "1 is no recording" in done.stderr


def test_of_several_recordings_one_must_be_named(
    machine: Machine, start: Callable[..., Program]
) -> None:
    programs = [start(), start()]
    attaches = [
        attached(machine, program.pid, "-o", f"out{i}") for i, program in enumerate(programs)
    ]
    done = machine.command("disable", "demo:*")
    assert done.returncode == 2
    assert "name one by its run or process number" in done.stderr
    for program, attach in zip(programs, attaches, strict=True):
        assert str(program.pid) in done.stderr
        program.end()
        attach.communicate(timeout=60)


def test_programs_that_cannot_be_attached_to(
    machine: Machine, start: Callable[..., Program]
) -> None:
    gone = machine.command("attach", "999999999", "-o", "out")
    assert gone.returncode != 0 and "there is no process 999999999" in gone.stderr
    sleep = subprocess.Popen(["sleep", "600"])
    try:
        strange = machine.command("attach", str(sleep.pid), "-o", "out")
        assert strange.returncode != 0
        assert "(sleep)" in strange.stderr and "no call sites of loopscope" in strange.stderr
    finally:
        sleep.kill()
        sleep.wait()
    off = start(LOOPSCOPE_RUNTIME_DIR="")
    dormant = machine.command("attach", str(off.pid), "-o", "out")
    assert dormant.returncode != 0
    assert "LOOPSCOPE_RUNTIME_DIR empty" in dormant.stderr
    # None of these has taken the directory.
    assert not (machine.directory / "out").exists()
    for words in (["--for", "10"], ["--where", "demo:tick"], ["-e", "demo"]):
        wrong = machine.command("attach", str(off.pid), "-o", "out", *words)
        assert wrong.returncode == 2 and "Traceback" not in wrong.stderr


def test_somebody_elses_program(machine: Machine, start: Callable[..., Program]) -> None:
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: becomes another user, needs root")
    program = start()
    host = PREFIX / "bin" / "loopscope-host"
    done = subprocess.run(
        [host, "attach", str(program.pid), "-o", "/nowhere"],
        capture_output=True,
        text=True,
        user=65534,
        env={
            **machine.environment,
            "LOOPSCOPE_STATE_DIR": "/nowhere",
            "LOOPSCOPE_RUNTIME_DIR": "",
        },
    )
    assert done.returncode != 0
    assert "permission denied" in done.stderr.lower()
    program.end()
