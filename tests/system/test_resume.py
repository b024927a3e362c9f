"""A recorder is killed and ``loopscope resume`` goes on: nothing twice, and loss is counted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from machine import BIN, Machine

pytestmark = pytest.mark.full

PREFIX = Path(sys.executable).parents[1]

# Does as many rounds as each line of its input says, and says when they are done. With KILLER set,
# it first kills the process that started it.
PROGRAM = """
#define _POSIX_C_SOURCE 200809L
#include <loopscope/trace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    long next = 0, rounds;

    if (getenv("KILLER")) {
        kill(getppid(), SIGKILL);
    }
    printf("%d\\n", (int)getpid());
    fflush(stdout);
    while (scanf("%ld", &rounds) == 1) {
        for (; rounds > 0; rounds--, next++) {
            LOOPSCOPE_EVENT("demo", "tick", next);
            LOOPSCOPE_EVENT("demo", "tock", next, LOOPSCOPE_U32(low, next));
            LOOPSCOPE_COUNTER_ADD("demo", "rounds", 1);
        }
        printf("%ld\\n", next);
        fflush(stdout);
    }
    return 0;
}
"""


class Recording:
    """A host side recorder, or a program alone, and the program's own ends of its pipes."""

    def __init__(self, machine: Machine, *words: str | Path) -> None:
        self.machine = machine
        self.process = subprocess.Popen(
            words,
            cwd=machine.directory,
            env=machine.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline())
        self.rounds(1)

    def rounds(self, count: int) -> None:
        """Returns when they are done."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()

    def runtime_directory(self) -> Path:
        variables = Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        (path,) = (v for v in variables if v.startswith(b"LOOPSCOPE_RUNTIME_DIR="))
        return Path(path.decode().partition("=")[2])

    def kill_recorder(self) -> None:
        self.process.kill()
        assert self.process.wait() == -signal.SIGKILL

    def end_program(self) -> None:
        """Its output ends with it, whichever process is its parent."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.stdout.read() == ""


@pytest.fixture
def program(machine: Machine) -> Path:
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
    return binary


@pytest.fixture
def record(machine: Machine, program: Path) -> Iterator[Callable[..., Recording]]:
    begun: list[Recording] = []

    def start(*words: str | Path, before: Sequence[str] = ()) -> Recording:
        host: list[str | Path] = [*before, BIN / "loopscope-host"]
        begun.append(Recording(machine, *host, "record", "-o", "out", *words, "--", program))
        return begun[-1]

    yield start
    for recording in begun:
        if recording.process.poll() is None:
            recording.kill_recorder()
        assert recording.process.stdin is not None
        if not recording.process.stdin.closed:
            recording.end_program()


def resumed(recording: Recording, *words: str) -> subprocess.Popen[str]:
    """A resume that records already: it has answered."""
    machine = recording.machine
    resume = machine.start("resume", "out", "--json", *words)
    reached(machine, recording.pid, resume)
    return resume


def reached(machine: Machine, pid: int, recorder: subprocess.Popen[str]) -> None:
    """Returns when the recorder answers to the program's number."""
    deadline = time.monotonic() + 60
    while (done := machine.command("enable", "none:*", "--to", str(pid))).returncode != 0:
        assert recorder.poll() is None, recorder.communicate()
        assert time.monotonic() < deadline, (done.stderr, machine.processes())


def account(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    parsed: dict[str, Any] = json.loads(out)
    return parsed


def ids(machine: Machine, entity: str) -> list[int]:
    table = pq.read_table(machine.directory / f"out/timeline/demo/{entity}/part-0.parquet")
    return sorted(table["id"].to_pylist())


def babeltrace_count(machine: Machine) -> int:
    """Events in the trace, without the last state of the counter."""
    done = subprocess.run(
        ["babeltrace2", machine.directory / "out/trace"], capture_output=True, text=True, check=True
    )
    return sum("demo:rounds" not in line for line in done.stdout.splitlines())


def test_two_recorders_are_killed(machine: Machine, record: Callable[..., Recording]) -> None:
    recording = record()
    memory = recording.runtime_directory()
    recording.rounds(9_999)
    recording.kill_recorder()
    recording.rounds(10_000)
    assert babeltrace_count(machine) < 40_000
    resume = machine.start("resume", "out")
    reached(machine, recording.pid, resume)
    recording.rounds(10_000)
    (host,) = (pid for pid, command in machine.processes().items() if "loopscope-host" in command)
    os.kill(host, signal.SIGKILL)
    _, errors = resume.communicate(timeout=60)
    assert resume.returncode == 128 + 9
    assert "loopscope resume out" in errors
    recording.rounds(10_000)
    resume = resumed(recording)
    recording.rounds(10_000)
    recording.end_program()
    told = account(resume)
    assert (told["emitted"], told["recorded"], told["dropped"]) == (100_000, 100_000, 0)
    assert babeltrace_count(machine) == 100_000
    assert ids(machine, "tick") == ids(machine, "tock") == list(range(50_000))
    loss = json.loads((machine.directory / "out/loss.json").read_text())
    assert [process["pid"] for process in loss["processes"]] == [recording.pid]
    table = pq.read_table(machine.directory / "out/timeline/demo/rounds/part-0.parquet")
    assert table["value"].to_pylist()[-1] == 50_000
    assert not memory.exists()
    assert sorted(path.name for path in (machine.directory / "out").glob(".*")) == []
    again = machine.command("resume", "out")
    assert again.returncode == 2
    assert "no recording whose recorder was killed" in again.stderr


def test_what_had_no_room_is_counted(machine: Machine, record: Callable[..., Recording]) -> None:
    small = {"name": "main", "subbuffer": 4096, "subbuffers": 4, "spares": 0}
    streams = machine.write("small.json", json.dumps({"version": 1, "streams": [small]}))
    recording = record("--streams", streams)
    recording.kill_recorder()
    recording.rounds(20_000)
    resume = resumed(recording)
    recording.rounds(1)
    recording.end_program()
    told = account(resume)
    assert told["dropped"] > 30_000
    assert told["emitted"] == told["recorded"] + told["dropped"] == 2 * 20_002
    assert babeltrace_count(machine) == told["recorded"]
    kept = ids(machine, "tick") + ids(machine, "tock")
    assert (
        len(kept)
        == told["recorded"]
        == len(set(ids(machine, "tick"))) + len(set(ids(machine, "tock")))
    )
    # What it still had room for, without a gap; and what came when there was room again.
    ticks = ids(machine, "tick")
    assert ticks[:-1] == list(range(len(ticks) - 1)) and ticks[-1] == 20_001


def test_a_recorder_is_killed_as_its_program_begins(
    machine: Machine, record: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On one processor and with real-time priority, the program goes before who waits for its start.
    monkeypatch.setitem(machine.environment, "KILLER", "")
    recording = record(before=["chrt", "--fifo", "1", "taskset", "1"])
    recording.kill_recorder()
    resume = resumed(recording)
    recording.rounds(1)
    recording.end_program()
    told = account(resume)
    assert (told["emitted"], told["recorded"], told["dropped"]) == (4, 4, 0)
    assert babeltrace_count(machine) == 4


def test_the_program_has_ended_meanwhile(
    machine: Machine, record: Callable[..., Recording]
) -> None:
    recording = record()
    recording.kill_recorder()
    recording.rounds(5_000)
    recording.end_program()
    done = machine.command("resume", "out", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["emitted"], told["recorded"], told["dropped"]) == (10_002, 10_002, 0)
    assert ids(machine, "tick") == list(range(5_001))
    assert babeltrace_count(machine) == 10_002


def test_an_attached_program_and_what_was_chosen(machine: Machine, program: Path) -> None:
    running = Recording(machine, program)
    attach = subprocess.Popen(
        [BIN / "loopscope-host", "attach", str(running.pid), "-o", "out", "--quiet"],
        cwd=machine.directory,
        env=machine.environment,
        text=True,
    )
    try:
        reached(machine, running.pid, attach)
        running.rounds(999)
        assert machine.command("disable", "demo:tock", "--to", str(running.pid)).returncode == 0
        attach.kill()
        attach.wait()
        running.rounds(1_000)
        resume = resumed(running)
        running.rounds(1_000)
    except BaseException:
        attach.kill()
        attach.wait()
        running.process.kill()
        raise
    os.killpg(resume.pid, signal.SIGINT)
    told = account(resume)
    # It goes on, unrecorded.
    running.rounds(1_000)
    running.end_program()
    assert running.process.wait() == 0
    assert ids(machine, "tick") == list(range(1, 3_000))
    assert ids(machine, "tock") == list(range(1, 1_000))
    assert (told["emitted"], told["recorded"], told["dropped"]) == (3_998, 3_998, 0)
    assert babeltrace_count(machine) == 3_998


def test_a_recording_is_reached_by_its_programs_number(
    machine: Machine, record: Callable[..., Recording]
) -> None:
    recording = record("--quiet")
    reached(machine, recording.pid, recording.process)
    assert machine.command("disable", "demo:tock", "--to", str(recording.pid)).returncode == 0
    recording.rounds(99)
    recording.end_program()
    assert recording.process.wait() == 0
    assert babeltrace_count(machine) == 100 + 1, "tick was recorded to the end, tock once"


def test_nothing_to_go_on_with(machine: Machine, record: Callable[..., Recording]) -> None:
    recording = record()
    done = machine.command("resume", "out")
    assert done.returncode == 2
    assert f"still being recorded by process {recording.process.pid}" in done.stderr
    (machine.directory / "empty").mkdir()
    done = machine.command("resume", "empty")
    assert done.returncode == 2
    assert "empty holds no recording whose recorder was killed" in done.stderr
    memory = recording.runtime_directory()
    recording.kill_recorder()
    recording.end_program()
    shutil.rmtree(memory)
    done = machine.command("resume", "out")
    assert done.returncode == 2
    assert "the programs' memory is gone" in done.stderr and str(memory) in done.stderr


def test_reset_removes_what_nobody_can_use(
    machine: Machine, record: Callable[..., Recording]
) -> None:
    recording = record()
    memory = recording.runtime_directory()

    def of_memory() -> dict[str, list[str]]:
        report = json.loads(machine.command("reset", "--json").stdout)
        return {k: [item for item in items if str(memory) in item] for k, items in report.items()}

    assert of_memory() == {"removed": [], "in_use": [], "left": [], "problems": []}
    recording.kill_recorder()
    left = of_memory()
    out = machine.directory / "out"
    assert f"can be resumed: loopscope resume {out}" in left["in_use"][0]
    recording.rounds(1)
    assert memory.exists() and not left["removed"]
    recording.end_program()
    left = of_memory()
    assert left["removed"] and not left["in_use"] and not memory.exists()
