from __future__ import annotations

from pathlib import Path

import pytest
from readers import build


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/c/clock.c, where every user can run it."""
    directory = tmp_path_factory.mktemp("clock")
    return build(["gcc", "-std=c99"], directory / "clock")
