"""C, C++, Rust and Python say the same of a page, and it is what the format's description says."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page import SLOT, Page, Words, counters, variety
from readers import FORMS, ROOT, build, said

PYTHON = """
import sys
from loopscope_trace import clock

words = iter(sys.argv[1:])
for command in words:
    if command == "map":
        print([*clock.map(int(next(words)))])
    elif command == "elapsed":
        times = [clock.map(int(next(words))) for _ in range(2)]
        print([*(clock.elapsed(*times) or [-2**63, -2**63, 2**63 - 1, 0])])
    else:
        print([*(clock.utc() or [0, 2**64 - 1])])
"""


def questions(words: Words) -> list[str]:
    asked = [text for at in counters(words) for text in ("map", str(at))]
    pairs = zip(counters(words), reversed(counters(words)), strict=True)
    asked += [text for pair in pairs for text in ("elapsed", *map(str, pair))]
    return [*asked, "utc"]


def answers(words: Words) -> list[list[int]]:
    pairs = zip(counters(words), reversed(counters(words)), strict=True)
    said = [words.map(at) for at in counters(words)]
    return [*said, *(words.elapsed(*pair) for pair in pairs), words.utc()]


def check(command: list[str | Path], path: Path) -> None:
    page = Page(path)
    for words in variety():
        page.publish(words)
        # What is being written over it is nobody's business yet.
        page.publish(Words(epoch=99), until=SLOT - 8)
        assert said([*command, *questions(words)], path) == answers(words), words


@pytest.mark.parametrize("compiler", FORMS)
def test_c_and_cplusplus(compiler: list[str], tmp_path: Path) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"SKIPPED LOUDLY: no {compiler[0]}")
    check([build(compiler, tmp_path / "clock")], tmp_path / "page")


@pytest.mark.full
def test_rust(tmp_path: Path) -> None:
    build = ["cargo", "build", "--release", "--locked", "-q", "-p", "loopscope-clock"]
    made = subprocess.run(
        [*build, "--example", "clock", "--message-format=json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    artifacts = [json.loads(line) for line in made.stdout.splitlines()]
    [program] = [artifact["executable"] for artifact in artifacts if artifact.get("executable")]
    check([program], tmp_path / "page")


def test_python(tmp_path: Path) -> None:
    check([sys.executable, "-c", PYTHON], tmp_path / "page")


@pytest.mark.full
def test_aarch64(tmp_path: Path) -> None:
    """By Debian's cross compiler and qemu's user mode."""
    compiler, emulator = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
    if platform.machine() == "aarch64":
        pytest.skip("this machine is one itself")
    for tool in (compiler, emulator):
        if shutil.which(tool) is None:
            pytest.skip(f"SKIPPED LOUDLY: no {tool}; scripts/setup --test installs it")
    command = ["make", "--no-print-directory", "MACHINE=aarch64", f"LIB={tmp_path}"]
    library = tmp_path / "libloopscope.so"
    subprocess.run([*command, str(library)], cwd=ROOT, check=True, capture_output=True)
    library.with_name("libloopscope.so.0").symlink_to(library.name)
    program = build([compiler, "-std=c99"], tmp_path / "clock", tmp_path)
    check([emulator, "-L", "/usr/aarch64-linux-gnu", program], tmp_path / "page")
