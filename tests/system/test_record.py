"""``loopscope record`` on programs that strangers write: C by pkg-config, killed, forked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from machine import Machine

pytestmark = pytest.mark.full

PREFIX = Path(sys.executable).parents[1]

PROGRAM = """
#include <loopscope/trace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 10;
    int i;

    for (i = 0; i < count; i++) {
        LOOPSCOPE_EVENT("demo", "tick", i);
        LOOPSCOPE_EVENT("demo", "value", i, LOOPSCOPE_U32(square, i * i),
                        LOOPSCOPE_F64(half, i / 2.0));
    }
    puts("done");
    fflush(stdout);
    if (argc > 2)
        raise(SIGKILL);
    return 5;
}
"""


@pytest.fixture
def program(machine: Machine) -> Path:
    """A C program built as the README says."""
    source = machine.write("demo.c", PROGRAM)
    binary = machine.directory / "demo"
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
    subprocess.run(
        f"cc -std=c99 -Wall -Wextra -Wpedantic -Werror -o {binary} {source} "
        "$(pkg-config --cflags --libs loopscope)",
        shell=True,
        check=True,
        env=environment,
    )
    return binary


def babeltrace_counts(directory: Path) -> dict[str, int]:
    done = subprocess.run(["babeltrace2", directory], capture_output=True, text=True, check=True)
    counts: dict[str, int] = {}
    for line in done.stdout.splitlines():
        entity = line.split(") ", 1)[1].split(": {", 1)[0]
        counts[entity] = counts.get(entity, 0) + 1
    return counts


def test_exit_code_and_tables(machine: Machine, program: Path) -> None:
    done = machine.command("record", "-o", "out", "--", program, "1000")
    assert done.returncode == 5, done.stderr
    assert done.stdout == "done\n"
    assert babeltrace_counts(machine.directory / "out") == {"demo:tick": 1000, "demo:value": 1000}
    table = pq.read_table(machine.directory / "out/timeline/demo/value/part-0.parquet")
    assert table["id"].to_pylist() == list(range(1000))
    assert table["square"].to_pylist() == [i * i for i in range(1000)]
    assert table["half"].to_pylist() == [i / 2 for i in range(1000)]
    assert table["ts"].to_pylist() == sorted(table["ts"].to_pylist())
    assert set(table["process"].to_pylist()) == {"demo"}


def test_patterns_choose(machine: Machine, program: Path) -> None:
    done = machine.command("record", "-e", "demo:t*", "-o", "out", "--json", "--", program, "7")
    assert done.returncode == 5
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["events"] == {"demo:tick": 7}
    assert (summary["emitted"], summary["recorded"], summary["dropped"]) == (7, 7, 0)


def test_a_killed_program_leaves_what_it_wrote(machine: Machine, program: Path) -> None:
    done = machine.command("record", "-o", "out", "--", program, "12345", "die")
    assert done.returncode == 128 + 9, done.stderr
    counts = babeltrace_counts(machine.directory / "out")
    loss = json.loads((machine.directory / "out" / "loss.json").read_text())
    assert counts == {"demo:tick": 12345, "demo:value": 12345}
    assert loss["emitted"] == loss["recorded"] + loss["dropped"] == 2 * 12345


def test_a_directory_in_use_is_refused(machine: Machine, program: Path) -> None:
    machine.command("record", "-o", "out", "--", program)
    before = babeltrace_counts(machine.directory / "out")
    done = machine.command("record", "-o", "out", "--", program)
    assert done.returncode not in (0, 5)
    assert "out" in done.stderr
    assert babeltrace_counts(machine.directory / "out") == before


def test_a_program_without_instrumentation(machine: Machine) -> None:
    done = machine.command("record", "-o", "out", "--", "true")
    assert done.returncode == 0
    assert "no events" in done.stderr


def test_a_program_that_does_not_exist(machine: Machine) -> None:
    done = machine.command("record", "-o", "out", "--", "no-such-program")
    assert done.returncode != 0
    assert "no-such-program" in done.stderr
    assert "Traceback" not in done.stderr


def little_memory(
    machine: Machine, program: Path, size: str, temporary: Path | str
) -> subprocess.CompletedProcess[str]:
    """Records where /dev/shm is a small file system of the recording's own."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: mounts a small file system, needs root")
    script = f"mount -t tmpfs -o size={size} tmpfs /dev/shm && exec loopscope record -o out --json"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{script} -- "$0" 500', program],
        cwd=machine.directory,
        env={**machine.environment, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_memory_is_said_and_counted(machine: Machine, program: Path) -> None:
    done = little_memory(machine, program, "200k", "/dev/shm")
    assert done.returncode == 5, done.stderr
    account = json.loads(done.stdout.splitlines()[-1])
    assert (account["emitted"], account["dropped"], account["recorded"]) == (1000, 1000, 0)
    assert "none of its 1000 hits was recorded" in done.stderr
    assert "/dev/shm had no room left" in done.stderr and "--shm-size" in done.stderr


def test_buffers_beside_a_small_memory(
    machine: Machine, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = little_memory(machine, program, "1m", tmp_path_factory.mktemp("temporary"))
    assert done.returncode == 5, done.stderr
    account = json.loads(done.stdout.splitlines()[-1])
    assert (account["emitted"], account["recorded"]) == (1000, 1000)
    assert "which is not in memory" in done.stderr


def test_a_recording_that_cannot_begin_leaves_nothing(machine: Machine, program: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: mounts a small file system, needs root")
    (small := machine.directory / "small").mkdir()
    script = (
        f"mount -t tmpfs -o size=300k tmpfs {small} && loopscope record -o small/out -- $0 5; "
        f"echo $?; ls -A {small}/out"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, program],
        cwd=machine.directory,
        env=machine.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1"], done.stdout
    assert "small/out" in done.stderr and "No space left" in done.stderr
    assert "resume" not in done.stderr


def test_patterns_that_match_nothing_are_told(machine: Machine, program: Path) -> None:
    where = ["--where", "demo:tikc: id > 3", "-e", "demo:*", "-e", "!other:thing"]
    done = machine.command("record", "-o", "out", "--json", *where, "--", program, "10")
    told = [line for line in done.stderr.splitlines() if "no entity matches" in line]
    assert any('"demo:tikc"; did you mean demo:tick?' in line for line in told), done.stderr
    assert any('"other:thing". None appeared.' in line for line in told), done.stderr
    assert len(told) == 2
    assert json.loads(done.stdout.splitlines()[-1])["recorded"] == 20


def test_reset_after_a_killed_recorder(machine: Machine) -> None:
    """Its control socket goes, and nothing of it is in the temporary folder."""
    temporary = machine.directory / "temporary"
    temporary.mkdir()
    machine.environment["TMPDIR"] = str(temporary)
    sockets = machine.directory / "state" / "control"
    recorder = machine.start("record", "-o", "out", "-e", "a:*", "--", "sleep", "1000")
    deadline = time.monotonic() + 60
    while not (sockets.exists() and list(sockets.iterdir())):
        assert recorder.poll() is None and time.monotonic() < deadline
    while not (
        running := [pid for pid, what in machine.processes().items() if what.startswith("sleep")]
    ):
        assert time.monotonic() < deadline
    os.kill(recorder.pid, signal.SIGKILL)
    for pid, what in machine.processes().items():
        if "loopscope-host" in what or pid in running:
            os.kill(pid, signal.SIGKILL)
    recorder.communicate(timeout=60)
    assert list(temporary.iterdir()) == []
    done = machine.command("reset")
    assert done.returncode == 0, done.stderr
    assert "the socket of a process that was killed" in done.stdout
    assert "of a recorder that was killed" in done.stdout
    assert list(sockets.iterdir()) == []
