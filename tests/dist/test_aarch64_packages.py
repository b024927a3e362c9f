"""What ``make dist MACHINE=aarch64`` builds, under qemu's user mode. Part of ``make soak``.

It compiles all of the host side's dependencies again. tests/adoption/test_aarch64.py, which is part
of ``make test``, has the C library alone.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAGE = ROOT / "build" / "aarch64" / "stage"
COMPILER = "aarch64-linux-gnu-gcc"
EMULATED = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]
PROGRAM = """
#include <loopscope/trace.h>

int main(void)
{
    for (unsigned long number = 0; number < 1000; number++)
        LOOPSCOPE_EVENT("packed", "tick", number);
    return 0;
}
"""
# Calls of the preload library, one of which has an ellipsis with numbers of floating point.
TALK = """
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    char said[100];
    int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0), to;
    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &size) ||
        connect(from, (struct sockaddr *)&at, size) || (to = accept(listener, NULL, NULL)) < 0)
        return 1;
    for (int number = 0; number < 3; number++) {
        if (number == 2)
            dprintf(from, "%d %s %.3f", number, "by an ellipsis", number * 1.5);
        else
            send(from, "plain", 5, 0);
        ssize_t count = read(to, said, sizeof said);
        printf("%.*s\\n", (int)count, said);
    }
    return 0;
}
"""

pytestmark = pytest.mark.skipif(
    "LOOPSCOPE_SOAK" not in os.environ, reason="SKIPPED: minutes of compiling; part of make soak"
)


def output(*words: str | Path) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def host() -> list[str | Path]:
    """The host binary for aarch64, as a command of this machine."""
    if platform.machine() != "x86_64":
        pytest.skip("this machine is not the one that is crossed from")
    for tool in (COMPILER, EMULATED[0]):
        if shutil.which(tool) is None:
            pytest.skip(f"SKIPPED LOUDLY: no {tool}; scripts/setup --test installs it")
    output("make", "--no-print-directory", "dist", "MACHINE=aarch64")
    return [*EMULATED, STAGE / "bin/loopscope-host"]


def test_the_packages_are_for_aarch64(host: list[str | Path]) -> None:
    libraries = ("libloopscope.so.0", "libloopscope_stm.so.0", "libloopscope_preload.so")
    for file in (STAGE / "bin/loopscope-host", *(STAGE / "lib" / name for name in libraries)):
        assert re.search(r"Machine:\s+AArch64", output("readelf", "--file-header", file))
        needs = output("readelf", "--wide", "--version-info", file)
        versions = {
            tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", needs)
        }
        assert versions and max(versions) <= (2, 28), max(versions)
    dist = ROOT / "build" / "dist"
    (package,) = dist.glob("loopscope-host_*_arm64.deb")
    if shutil.which("dpkg-deb") is not None:
        assert output("dpkg-deb", "-f", package, "Architecture").strip() == "arm64"
    assert len(list(dist.glob("loopscope-*-linux-aarch64.tar.gz"))) == 1


def test_the_host_binary_records(host: list[str | Path], tmp_path: Path) -> None:
    assert output(*host, "--version") == output(ROOT / ".venv/bin/loopscope-host", "--version")
    (tmp_path / "program.c").write_text(PROGRAM)
    program = tmp_path / "program"
    flags = [f"-I{STAGE / 'include'}", f"-L{STAGE / 'lib'}", f"-Wl,-rpath,{STAGE / 'lib'}"]
    output(COMPILER, "-o", program, tmp_path / "program.c", *flags, "-lloopscope")
    output(*host, "record", "-o", tmp_path / "out", "--", *EMULATED, program)
    loss = json.loads((tmp_path / "out/loss.json").read_text())
    assert (loss["emitted"], loss["recorded"], loss["dropped"]) == (1000, 1000, 0)
    read = output("babeltrace2", tmp_path / "out/trace").splitlines()
    numbers = [int(found[1]) for line in read if (found := re.search(r"\{ id = (\d+)", line))]
    assert numbers == list(range(1000))


def test_the_preload_library_is_in_programs(host: list[str | Path], tmp_path: Path) -> None:
    assert host
    (tmp_path / "talk.c").write_text(TALK)
    output(COMPILER, "-o", tmp_path / "talk", tmp_path / "talk.c")
    explained = tmp_path / "explained"
    loaded = ["-E", f"LD_PRELOAD={STAGE / 'lib/libloopscope_preload.so'}"]
    loaded += ["-E", "LOOPSCOPE_STACK=/nowhere", "-E", f"LOOPSCOPE_STACK_EXPLAIN={explained}"]
    for words in ([], loaded):
        said = output(*EMULATED, *words, tmp_path / "talk")
        assert said == "plain\nplain\n2 by an ellipsis 3.000\n"
    lines = [json.loads(line) for line in explained.read_text().splitlines()]
    assert len(lines) == 3 and not any(line["accelerated"] for line in lines)
    assert any("/nowhere" in line["why"] for line in lines), lines
