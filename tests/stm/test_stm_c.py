"""`loopscope/stm.h` and `libloopscope_stm`: a program in C or C++, and one in Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from loopscope import stm

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(sys.executable).parents[1]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


LINES = ["one", "two, which is longer", "three", "and four"]


def compiled(folder: Path, compiler: tuple[str, ...]) -> Path:
    """The program in C."""
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "loopscope-stm"],
        env={"PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    program = folder / "program"
    words: list[str | Path] = [
        *compiler,
        *STRICT,
        ROOT / "tests/c/stm.c",
        "-xnone",
        "-o",
        program,
        *flags,
    ]
    subprocess.run(words, check=True)
    return program


@pytest.mark.parametrize("compiler", [("cc", "-std=c99"), ("c++", "-std=c++11", "-xc++")])
def test_a_program_in_c_and_one_in_python_share_a_channel(
    compiler: tuple[str, ...], socket: Path, tmp_path: Path
) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"SKIPPED LOUDLY: there is no {compiler[0]}")
    program = compiled(tmp_path, compiler)
    lines = LINES
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


def test_what_a_program_in_c_does_with_a_channel_is_recorded(socket: Path, tmp_path: Path) -> None:
    """The library records it, without a word of the program: stm.c, `small_channel`."""
    if shutil.which("cc") is None:
        pytest.skip("SKIPPED LOUDLY: there is no cc")
    program = compiled(tmp_path, ("cc", "-std=c99"))
    record: list[str | Path] = [
        PREFIX / "bin/loopscope",
        "record",
        "-o",
        "out",
        "-e",
        "small:*",
        "--",
    ]
    subprocess.run(
        [*record, program, socket],
        input="".join(f"{line}\n" for line in LINES),
        cwd=tmp_path,
        check=True,
        text=True,
        timeout=60,
    )

    def rows(event: str, *columns: str) -> list[tuple[int, ...]]:
        table = pq.read_table(tmp_path / "out/timeline/small" / event)
        return list(zip(*(table[column].to_pylist() for column in columns), strict=True))

    # The first one is for nobody. The fourth one waits for 1 ms in vain, and is put later.
    assert rows("put", "id", "bytes")[:4] == [(1, 0), (2, 3), (3, 5), (4, 4)]
    assert rows("collected", "id", "dropped")[:2] == [(1, 0), (3, 0)]
    assert rows("consumed", "id", "until")[0] == (3, 0)
    assert rows("got", "id", "bytes")[0] == (4, 4)
    ((nothing, waited),) = rows("put_wait", "id", "duration")[:1]
    assert nothing == -(2**63) and waited >= 900_000
