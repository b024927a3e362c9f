"""`loopscope/stm.h` and `libloopscope_stm`: a program in C or C++, and one in Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loopscope import stm

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(sys.executable).parents[1]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


@pytest.mark.parametrize("compiler", [("cc", "-std=c99"), ("c++", "-std=c++11", "-xc++")])
def test_a_program_in_c_and_one_in_python_share_a_channel(
    compiler: tuple[str, ...], socket: Path, tmp_path: Path
) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"SKIPPED LOUDLY: there is no {compiler[0]}")
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "loopscope-stm"],
        env={"PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    program = tmp_path / "program"
    words = [*compiler, *STRICT, ROOT / "tests/c/stm.c", "-xnone", "-o", program, *flags]
    subprocess.run(words, check=True)
    lines = ["one", "two, which is longer", "three", "and four"]
    pipe = subprocess.PIPE
    with subprocess.Popen([program, socket], stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write("".join(f"{line}\n" for line in lines))
        running.stdin.flush()
        assert running.stdout.readline() == "ready\n", running.wait()
        # By the same defaults, or else it would be refused.
        channel = stm.Service(socket).create("frames", item_bytes=64)
        into = channel.input()
        items = into.range(1, 100)
        assert [bytes(item).decode() for item in items] == [f"{line}\n" for line in lines]
        assert [item.half_width for item in items] == [1, 0, 0, 0]
        running.stdin.close()
        assert running.wait(timeout=30) == 0
    into.consume_until(4)
    del items
    assert channel.counts() == stm.Counts(put=4, collected=4, dropped=0, present=0, free=20)
