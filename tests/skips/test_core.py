"""`make test` stays short: scripts/check_core.py refuses a core that takes too long."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from check_core import BUDGET_S, PROMISED, REMEDY, faults  # noqa: E402

SHORT = {file: 1.0 for file in PROMISED}


def test_a_core_within_its_budget_is_right() -> None:
    full = {"tests/long.py": 2.0 * BUDGET_S}
    assert faults({"core": SHORT, "full": full}, [*SHORT, *full]) == []


def test_a_core_that_takes_too_long_names_its_longest_files_and_the_remedy() -> None:
    core = {**SHORT, "tests/second.py": 100.0, "tests/first.py": float(BUDGET_S)}
    first, second, third, *_, last = faults({"core": core, "full": {}}, list(core))
    assert first.endswith(f"more than the budget of {BUDGET_S} s:")
    assert second.endswith("tests/first.py") and third.endswith("tests/second.py")
    assert last == REMEDY


def test_a_file_without_a_time_is_named() -> None:
    first, _ = faults({"core": SHORT, "full": {}}, [*SHORT, "tests/new.py"])
    assert first == "tests/new.py has no time in tests/durations.json"


def test_an_area_without_a_live_test_in_the_core_is_named() -> None:
    core = dict(list(SHORT.items())[1:])
    (found,) = faults({"core": core, "full": {PROMISED[0]: 1.0}}, list(SHORT))
    assert found.startswith(f"{PROMISED[0]} has no test in the core")
