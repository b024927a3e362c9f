"""Programs linked with the instrumentation's own C files, so that they can look inside."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "crates"
FOLDERS = ("time/c", "trace/c")
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"]


def build(
    directory: Path, name: str, core: Path = CORE, flags: tuple[str, ...] = (), includes: str = ""
) -> Path:
    """Compiles ``tests/c/NAME.c``, which ``includes`` a file of the core, with the rest of it.

    ``core`` holds the folders of the core.
    """
    program = directory / name
    sources = [
        ROOT / "tests" / "c" / f"{name}.c",
        *sorted(
            each
            for folder in FOLDERS
            for each in (core / folder).glob("*.c")
            if each.name != includes
        ),
    ]
    include = ["-I", core / "trace/c", "-I", ROOT / "include"]
    subprocess.run(["cc", *FLAGS, *flags, *include, *sources, "-o", program], check=True)
    return program


def run(program: Path, *arguments: str, streams: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with a runtime directory of its own, which nobody collects."""
    runtime = program.parent / "runtime"
    runtime.mkdir()
    (runtime / "streams").write_text(streams)
    environment = {**os.environ, "LOOPSCOPE_RUNTIME_DIR": str(runtime)}
    return subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
