"""A service of channels for each test."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopscope.testbed import host_binary


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """The socket of a service that ends with the test, and leaves nothing."""
    path = tmp_path / "service" / "socket"
    command = [host_binary(), "stm", "serve", "--socket", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"serving channels at {path}\n"
        yield path
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert not path.parent.exists()
