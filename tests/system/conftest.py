"""End to end: the installed programs, real namespaces. Needs root; says so where it is missing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import ROOT, Machine
from ordinary_user import OrdinaryUser, ordinary_user
from ssh_machines import SshMachines


@pytest.fixture(scope="session")
def root() -> None:
    """Marks a test that makes network namespaces."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: makes network namespaces, needs root")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """The programs; afterwards nothing of theirs may be left."""
    made = Machine(tmp_path)
    yield made
    left = made.leftovers()
    if left:
        made.command("reset")
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="module")
def installed() -> Iterator[OrdinaryUser]:
    """The programs as an ordinary user has installed them."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: becomes another user, needs root")
    with ordinary_user() as made:
        yield made


@pytest.fixture
def user(installed: OrdinaryUser) -> Iterator[OrdinaryUser]:
    """The user, of whose runs nothing may be left."""
    yield installed
    left = installed.leftovers()
    for pid in installed.processes():
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(installed.home / "runs", ignore_errors=True)
    assert not left, f"left behind: {left}"


@pytest.fixture
def real_time() -> Iterator[None]:
    """Lets one test with a real-time thread run at a time: it takes a processor from all others."""
    place = ROOT / "build"
    place.mkdir(exist_ok=True)
    with (place / "real-time.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def cgroup() -> Iterator[Path | None]:
    """A cgroup of version 2 for what the test starts; None where none can be made."""
    (own,) = [
        line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"
    ] or [None]
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    places = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    if own is None or not places:
        yield None
        return
    made = Path(places[0] + own) / f"loopscope-test-{os.getpid()}"
    made.mkdir()
    yield made
    # A test that failed left some in it.
    for path in [*sorted(made.rglob("*/"), reverse=True), made]:
        path.rmdir()


@pytest.fixture(scope="session")
def results() -> Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]:
    """The JSON object that ``run --json`` prints: nothing else may be on stdout."""

    def read(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(done.stdout)
        return parsed

    return read


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[SshMachines]:
    """Three machines; afterwards nothing may be left on them or on the desk."""
    made = SshMachines(tmp_path, ("h1", "h2", "h3"))
    try:
        made.make()
        yield made
        left = made.leftovers()
        assert not left, f"left behind: {left}"
    finally:
        made.remove()
