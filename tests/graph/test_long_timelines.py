"""A time line that takes a while: its progress is shown, and an interrupt leaves all as it was."""

from __future__ import annotations

import os
import pty
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from recorded_run import HZ, OFF, PACKET, stream_uuid, write_run
from typer.testing import CliRunner

from loopscope.cli import app
from loopscope.control import Silent, make_timeline
from loopscope.experiment import from_manifest
from loopscope.timeline import open_run

PACKETS = 160
EVENTS = 50_000
"""In each."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One whose source has sent eight million messages more."""
    path = write_run(tmp_path / "run")
    folder = path / "base/1/hosts/h1/trace"
    records = np.zeros(EVENTS, np.dtype([("kind", "<u2"), ("counter", "<u4"), ("id", "<i8")]))
    bits = 8 * (PACKET + records.nbytes)
    with (folder / "source-7-more").open("wb") as file:
        for sequence in range(PACKETS):
            begin = OFF["h1"][0] + HZ + sequence * EVENTS * 100
            counters = begin + np.arange(EVENTS) * 100
            records["counter"] = counters & 0xFFFFFFFF
            records["id"] = np.arange(EVENTS) + sequence * EVENTS
            file.write(struct.pack("<I16sI", 0xC1FC1FC1, stream_uuid(folder), 0))
            numbers = (begin, int(counters[-1]), bits, bits, sequence, 0, 7, 5)
            file.write(struct.pack("<QQQQQQII", *numbers) + records.tobytes())
    return path


def content(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


class Watching(Silent):
    def __init__(self, ends: bool) -> None:
        self.told: list[tuple[int, int]] = []
        self._ends = ends

    def amount(self, done: int, total: int) -> None:
        self.told.append((done, total))
        if self._ends:
            raise KeyboardInterrupt


@pytest.mark.parametrize("earlier", [False, True])
def test_what_is_interrupted_changes_nothing(run: Path, earlier: bool) -> None:
    opened = open_run(run)
    experiment = from_manifest(opened.manifest["experiment"])
    if earlier:
        seen = Watching(ends=False)
        make_timeline(experiment, opened.repeats[1], seen)
        streams = sum(file.stat().st_size for file in run.glob("base/1/hosts/*/trace/*-7-*"))
        assert seen.told and {total for _, total in seen.told} == {streams}
        assert seen.told == sorted(seen.told) and seen.told[-1][0] <= streams
    before = content(run)
    watching = Watching(ends=True)
    with pytest.raises(KeyboardInterrupt):
        make_timeline(experiment, opened.repeats[1], watching)
    assert len(watching.told) == 1, "it goes on after that"
    assert content(run) == before
    assert earlier == (run / "base/1/timeline").exists()
    assert not list(run.rglob(".*"))


def test_what_cannot_be_written_is_told_with_its_place(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "base/1/tables").write_text("mine")
    done = CliRunner().invoke(app, ["report", str(run)])
    assert done.exit_code == 2, done.output
    assert f"the time line cannot be made: {run}/base/1/tables: File exists" in done.stderr
    assert not list(run.rglob(".*")) and not (run / "base/1/timeline").exists()


def test_an_interrupt_ends_report_with_130(run: Path) -> None:
    before = content(run)
    master, slave = pty.openpty()
    loopscope = Path(sys.executable).parent / "loopscope"
    with subprocess.Popen(
        [loopscope, "report", run], stdin=slave, stdout=slave, stderr=slave, close_fds=True
    ) as report:
        os.close(slave)
        shown = b""
        while not re.search(rb"making the time line  [0-9.]+ of 112\.\d MB", shown):
            shown += os.read(master, 4096)
        report.send_signal(signal.SIGINT)
        try:
            while more := os.read(master, 4096):
                shown += more
        except OSError:
            pass  # the terminal's other side is closed
        os.close(master)
    assert report.returncode == 130, shown
    assert b"Traceback" not in shown
    assert content(run) == before
    assert not list(run.rglob(".*"))
