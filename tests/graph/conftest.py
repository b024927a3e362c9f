"""Runs written from plain Python, as the analysis' tests have them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from loopscope.graph.engine import DuckDB

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

# Seeded samples, and no assertion on the machine's speed; a profile from the command line wins.
# A smaller sample would take minutes: every one is a query.
settings.register_profile(
    "few", deadline=None, derandomize=True, max_examples=12, phases=(Phase.explicit, Phase.generate)
)
if settings.get_current_profile_name() in ("default", "ci", "seeded"):
    settings.load_profile("few")


@pytest.fixture(scope="session")
def duckdb() -> Iterator[DuckDB]:
    with DuckDB() as engine:
        yield engine
