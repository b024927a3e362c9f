"""In CI, a skip that `allowed-skips.txt` does not allow is a failure; long files come first."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Generator
from math import inf
from pathlib import Path
from typing import Any

import pytest

# Tests send Ctrl-C to programs that they start. A shell that runs the tests in the background
# ignores it, and so would they.
signal.signal(signal.SIGINT, signal.default_int_handler)

LIST = Path(__file__).with_name("allowed-skips.txt")
DURATIONS = Path(__file__).with_name("durations.json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: see scripts/durations.py.

    New files, which may be long, come before them.
    """
    seconds: Counter[str] = Counter()
    for each in json.loads(DURATIONS.read_text(encoding="utf-8")).values():
        seconds.update(each)
    root = DURATIONS.parents[1]
    files = {item: item.path.relative_to(root).as_posix() for item in items}
    items.sort(key=lambda item: -seconds[files[item]] if files[item] in seconds else -inf)
    for item in items:
        if item.get_closest_marker("full"):
            item.user_properties.append(("full", True))


def _glob(text: str) -> re.Pattern[str]:
    """In which `*` stands for anything."""
    return re.compile(".*".join(map(re.escape, text.strip().split("*"))), re.DOTALL)


def _allowed() -> list[tuple[re.Pattern[str], re.Pattern[str]]]:
    """Tests and reasons."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            test, reason, _why = line.split("|")
            found.append((_glob(test), _glob(reason)))
    return found


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    ci = os.environ.get("CI", "") not in ("", "false")
    if not ci or not report.skipped or hasattr(report, "wasxfail"):
        return
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = told.removeprefix("Skipped: ")
    for test, allowed in _allowed():
        if test.fullmatch(report.nodeid) and allowed.fullmatch(reason):
            return
    report.outcome = "failed"
    report.longrepr = (
        f"{report.nodeid} skips ({reason}), and tests/allowed-skips.txt does not allow it"
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    outcome = yield
    _judge(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, None]:
    outcome = yield
    _judge(outcome.get_result())
