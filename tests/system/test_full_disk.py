"""A run whose disk others fill: what could not be kept is counted, and the counts are kept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked_pipeline import linked_pipeline
from machine import Machine

pytestmark = pytest.mark.usefixtures("root")

COUNTS = ("emitted", "recorded", "dropped")
# Takes the room that hosts keep for their accounts too: then only the run itself can write them.
FILLER = """\
while :; do
    rm -f "$1"/*/*/base/1/hosts/*/.reserve-*
    cat /dev/zero >> "$1"/ballast 2> /dev/null
    sleep 0.02
done
"""
# It begins when all hosts record: where a recording cannot begin, its program is not started.
COMPONENT = "  filler: {host: h1, run: sh ./filler.sh $runs, start: connect}\nphases:"
LATE = """\
name: links
hosts: [h1, h2]
components:
  filler: {host: h1, run: sh ./fill-once.sh $runs, ready: {exit: 0}}
  pipe: {host: h2, run: loopscope-host pipe sink, start: run}
phases: [{name: run, measured: true, timeout: 10s}]
trace: {user: ["pipe:*"]}
"""


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[Path]:
    """A file system of 16 MiB at the place of the machine's run directories."""
    runs = machine.directory / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", runs], check=True)
    yield runs
    subprocess.run(["umount", runs], check=True)


def test_accounts_outlive_a_full_disk(machine: Machine, small_disk: Path) -> None:
    count = 200
    machine.write("filler.sh", FILLER)
    text = linked_pipeline("h1 -> h2: {delay: 1ms}", count=count).replace(
        "phases:", COMPONENT.replace("$runs", str(small_disk))
    )
    file = machine.write("full.yaml", text)
    run = machine.command("run", file)
    # UNKNOWN where what the filler left is enough for the time line, a failed run where it is not.
    assert run.returncode in (3, 4), run.stdout + run.stderr
    assert "No space left on device" in run.stderr and "Traceback" not in run.stderr
    assert machine.leftovers() == []
    if run.returncode == 3:
        assert "UNKNOWN  loop.lost == 0" in run.stdout, run.stdout
    (directory,) = (path.parent for path in small_disk.glob("links/2*/manifest.json"))
    # Each message is sent and received twice.
    of_hosts = _of_all(directory, "h*")
    assert of_hosts["emitted"] == 4 * count == of_hosts["recorded"] + of_hosts["dropped"]
    assert of_hosts["dropped"] > 0, "the disk was not full: nothing is tested"
    # A page is whole or not there.
    page = directory / "report.html"
    assert not page.exists() or page.read_text("utf-8").rstrip().endswith("</html>")

    (small_disk / "ballast").unlink()
    report = machine.command("report", directory)
    assert report.returncode == 3, report.stdout + report.stderr
    loss = json.loads((directory / "results.json").read_text())["loss"]
    # The emulated links have accounts too.
    assert {name: loss[name] for name in COUNTS} == _of_all(directory, "*")
    assert page.read_text("utf-8").rstrip().endswith("</html>")


def test_a_program_that_cannot_be_recorded_is_not_started(
    machine: Machine, small_disk: Path
) -> None:
    machine.write("fill-once.sh", 'cat /dev/zero > "$1"/ballast 2> /dev/null; true\n')
    file = machine.write("late.yaml", LATE.replace("$runs", str(small_disk)))
    run = machine.command("run", file)
    assert run.returncode == 4, run.stdout + run.stderr
    # Once when it happens and once at the end.
    (line,) = {each for each in run.stderr.splitlines() if each.startswith("loopscope: ")}
    assert "pipe on h2 failed in phase run: component pipe: cannot record" in line, run.stderr
    assert "No space left on device" in line and "Traceback" not in run.stderr, run.stderr
    assert machine.leftovers() == []


def _of_all(run: Path, hosts: str) -> dict[str, int]:
    files = run.glob(f"base/1/hosts/{hosts}/loss.json")
    accounts = [json.loads(file.read_text()) for file in files]
    return {name: sum(each[name] for each in accounts) for name in COUNTS}
