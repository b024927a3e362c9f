"""Stores how long each test file takes in tests/durations.json, from pytest's JUnit files.

Without arguments it reads build/pytest.xml, which `make test` writes. tests/conftest.py has the
longest files begin first, so that no worker is left with one at the end.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent


def durations(reports: list[Path]) -> dict[str, float]:
    """Seconds of each test file, the longest first."""
    seconds: Counter[str] = Counter()
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            # A test in a class has the class' name behind the module's.
            parts = case.attrib["classname"].split(".")
            while parts and not ROOT.joinpath(*parts).with_suffix(".py").is_file():
                parts.pop()
            if parts:
                seconds["/".join(parts) + ".py"] += float(case.attrib["time"])
    return {file: round(time, 1) for file, time in seconds.most_common()}


def main() -> None:
    reports = [Path(word) for word in sys.argv[1:]] or [ROOT / "build" / "pytest.xml"]
    text = json.dumps(durations(reports), indent=2)
    (ROOT / "tests" / "durations.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
