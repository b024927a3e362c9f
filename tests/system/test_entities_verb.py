"""``loopscope entities``: what a person sees of a program's call sites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from machine import Machine

PREFIX = Path(sys.executable).parents[1]

PROGRAM = """
#include <loopscope/trace.h>

LOOPSCOPE_DESCRIBE_GROUP("mill", "what the wheel does");
LOOPSCOPE_DESCRIBE("mill", "load", "kg", "grain on the stone");
LOOPSCOPE_HISTOGRAM_RANGE("mill", "load", 0, 100, 20);

int main(void)
{
    LOOPSCOPE_EVENT("mill", "turn", 1, LOOPSCOPE_F64(speed, 0.5), LOOPSCOPE_STRING(by, "water"));
    LOOPSCOPE_HISTOGRAM_ADD("mill", "load", 7);
    return 1;
}
"""


@pytest.fixture
def program(machine: Machine) -> Path:
    source = machine.write("mill.c", PROGRAM)
    binary = machine.directory / "mill"
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
    subprocess.run(
        f"cc -o {binary} {source.name} $(pkg-config --cflags --libs loopscope)",
        shell=True,
        check=True,
        env=environment,
        cwd=machine.directory,
    )
    return binary


def test_of_a_program(machine: Machine, program: Path) -> None:
    done = machine.command("entities", program)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert "mill: what the wheel does".split() in rows
    assert "mill:turn event float64_t speed, string by mill.c:10".split() in rows
    assert "mill:load histogram-add 0 to 100 in 20, kg mill.c:11".split() in rows
    assert "grain on the stone" in done.stdout


def test_as_json(machine: Machine, program: Path) -> None:
    done = machine.command("entities", "--json", program)
    load, turn = json.loads(done.stdout)
    assert load == {
        "group": "mill",
        "name": "load",
        "kind": "histogram-add",
        "fields": [],
        "file": "mill.c",
        "line": 11,
        "unit": "kg",
        "description": "grain on the stone",
        "group_description": "what the wheel does",
        "scale": "linear",
        "low": 0,
        "high": 100,
        "buckets": 20,
    }
    assert turn["fields"][1] == {"name": "by", "type": "string"}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("/bin/sh", "no call sites"),
        ("/etc/passwd", "not an ELF program"),
        ("no-such-file", "no-such-file"),
        ("4194999", "there is no process 4194999"),
    ],
)
def test_what_cannot_be_listed(machine: Machine, target: str, said: str) -> None:
    done = machine.command("entities", target)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("loopscope: ") and said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_without_call_sites_has_nothing_to_list(machine: Machine) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            done = machine.command("entities", str(process.pid))
        finally:
            process.kill()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("loopscope: ") and "no call sites" in done.stderr
