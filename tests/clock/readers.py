"""Programs that read clock pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(sys.executable).parents[1] / "lib"
STRICT = ["-O2", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wconversion"]
FORMS = [
    pytest.param(["gcc", "-std=c99"], id="c99"),
    pytest.param(["gcc", "-std=c11"], id="c11"),
    pytest.param(["clang", "-std=c11"], id="clang"),
    pytest.param(["g++", "-std=c++11", "-x", "c++"], id="c++11"),
    pytest.param(["clang++", "-std=c++20", "-x", "c++"], id="c++20"),
]


def build(compiler: list[str], program: Path, library: Path = LIBRARY) -> Path:
    """Compiles tests/c/clock.c against the installed library."""
    words = [*compiler, *STRICT, f"-I{ROOT / 'include'}", "tests/c/clock.c", "-x", "none"]
    words += ["-o", str(program), f"-L{library}", "-lloopscope", "-lpthread"]
    subprocess.run([*words, f"-Wl,-rpath,{library}"], cwd=ROOT, check=True)
    return program


def said(command: list[str | Path], page: Path | None, **more: Any) -> list[Any]:
    """What a program prints, line by line, with this page as its clock."""
    environment = {name: value for name, value in os.environ.items() if name != "LOOPSCOPE_CLOCK"}
    if page is not None:
        environment["LOOPSCOPE_CLOCK"] = str(page)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False, **more
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
