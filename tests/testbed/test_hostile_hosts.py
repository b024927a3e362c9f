"""Hosts that send what no agent sends: the desk says so, and writes nowhere else."""

from __future__ import annotations

import io
import os
import platform
import random
import re
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import SOAK, cases
from hostile_host import HostileHost, machine

from loopscope import pipeline
from loopscope.control import RunFailed, Silent
from loopscope.control.instant import PrintedLine
from loopscope.experiment import load
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.testbed import kit
from loopscope.testbed.unpack import UnpackError, unpack
from loopscope.timeline import RunError, table_error

HOSTS = ("h1", "h2", "h3")
FILE = """
name: hostile
testbed: ssh
hosts: [h1, h2, h3]
phases: [{name: run, timeout: 1s, measured: true}]
components:
  a: {host: h1, run: a}
  b: {host: h2, run: b}
drain: 0s
trace: {user: ["pipe:*"]}
measure: {paths: {loop: {key: id, events: [a/pipe:sent, b/pipe:received]}}}
expect: [loop < 1s]
"""
SEED = 0 if not SOAK else random.randrange(1 << 30)
# No try may take longer; most of it is the patience with a host that does not answer.
LONGEST_S = 60.0
# More than a try takes with honest hosts.
MEMORY_BYTES = 512 << 20


class Shown(Silent):
    """Keeps all that a person would see."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)

    def failure(self, text: str) -> None:
        self.texts.append(text)

    def component(self, host: str, component: str, status: str) -> None:
        self.texts += [host, component, status]

    def output(self, host: str, component: str, line: PrintedLine, stderr: bool) -> None:
        self.texts += [component, line.text]


def files(folder: Path) -> set[str]:
    found = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return {str(file.relative_to(folder)) for file in found}


def memory(kind: str) -> int:
    """Memory of this process in bytes: VmRSS now, VmHWM at most."""
    (found,) = re.findall(rf"^{kind}:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    return int(found) * 1024


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> object:
    # In the shortest place, because names of sockets have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="lstest-") as folder:
        home = Path(folder) / "home"
        machine(home, kit.for_machine(platform.machine()).hash)
        monkeypatch.setenv("PATH", f"{home / 'desk'}:{os.environ['PATH']}")
        yield home


@pytest.mark.full
def test_no_host_brings_the_desk_down_or_writes_outside_of_the_run(home: Path) -> None:
    top = home.parent
    file = top / "hostile.yaml"
    file.write_text(FILE)
    experiment = load(file)
    before = files(top)
    # What other tests have used in this process does not count (proc(5), clear_refs).
    Path("/proc/self/clear_refs").write_text("5")
    had = memory("VmRSS")
    passed = 0
    for seed in range(SEED, SEED + cases(32, 1000)):
        drawn = random.Random(seed)
        odds = drawn.choice([0.0, 0.1, 0.5, 1.0])
        hosts = [HostileHost(name, home, drawn, odds) for name in HOSTS]
        shown, began = Shown(), time.monotonic()
        try:
            judged = pipeline.run(experiment, file.read_bytes(), top / "runs", shown, False)
            passed += 1
            page = judged.report.read_text() if judged.report.exists() else ""
            assert "<script>alert" not in page, seed
        except (RunFailed, RunError) as error:
            shown.texts.append(str(error))
        except Exception as error:
            assert table_error(error) is not None, f"seed {seed}"
        finally:
            for host in hosts:
                host.stop()
        # A bound on waiting, not on speed.
        assert time.monotonic() - began < LONGEST_S, seed
        unprintable = [
            text
            for text in shown.texts
            for each in text
            if not (each.isprintable() or each in "\n\t")
        ]
        assert not unprintable, (seed, unprintable[0])
        left = {name for name in files(top) if not name.startswith(("runs/", "home/h"))}
        assert {n for n in left - before if not n.startswith("home/.local")} == set(), seed
        links = [path for path in (top / "runs").rglob("*") if path.is_symlink()]
        assert [link.name for link in links] == ["latest"], seed
        assert memory("VmHWM") - had < MEMORY_BYTES, seed
    # Honest hosts, among which some draws have nothing odd, are taken as they are.
    assert passed > 0


def test_archives_are_refused_or_unpacked_within_their_folder(tmp_path: Path) -> None:
    """Damaged archives: nothing but UnpackError or OSError, and nothing outside."""
    drawn = random.Random(SEED)
    home = tmp_path / "home"
    home.mkdir()
    unpacked = 0
    for number in range(cases(300, 20_000)):
        host = HostileHost.__new__(HostileHost)
        host.name, host.home, host.drawn = "h1", home, drawn
        host.odds = drawn.choice([0.0, 0.3, 1.0])
        into = tmp_path / "into" / f"{number}"
        into.mkdir(parents=True)
        try:
            unpack(io.BytesIO(host._archive()), into, "h1", 1 << 20)
            unpacked += 1
        except (UnpackError, OSError):
            pass
        assert set(os.listdir(into)) <= {"h1"}, number
        assert not any(path.is_symlink() for path in into.rglob("*")), number
    assert set(os.listdir(tmp_path)) == {"home", "into"}
    assert unpacked > 0


def test_a_quota_counts_files_as_well_as_bytes(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number in range(300):
            tar.addfile(tarfile.TarInfo(f"h1/{number}"))
    with pytest.raises(UnpackError, match="more than 1000000 bytes"):
        unpack(io.BytesIO(buffer.getvalue()), tmp_path, "h1", 1_000_000)
    assert len(os.listdir(tmp_path / "h1")) == 244


class Flooding(HostileHost):
    """A host that reports without an end."""

    def _watch(self, _: bytes, __: object) -> Iterator[bytes]:
        line = pb.Event(component="a", output=pb.Output(line="x" * 1000)).SerializeToString()
        while True:
            yield line


def failure(home: Path, text: str) -> str:
    """Message of a run that fails."""
    file = home.parent / "hostile.yaml"
    file.write_text(text)
    with pytest.raises(RunFailed) as failed:
        pipeline.run(load(file), file.read_bytes(), home.parent / "runs", Shown(), False)
    return str(failed.value)


def test_a_host_that_reports_without_an_end_is_stopped_at_its_quota(home: Path) -> None:
    kinds = {"h1": Flooding}
    hosts = [kinds.get(name, HostileHost)(name, home, random.Random(1), 0.0) for name in HOSTS]
    try:
        # The component never becomes ready, so that nothing else ends the run.
        said = failure(home, f"{FILE}machines: {{h1: {{quota: 2MB}}}}\n")
    finally:
        for host in hosts:
            host.stop()
    assert "host h1: its agent has reported more than 2000000 bytes" in said
    printed = sum(file.stat().st_size for file in home.parent.rglob("output.jsonl"))
    assert printed < 10_000_000


def test_a_machine_whose_answers_have_no_end_is_named(home: Path) -> None:
    (home / "bin/uname").write_text("#!/bin/sh\nexec yes\n")
    (home / "bin/uname").chmod(0o755)
    assert "host h2: its answer has no end" in failure(home, FILE)
