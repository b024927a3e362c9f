"""Holds that `make test` stays short: the core's tests take no longer than a budget.

The core is each Python test that is not marked `full`; tests/durations.json has the seconds of each
file. With two workers the tests take half of their sum.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 560
TOLD = 8
# What `make test` was promised to run: each large area has a live test in the core.
PROMISED = [
    "tests/emulate/test_movers.py",
    "tests/stm/test_channels_of_services.py",
    "tests/stm/test_channels_python.py",
    "tests/system/test_blocked.py",
    "tests/system/test_emulated_links.py",
    "tests/system/test_experiment_clocks.py",
    "tests/system/test_faults.py",
    "tests/system/test_kernel_events.py",
    "tests/system/test_killed_anywhere.py",
    "tests/system/test_readme.py",
    "tests/system/test_rootless.py",
    "tests/system/test_ssh.py",
]
MEASURE = (
    ".venv/bin/python -m pytest FILES --junit-xml=build/pytest.xml && "
    ".venv/bin/python scripts/durations.py"
)
REMEDY = f"""\
Have tests share what they run (a fixture of the file), or draw fewer cases (tests/effort.py). Or
mark the long ones, @pytest.mark.full, or a whole file, pytestmark = pytest.mark.full: CI goes on to
run them by `make test-all`. Then run:
  {MEASURE}"""


def faults(durations: dict[str, dict[str, float]], files: list[str]) -> list[str]:
    """What is wrong with the core, as lines."""
    core, full = durations["core"], durations["full"]
    found = [
        f"{file} has no time in tests/durations.json"
        for file in files
        if file not in core and file not in full
    ]
    if found:
        found.append(f"Run:\n  {MEASURE}")
    found += [
        f"{file} has no test in the core, and `make test` was promised to run some of it: "
        "take the mark `full` off one"
        for file in PROMISED
        if file not in core
    ]
    total = sum(core.values())
    if total > BUDGET_S:
        longest = sorted(core.items(), key=lambda each: -each[1])[:TOLD]
        found.append(f"the core's tests take {total:.0f} s, more than the budget of {BUDGET_S} s:")
        found += [f"  {seconds:6.1f} s  {file}" for file, seconds in longest]
        found.append(REMEDY)
    return found


def main() -> int:
    durations = json.loads((ROOT / "tests" / "durations.json").read_text(encoding="utf-8"))
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    found = faults(durations, [file.relative_to(ROOT).as_posix() for file in tests])
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
