"""What programs see of a page: its place, its owner, its end, and time that never goes back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from page import HOLDOVER, MONOTONIC_RAW, SYNCHRONISED, UNKNOWN, Page, Words
from readers import said

NOBODY = 65534


@pytest.fixture
def shared(program: Path) -> Iterator[Path]:
    """A directory that every user can look into, with the program in it."""
    with tempfile.TemporaryDirectory(prefix="loopscope-clock-", dir="/dev/shm") as name:
        directory = Path(name)
        directory.chmod(0o755)
        shutil.copy2(program, directory / "clock")
        yield directory


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: runs programs as another user, needs root")


def counter(program: Path) -> int:
    """About now."""
    [now] = said([program, "now"], Path("/nonexistent"))
    assert now[6] == UNKNOWN
    return int(now[3])


def test_now_is_now(program: Path, tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    before = counter(program)
    words = Words(anchor=before, expires=before + (1 << 40), status=HOLDOVER)
    page.publish(words)
    [now] = said([program, "now"], page.path)
    assert now == words.map(now[3])
    assert before < now[3] < counter(program)


@pytest.mark.parametrize("given", ["cycles", "monotonic-raw"])
def test_the_counter_is_the_pages(program: Path, tmp_path: Path, given: str) -> None:
    """Whatever the program's own environment says: its words are about the page's."""
    page = Page(tmp_path / "page", MONOTONIC_RAW)
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    words = Words(anchor=before, expires=before + (1 << 40), status=HOLDOVER)
    page.publish(words)
    [now] = said(["env", f"LOOPSCOPE_COUNTER={given}", program, "now"], page.path)
    assert now == words.map(now[3])
    assert before < now[3] < time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def test_a_page_of_an_unknown_counter_does_not_count(program: Path, tmp_path: Path) -> None:
    now = counter(program)
    page = Page(tmp_path / "page", 3)
    page.publish(Words(anchor=now - 1000, expires=1 << 62))
    [time_] = said([program, "now"], page.path)
    assert time_[6] == UNKNOWN


def test_an_expired_page_is_unknown(program: Path, tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    now = counter(program)
    page.publish(Words(anchor=now - 1000, expires=now))
    [time, elapsed, utc] = said([program, "now", "elapsed", str(now), str(now), "utc"], page.path)
    assert (time[0], time[2], time[6]) == (-(2**63), 2**63 - 1, UNKNOWN)
    assert elapsed[3] == UNKNOWN
    assert utc == [0, 2**64 - 1]


def test_a_retired_page_is_unknown(program: Path, tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    page.publish(Words())
    asked = [program, "map", str(Words().anchor)]
    assert said(asked, page.path)[0][6] == SYNCHRONISED
    page.retire()
    assert said(asked, page.path)[0][6] == UNKNOWN


@pytest.mark.usefixtures("root")
def test_every_user_reads_it_and_only_its_owner_writes_it(shared: Path) -> None:
    page = Page(shared / "page")
    page.publish(Words())
    words = Words()
    asked = [shared / "clock", "map", str(words.anchor + 5)]
    assert said(asked, page.path, user=NOBODY, group=NOBODY) == [words.map(words.anchor + 5)]
    denied = subprocess.run(
        ["dd", "if=/dev/zero", f"of={page.path}", "conv=notrunc", "count=1"],
        user=NOBODY,
        group=NOBODY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert denied.returncode != 0 and "Permission denied" in denied.stderr


PLACES = """
set -eu
mount -t tmpfs -o mode=1777 clock /dev/shm
cp "$1" /dev/shm/loopscope-clock
clock=$2
counter=$3
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
ask() { "$@" open - map "$counter"; }
unset LOOPSCOPE_CLOCK
ask "$clock"
ask as_nobody "$clock"
chown 65534 /dev/shm/loopscope-clock
ask "$clock"
ask as_nobody "$clock"
LOOPSCOPE_CLOCK=/dev/shm/loopscope-clock ask "$clock"
LOOPSCOPE_CLOCK= ask "$clock"
mv /dev/shm/loopscope-clock /dev/shm/other
chown 0 /dev/shm/other
ln -s other /dev/shm/loopscope-clock
ask "$clock"
rm /dev/shm/loopscope-clock
mkfifo /dev/shm/loopscope-clock
ask "$clock"
"""


@pytest.mark.usefixtures("root")
def test_the_default_page_is_roots_or_ones_own(shared: Path, program: Path, tmp_path: Path) -> None:
    """Anyone can make a file of its name: in a /dev/shm of the test's own."""
    page = Page(tmp_path / "page")
    page.publish(Words())
    place = Path("/run") / shared.name
    shutil.copytree(shared, place)
    try:
        asked = [page.path, place / "clock", str(Words().anchor)]
        lines = said(["unshare", "--mount", "sh", "-c", PLACES, "sh", *asked], None)
    finally:
        shutil.rmtree(place)
    opened = [line[1] for line in lines[::2]]
    seen = [line[6] != UNKNOWN for line in lines[1::2]]
    assert seen == [True, True, False, True, True, False, False, False], lines
    assert "neither root's nor this user's" in opened[2]
    assert opened[5].startswith("cannot read the clock page : No such file")
    assert "symbolic links" in opened[6]
    assert "no clock page" in opened[7]


def test_a_program_says_why_there_is_no_clock(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "none"
    [opened, time] = said([program, "open", path, "now"], None)
    assert opened == [-1, f"cannot read the clock page {path}: No such file or directory"]
    assert time[6] == UNKNOWN
    from loopscope_trace import clock

    with pytest.raises(OSError, match="cannot read the clock page .*none: No such file"):
        clock.open(path)
    with pytest.raises(TypeError):
        clock.map("1")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        clock.map(-1)
    with pytest.raises(TypeError):
        clock.elapsed((1, 2, 3, 4, 5, 6, 7), clock.now())  # type: ignore[arg-type]


def test_monotonic_time_never_goes_back(program: Path, tmp_path: Path) -> None:
    """Two threads, while the estimate is corrected by a millisecond to and fro."""
    page = Page(tmp_path / "page")
    start = counter(program)
    words = Words(anchor=start, expires=start + (1 << 44))
    page.publish(words)
    environment = {**os.environ, "LOOPSCOPE_CLOCK": str(page.path)}
    reading = subprocess.Popen(
        [program, "monotonic", "2000000"], env=environment, stdout=subprocess.PIPE, text=True
    )
    corrections = 0
    while reading.poll() is None:
        corrections += 1
        page.publish(replace(words, global_ns=words.global_ns - corrections % 2 * 1_000_000))
    assert reading.communicate()[0] == "false\n"
    assert corrections > 10


def test_python_reads_it_with_nothing_else_loaded(tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    page.publish(Words(utc_error=5))
    source = """
import sys
from loopscope_trace import clock
time = clock.map(%d)
assert time.status == clock.SYNCHRONISED and time.earliest <= time.best <= time.latest
assert clock.monotonic().best <= clock.monotonic().best
assert clock.utc().error == 5 and isinstance(time, clock.Time)
assert not {"numpy", "pyarrow", "loopscope"} & set(sys.modules)
print(1)
"""
    words = [sys.executable, "-W", "error", "-c", source % Words().anchor]
    assert said(words, page.path) == [1]
