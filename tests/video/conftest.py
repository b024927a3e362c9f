"""A service of channels for each test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BIN = Path(sys.prefix) / "bin"
PATIENCE_S = 60


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of programs that find a service."""
    service = subprocess.Popen(
        [BIN / "loopscope", "stm", "serve", "--socket", tmp_path / "stm"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None and "serving" in service.stdout.readline()
        yield {**os.environ, "LOOPSCOPE_STM": str(tmp_path / "stm")}
    finally:
        service.terminate()
        service.communicate(timeout=PATIENCE_S)
