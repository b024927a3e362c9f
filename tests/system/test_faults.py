"""Kinds of faults at random instants: the first cause is named, and nothing is left behind.

Runs go on side by side, since most of their time is waiting.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

import pytest
from effort import cases
from faults import (
    CLIENT_FAILED,
    FAILED,
    FAULTS,
    INTERRUPTED,
    LOCAL,
    SSH,
    UNKNOWN,
    Case,
    Fault,
)
from machine import Machine
from ssh_machines import SshMachines

pytestmark = pytest.mark.usefixtures("root")

SIDE_BY_SIDE = 4
# The latest instant of a fault after the phase began, in seconds.
LATEST_S = 0.5
SEED = 20071213
STATUS = {UNKNOWN: "complete", FAILED: "failed", INTERRUPTED: "interrupted"}
PATIENCE_S = 90


def of(testbed: str) -> list[Fault]:
    return [fault for fault in FAULTS if testbed in fault.testbeds]


def bring_about(fault: Fault, machine: Machine, testbed: str, seed: int) -> list[str]:
    """Runs an experiment with a fault; what was not as it has to be."""
    drawn = random.Random(f"{fault.name} {testbed} {seed}")
    delay_s = drawn.uniform(0, LATEST_S)
    file = machine.write(f"{fault.name}.yaml", fault.file(testbed, delay_s))
    if fault.prepare is not None:
        fault.prepare(machine)
    run = machine.start("run", file, forks=True)
    assert run.stderr is not None
    said = ""
    for line in run.stderr:
        said += line
        if line.startswith("phase run") and fault.inject is not None:
            # The instant is the test's parameter.
            time.sleep(delay_s)
            fault.inject(Case(machine, testbed, run))
            break
    printed, rest = run.communicate(timeout=PATIENCE_S)
    said += rest + printed
    if isinstance(machine, SshMachines):
        for host in fault.damages:
            machine.mend(host)
    if testbed in fault.leaves:
        words: list[list[str | Path]] = [[], ["--hosts", file]] if testbed == SSH else [[]]
        for more in words:
            done = machine.command("reset", *more)
            said += done.stdout + done.stderr
    wrong = []
    if run.returncode != fault.code:
        wrong.append(f"exit code {run.returncode}, not {fault.code}")
    causes = re.findall("^loopscope: (.*)$", said, re.MULTILINE) or [""]
    if not re.match(fault.said, causes[0]):
        wrong.append(f"the first cause is not {fault.said!r}")
    if fault.code == FAILED and not re.match(fault.finally_said or fault.said, causes[-1]):
        wrong.append(f"the first cause is not {fault.finally_said or fault.said!r} in the end")
    wrong += _of_client(said) if fault.serves else []
    if testbed == SSH and not re.search(fault.found, " ".join(said.split())):
        wrong.append(f"nothing like {fault.found!r} was found out")
    if "Traceback" in said:
        wrong.append("a traceback")
    if not re.search(fault.noted, " ".join(said.split())):
        wrong.append(f"nothing like {fault.noted!r} was said")
    wrong += _left(machine)
    wrong += _of_directory(fault, machine.directory / "runs/fault/latest")
    if fault.restore is not None:
        fault.restore(machine)
    return [f"{fault.name} after {delay_s:.3f} s: {each}\n{said}" for each in wrong]


def _of_client(said: str) -> list[str]:
    """What is wrong with the account of a client whose server's host was lost."""
    wrong = []
    loss = next(re.finditer("(?m)^loopscope: host h2: .*$", said), None)
    after = said[loss.end() :] if loss else ""
    if not re.search(rf"(?m)^(before or )?after that.*, {CLIENT_FAILED}$", after):
        wrong.append("the client's failure is not said to have come after the loss")
    if "\n  lost with it: victim\n" not in after:
        wrong.append("what was lost with the host is not said")
    if re.search(r"stopped because of that: .*(victim|client)", after):
        wrong.append("what was lost or failed is said to have been stopped")
    if not re.search(r"(?m)^  [0-9.]+  client on h1.*: (no answer|the server)", after):
        wrong.append("what the client printed is not there")
    return wrong


def _of_directory(fault: Fault, run: Path) -> list[str]:
    """What is wrong with what is kept of a run."""
    wrong = []
    manifest = json.loads((run / "manifest.json").read_text())
    # A controller that was killed could not say how the run ended.
    status = STATUS.get(fault.code, "running")
    if manifest["status"] != status:
        wrong.append(f"the run is {manifest['status']}, not {status}")
    cause = fault.finally_said or fault.said
    told, *_ = [*manifest.get("error", "").splitlines(), ""]
    if fault.code == FAILED and not re.match(cause, told):
        wrong.append(f"the manifest has another cause than {cause!r}: {told}")
    if not (fault.serves or fault.clock):
        # What a component of the other host printed before the fault; it may be on the host still.
        printed = run / "base/1/hosts/h1/components/bystander/stdout.log"
        is_kept = printed.exists() and printed.read_text() == "I am here\n"
        elsewhere = any("h1" in hosts for hosts in manifest.get("uncollected") or [])
        if not is_kept and not elsewhere and fault.code in STATUS:
            wrong.append("what the bystander printed is not kept")
    return wrong


def _left(machine: Machine) -> list[str]:
    """What is left when hosts that were cut off have had time to clean up by themselves."""
    end = time.monotonic() + PATIENCE_S
    while left := machine.leftovers():
        if time.monotonic() > end:
            return [f"left behind: {left}"]
        time.sleep(0.2)
    return []


def side_by_side(testbed: str, bring: Callable[[int, Fault], list[str]]) -> None:
    # A lost host is waited for: those first, so that none is left alone at the end.
    faults = sorted(of(testbed), key=lambda fault: not fault.damages)
    drawn = [fault for fault in faults for _ in range(cases(1, 20))]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        wrong = [each for found in pool.map(bring, range(len(drawn)), drawn) for each in found]
    assert not wrong, "\n".join(wrong)


def test_every_kind_of_fault_on_the_local_testbed(tmp_path: Path) -> None:
    def bring(number: int, fault: Fault) -> list[str]:
        folder = tmp_path / f"{number}"
        folder.mkdir()
        return bring_about(fault, Machine(folder), LOCAL, SEED + number)

    side_by_side(LOCAL, bring)


@pytest.fixture
def deskfuls(tmp_path: Path) -> Iterator[SimpleQueue[SshMachines]]:
    """Sets of machines; each is used by one run at a time."""
    with ExitStack() as made:
        free: SimpleQueue[SshMachines] = SimpleQueue()
        for number in range(SIDE_BY_SIDE):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            machines = SshMachines(folder, ("h1", "h2"))
            made.callback(machines.remove)
            machines.make()
            free.put(machines)
        yield free


def test_every_kind_of_fault_over_ssh(deskfuls: SimpleQueue[SshMachines]) -> None:
    def bring(number: int, fault: Fault) -> list[str]:
        machines = deskfuls.get()
        try:
            return bring_about(fault, machines, SSH, SEED + number)
        finally:
            deskfuls.put(machines)

    side_by_side(SSH, bring)


def test_there_are_as_many_kinds_as_promised() -> None:
    assert len(of(LOCAL)) >= 25 and len(of(SSH)) >= 25
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
