"""The header and the library on aarch64, by Debian's cross compiler and qemu's user mode.

The collector is this machine's; the two share files. qemu answers reads of the counter
(``mrs cntvct_el0``) from this machine's clock, so the stamps' order is real, not their rate.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PREFIX = BIN.parent
COMPILER = "aarch64-linux-gnu-gcc"
QEMU = "qemu-aarch64-static"
SYSTEM = Path("/usr/aarch64-linux-gnu")
COUNT = 20_000

LINE = re.compile(
    r"^\[(?P<stamp>\d+)\] .* arm:tick: \{ pid = \d+, tid = (?P<tid>\d+) \}, "
    r"\{ id = (?P<id>\d+), twice = (?P<twice>\d+), half = (?P<half>[0-9.e+]+) \}$"
)


@pytest.fixture(scope="module")
def native() -> bool:
    """Whether this machine is one itself: then nothing is crossed."""
    if platform.machine() == "aarch64":
        return True
    for tool in (COMPILER, QEMU):
        if shutil.which(tool) is None:
            pytest.skip(f"SKIPPED LOUDLY: no {tool}; scripts/setup --test installs it")
    return False


@pytest.fixture(scope="module")
def library(native: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C library for aarch64."""
    directory = tmp_path_factory.mktemp("aarch64")
    library = directory / "libloopscope.so"
    subprocess.run(
        ["make", "--no-print-directory", "MACHINE=aarch64", f"LIB={directory}", library],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    library.with_name("libloopscope.so.0").symlink_to(library.name)
    return library


def build(compiler: str, library: Path, source: str, program: Path) -> Path:
    """A program of ours in C99."""
    directory = library.parent
    words = [compiler, "-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    words += [f"-I{ROOT / 'include'}", "-o", str(program), source]
    words += [f"-L{directory}", "-lloopscope", "-lpthread", f"-Wl,-rpath,{directory}"]
    subprocess.run(words, cwd=ROOT, check=True)
    return program


def record(out: Path, code: int, *command: str | Path) -> tuple[dict[str, Any], list[str]]:
    """The account of a recording, and babeltrace2's lines of it."""
    if shutil.which("babeltrace2") is None:
        pytest.skip("SKIPPED LOUDLY: needs babeltrace2")
    done = subprocess.run(
        [BIN / "loopscope-host", "record", "-o", out, "--", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    shown = subprocess.run(
        ["babeltrace2", "--clock-cycles", out / "trace"], capture_output=True, text=True, check=True
    )
    return json.loads((out / "loss.json").read_text()), shown.stdout.splitlines()


def emulated(native: bool, program: Path) -> list[str | Path]:
    return [program] if native else [QEMU, "-L", str(SYSTEM), program]


def test_what_it_records_is_what_happened(library: Path, native: bool, tmp_path: Path) -> None:
    program = build(
        "cc" if native else COMPILER, library, "tests/adoption/loop.c", tmp_path / "loop"
    )
    loss, lines = record(tmp_path / "out", 3, *emulated(native, program))
    assert (loss["emitted"], loss["recorded"] + loss["dropped"]) == (2 * COUNT, 2 * COUNT)
    by_thread: dict[str, list[tuple[int, int]]] = {}
    for text in lines:
        line = LINE.match(text)
        assert line, text
        number = int(line["id"])
        assert int(line["twice"]) == 2 * number and float(line["half"]) == number / 2
        by_thread.setdefault(line["tid"], []).append((int(line["stamp"]), number))
    assert sum(map(len, by_thread.values())) == loss["recorded"] > 0
    assert len(by_thread) == 2
    for records in by_thread.values():
        assert [number for _, number in records] == sorted(number for _, number in records)
        # A stamp smaller than the one before would read as a leap of 2**32: a minute in qemu.
        stamps = [stamp for stamp, _ in records]
        assert stamps == sorted(stamps)
        assert 0 < stamps[-1] - stamps[0] < 2**32


def test_every_entity_is_as_on_this_machine(library: Path, native: bool, tmp_path: Path) -> None:
    """One source, two architectures: all that they record but when, and in which process."""
    source = "tests/c/every.c"
    crossed = build("cc" if native else COMPILER, library, source, tmp_path / "crossed")
    own = build("cc", PREFIX / "lib/libloopscope.so", source, tmp_path / "own")

    def what(program: Path, *command: str | Path) -> tuple[list[str], list[dict[str, int]]]:
        loss, lines = record(tmp_path / f"of-{program.name}", 0, *command)
        assert loss["emitted"] == loss["recorded"] + loss["dropped"] and loss["recorded"] > 20
        hidden = r"(pid|tid|start|duration) = \d+"
        records = sorted(re.sub(hidden, r"\1", line.partition(") ")[2]) for line in lines)
        (process,) = loss["processes"]
        return records, [site["dropped"] for site in process["sites"]]

    assert what(crossed, *emulated(native, crossed)) == what(own, own)
