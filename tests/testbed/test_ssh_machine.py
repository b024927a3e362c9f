"""Connections over SSH end with the process that made them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from loopscope.testbed.ssh_machine import DIES_WITH

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
