"""Faults while a run is made, begins or ends: it says why it failed, and nothing is left behind."""

from __future__ import annotations

import itertools
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import SOAK
from faults import FAILED, FILE, INTERRUPTED, LOCAL, SSH, WITHOUT_KERNEL, Case
from machine import Machine
from ssh_machines import SshMachines

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

# What `run` prints when each begins.
STAGES = (
    "making 2 hosts",
    "synchronising clocks",
    "starting components",
    "phase listen",
    "waiting 200ms for messages",
    "ending components",
    "collecting",
)
SEED = 20261129
DRAWN = 6
LATEST_S = 0.1
PATIENCE_S = 90


def kill_agent(case: Case) -> bool:
    """Kills the agent of h2, as soon as there is one; whether there was."""
    end = time.monotonic() + 3
    while time.monotonic() < end and case.run.poll() is None:
        try:
            case.signal_agent(signal.SIGKILL)
            return True
        except (ValueError, ProcessLookupError, AssertionError, IndexError):
            time.sleep(0.005)
    return False


def cut(case: Case) -> bool:
    """Cuts h2 off."""
    assert isinstance(case.machine, SshMachines)
    case.machine.cut("h2")
    return True


def sends(number: signal.Signals) -> Callable[[Case], bool]:
    """Sends the controller a signal."""

    def send(case: Case) -> bool:
        case.run.send_signal(number)
        return True

    return send


INJECTIONS = {
    "agent-killed": kill_agent,
    "cut": cut,
    "terminated": sends(signal.SIGTERM),
    "controller-killed": sends(signal.SIGKILL),
}


def bring_about(machine: Machine, testbed: str, name: str, stage: str, seed: int) -> list[str]:
    """What was not as it has to be."""
    delay_s = random.Random(f"{testbed} {name} {stage} {seed}").uniform(0, LATEST_S)
    text = FILE.format(
        testbed=testbed, more="", timeout="10s", command="[sleep, '0.2']", ready="{exit: 0}"
    )
    file = machine.write("stage.yaml", text + WITHOUT_KERNEL)
    run = machine.start("run", file, forks=True)
    assert run.stderr is not None
    said, was_done = "", False
    for line in run.stderr:
        said += line
        if line.startswith(stage):
            time.sleep(delay_s)
            was_done = INJECTIONS[name](Case(machine, testbed, run))
            break
    printed, rest = run.communicate(timeout=PATIENCE_S)
    said += rest + printed
    if isinstance(machine, SshMachines) and name == "cut":
        machine.mend("h2")
    if name == "controller-killed":
        for more in ((), ("--hosts", file)) if testbed == SSH else ((),):
            done = machine.command("reset", *more)
            said += done.stdout + done.stderr
    wrong = []
    # All that is asked of a host may be done by then.
    unharmed = not was_done or stage == "collecting"
    expected = {
        "agent-killed": (FAILED, 0) if unharmed else (FAILED,),
        "cut": (FAILED, 0) if unharmed else (FAILED,),
        "terminated": (INTERRUPTED, 0) if unharmed else (INTERRUPTED,),
        "controller-killed": (-signal.SIGKILL,),
    }[name]
    if run.returncode not in expected:
        wrong.append(f"exit code {run.returncode}, not in {expected}")
    first, *_ = [*re.findall("^loopscope: (.*)$", said, re.MULTILINE), ""]
    if run.returncode == FAILED and "h2" not in first:
        wrong.append(f"the first cause does not name h2: {first}")
    if "Traceback" in said:
        wrong.append("a traceback")
    end = time.monotonic() + PATIENCE_S
    while left := machine.leftovers():
        if time.monotonic() > end:
            wrong.append(f"left behind: {left}")
            break
        time.sleep(0.2)
    return [f"{name} {delay_s:.3f} s after {stage!r}: {each}\n{said}" for each in wrong]


def drawn(testbed: str) -> list[tuple[str, str]]:
    """Injections and their stages."""
    names = [name for name in INJECTIONS if testbed == SSH or name != "cut"]
    every = list(itertools.product(names, STAGES))
    return every * 5 if SOAK else random.Random(f"{SEED} {testbed}").sample(every, DRAWN)


def test_faults_at_any_stage_on_the_local_testbed(tmp_path: Path) -> None:
    wrong = []
    for number, (name, stage) in enumerate(drawn(LOCAL)):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        wrong += bring_about(Machine(folder), LOCAL, name, stage, SEED + number)
    assert not wrong, "\n".join(wrong)


def test_faults_at_any_stage_over_ssh(machines: SshMachines) -> None:
    wrong = []
    for number, (name, stage) in enumerate(drawn(SSH)):
        wrong += bring_about(machines, SSH, name, stage, SEED + number)
    assert not wrong, "\n".join(wrong)
