"""Connections over SSH: they end with the process that made them, and errors name their cause."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loopscope.experiment import Machine
from loopscope.provider import TestbedError
from loopscope.testbed.ssh_machine import DIES_WITH, SshMachine

# Starts a command and kills itself after a delay: with short ones before setpriv has called prctl,
# with long ones after that.
PARENT = """
import os, signal, subprocess, sys, time
delay_s, *words = sys.argv[1:]
words = [*words[:-2], str(os.getpid()), *words[-2:]]
child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(float(delay_s))
os.kill(os.getpid(), signal.SIGKILL)
"""


def lives(pid: int) -> bool:
    """Whether a process has not ended, be it waited for or not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_command_ends_with_its_parent_whenever_that_is_killed() -> None:
    for number in range(40):
        words = [sys.executable, "-c", PARENT, f"{number * 0.0002}", *DIES_WITH, "sleep", "600"]
        pid = int(subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout)
        end = time.monotonic() + 10
        while lives(pid):
            assert time.monotonic() < end, f"it lives on; its parent lived for {number * 0.2} ms"
            time.sleep(0.01)


def test_a_command_whose_parent_lives_is_run() -> None:
    words = [*DIES_WITH, str(os.getpid()), "echo", "said"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "said\n")


# An ssh whose connection is as LOGIN says, and whose sessions run here.
SSH = """#!/bin/sh
for last; do [ "$before" = -S ] && socket=$last; before=$last; done
case "$*" in *" -M "*) LOGIN; : >"$socket"; exec sleep 1000;; esac
exec sh -c "$last"
"""
REFUSED = "host h1: it refuses the login"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshMachine:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    login(tmp_path, "true")
    return SshMachine("h1", Machine("h1"), tmp_path / "control")


def login(folder: Path, does: str) -> None:
    (folder / "ssh").write_text(SSH.replace("LOGIN", does))
    (folder / "ssh").chmod(0o755)


@pytest.mark.parametrize(
    ("said", "code", "refused"),
    [
        ("rider@192.0.2.1: Permission denied (publickey,password).", 255, True),
        ("rider@192.0.2.1: Permission denied (publickey,password).", 1, False),
        ("/etc/ssh/ssh_config: Permission denied", 255, False),
    ],
)
def test_a_login_is_refused_where_ssh_says_so(
    tmp_path: Path, machine: SshMachine, said: str, code: int, refused: bool
) -> None:
    login(tmp_path, f"echo '{said}' >&2; exit {code}")
    with pytest.raises(TestbedError) as failed:
        asyncio.run(machine.connect())
    assert str(failed.value).startswith(REFUSED) == refused
    assert said in str(failed.value)


def test_what_a_command_may_not_do_is_no_refused_login(tmp_path: Path, machine: SshMachine) -> None:
    """Whatever it prints, on either output."""

    async def use() -> list[str]:
        await machine.connect()
        errors = []
        loud = "echo 'mkdir: x: Permission denied (publickey)' >&2; exit 1"
        for work in (
            machine.ask(loud),
            machine.ask(f"({loud}) || exit 255"),
            machine.run(loud, b"", "send files to /x", "chown it"),
            machine.fetch(str(tmp_path / "none"), "h1", tmp_path, 1000),
        ):
            with pytest.raises(TestbedError) as failed:
                await work
            errors.append(str(failed.value))
        await machine.close()
        return errors

    asked, lost, ran, fetched = errors = asyncio.run(use())
    assert not [each for each in errors if "refuses" in each]
    assert "mkdir: x: Permission denied" in asked and "the connection is lost" in lost
    assert ran == (
        "host h1: cannot send files to /x: mkdir: x: Permission denied (publickey); chown it"
    )
    assert fetched.startswith(f"host h1: cannot pack {tmp_path}/none/h1: tar: ")
    assert "No such file or directory" in fetched
