"""experiments/findings: what `loopscope why --rank` says of live runs with a planted cause.

How much of it is planted differs from run to run. Needs root, and programs in the kernel.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machine import ROOT, Machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from effort import SOAK, cases  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

Parameters = dict[str, str | int | float]
LOCK = "blocked: node of h2 slept in futex, woken by node of h2 (python), "
# What of a run with nothing planted is different.
NOTHING: dict[str, Parameters] = {
    "page-faults": {"count": 50, "share": 0},
    "page-faults of a file": {"count": 50, "share": 0, "kind": "file", "pages": 64},
    "throttled": {"share": 0},
    "priority-inversion": {"length": "1ms"},
    "interrupt-storm": {"count": 80, "on": 0},
    "full-qdisc": {"on": 0},
    "two-writes": {"count": 20, "writes": 1},
}
# Events that not every kernel has.
UNTOLD = {"page-faults": "exceptions/page_fault_user", "throttled": "bpf/throttled"}
PLANTED: dict[str, tuple[Callable[[random.Random], Parameters], str]] = {
    "page-faults": (
        lambda drawn: {"count": 50, "pages": drawn.randrange(3000, 8000), "kind": "memory"},
        "running: node of h2 on cpu0, with page faults",
    ),
    "page-faults of a file": (
        lambda drawn: {"count": 50, "pages": drawn.randrange(40, 100), "kind": "file"},
        "blocked: node of h2 slept in a page fault (folio_wait_bit_common) until an interrupt",
    ),
    "throttled": (
        lambda drawn: {
            "count": 60,
            "quota": drawn.randrange(3, 5),
            "cycle": drawn.randrange(20, 35),
        },
        "throttled: node of h2 (python) had to wait: its cgroup had used up its processor time",
    ),
    "priority-inversion": (
        lambda drawn: {"length": f"{drawn.randrange(20, 40)}ms"},
        f"{LOCK}which waited on cpu0 behind third of h2 (stall)",
    ),
    "interrupt-storm": (
        lambda drawn: {"count": 80, "on": drawn.randrange(30, 60)},
        "softirq: NET_RX on cpu0, in node of h2",
    ),
    "full-qdisc": (
        lambda drawn: {"rate": f"{drawn.randrange(10, 30)}mbit", "on": drawn.randrange(30, 60)},
        "held: by UDP of h1: in the queue of its device",
    ),
    "two-writes": (
        lambda drawn: {"count": 20, "period": drawn.randrange(5, 40)},
        "held: by TCP of h1: Nagle's algorithm, until what was sent before was acknowledged, "
        "which the receiver delayed",
    ),
    "retransmission": (
        # Four packets of 25 are lost. Which of one message these are is chance: some of them are
        # acknowledgements, and a tail loss probe may be the first that comes.
        lambda drawn: {"count": 80, "period": drawn.randrange(5, 30)},
        "held: by TCP of h1: sent again (retransmission time-out); "
        "the emulated link h1 → h2 lost it",
    ),
}
# What the same cause is where the machine is fast: a disk that has answered before the thread
# sleeps leaves it running in its page faults.
ALSO = {
    "page-faults of a file": tuple(
        f"running: node of h2 on cpu{cpu}, with page faults" for cpu in range(os.cpu_count() or 1)
    ),
}


def of_memory(directory: Path) -> bool:
    words = ["findmnt", "-t", "tmpfs", "-T", directory]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def planted(machine: Machine, name: str, parameters: Parameters) -> dict[str, Any]:
    """What `why --rank` says of a run with a planted cause."""
    experiment, *_ = name.split()
    given = [word for each in parameters.items() for word in ("-p", "{}={}".format(*each))]
    file = str(ROOT / "experiments" / "findings" / f"{experiment}.yaml")
    if "of a file" in name and of_memory(machine.directory):
        pytest.skip(
            f"SKIPPED LOUDLY: {machine.directory} is a tmpfs, and a page has to be on a disk"
        )
    done = machine.command("run", file, *given)
    if missing := re.search("no kernel events of class (?:sleep|tcp|udp): (.*)", done.stderr):
        pytest.skip(f"SKIPPED LOUDLY: {missing[1]}")
    if re.search(f"this kernel has no .*{UNTOLD.get(experiment, 'nothing')}", done.stderr):
        pytest.skip(f"SKIPPED LOUDLY: this kernel does not tell of {UNTOLD[experiment]}")
    lacking = "neither version 1 nor 2 has `cpu`|qdisc kind is unknown|this kernel has no rps_cpus"
    if missing := re.search(lacking, done.stderr):
        pytest.skip(f"SKIPPED LOUDLY: of this kernel: {missing[0]}")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told = machine.ask("why", f"runs/{experiment}/latest", "--rank")
    assert told.returncode == 0, told.stderr
    ranked: dict[str, Any] = json.loads(told.stdout)
    return ranked


@pytest.mark.parametrize("run", range(cases(1, 5)))
@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_is_found_first(machine: Machine, name: str, run: int) -> None:
    del run
    drawing, cause = PLANTED[name]
    parameters = drawing(random.Random())
    ranked = planted(machine, name, parameters)
    first, *others = ranked["causes"]
    causes = (cause, *ALSO.get(name, ()))
    assert f"{first['name']}: {first['cause']}" in causes, (parameters, first, others[:5])
    check = CHECKS.get(name)
    if check:
        check(machine)


@pytest.mark.skipif(not SOAK, reason="SKIPPED: what is not planted; part of make soak")
@pytest.mark.parametrize("run", range(cases(1, 3)))
@pytest.mark.parametrize("name", NOTHING)
def test_what_is_not_planted_is_not_found(machine: Machine, name: str, run: int) -> None:
    """Other programs of the machine may make messages late."""
    del run
    _, cause = PLANTED[name]
    ranked = planted(machine, name, NOTHING[name])
    found = [each for each in ranked["causes"] if f"{each['name']}: {each['cause']}" == cause]
    assert all(each["in_time"] == 0 for each in found), ranked


def _as_often_as_the_kernel_says(machine: Machine) -> None:
    """The cgroup's own count has those too of which no thread had to wait."""
    query = "select count(*) as records from kernel.throttled"
    done = machine.ask("query", "runs/throttled/latest", query)
    (log,) = machine.directory.glob(
        "runs/throttled/latest/base/1/hosts/h2/components/node/stdout.*"
    )
    counted = re.search(r"^nr_throttled (\d+)$", log.read_text(), re.MULTILINE)
    assert counted and 0 < json.loads(done.stdout)["records"] <= int(counted[1]), log.read_text()


def _lost_in_the_queue(machine: Machine) -> None:
    lost = machine.command("why", "runs/full-qdisc/latest", "--lost").stdout
    assert re.search("h1 dropped it: the queue of its device had no room", lost), lost


CHECKS = {"throttled": _as_often_as_the_kernel_says, "full-qdisc": _lost_in_the_queue}
