from __future__ import annotations

from pathlib import Path

import pytest
from python_programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)
