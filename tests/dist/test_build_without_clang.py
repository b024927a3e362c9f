"""The build script of crates/kernel, as cargo runs it: without clang the build goes on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

CRATE = Path(__file__).resolve().parents[2] / "crates" / "kernel"
SOURCES = [*CRATE.glob("bpf/*.bpf.c")]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("script") / "build"
    subprocess.run(["rustc", "--edition", "2024", "-o", made, CRATE / "build.rs"], check=True)
    return made


@pytest.mark.parametrize(
    ("clang", "why"),
    [(None, "No such file or directory"), ("echo no such target >&2; exit 1", "no such target")],
)
def test_a_build_without_clang_goes_on_and_says_so(
    script: Path, tmp_path: Path, clang: str | None, why: str
) -> None:
    compiler = tmp_path / "clang"
    if clang is not None:
        compiler.write_text(f"#!/bin/sh\n{clang}\n")
        compiler.chmod(0o755)
    environment = {**os.environ, "OUT_DIR": str(tmp_path), "CLANG": str(compiler)}
    done = subprocess.run(
        [script], cwd=CRATE, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    warnings = re.findall(r"^cargo::warning=(.*)$", done.stdout, re.MULTILINE)
    said = f"without programs for the kernel: {compiler}: {why}"
    assert len(warnings) == len(SOURCES) and all(said in each for each in warnings), warnings
    again = re.findall(r"^cargo::rerun-if-changed=(.*\.again)$", done.stdout, re.MULTILINE)
    for source in SOURCES:
        # The empty object is what says so when the programs are asked for.
        assert (tmp_path / source.name).with_suffix(".o").read_bytes() == b""
    # What cargo misses it looks for again, so that the next build finds clang.
    assert len(again) == len(SOURCES) and not any(Path(each).exists() for each in again)
