"""Stores how long each test file takes in tests/durations.json, from pytest's JUnit files.

Without arguments it reads build/pytest.xml, which `make test` and `make test-all` write; the report
of a single file will do. What a report says nothing of is kept. Seconds of tests that are marked
`full` are apart from those of the core, which `make test` runs. tests/conftest.py has the longest
files begin first, so that no worker is left with one at the end; scripts/check_core.py holds the
core's sum below a budget.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "tests" / "durations.json"


def durations(reports: list[Path]) -> dict[str, Counter[str]]:
    """Seconds of each test file in the core and beyond it."""
    seconds: dict[str, Counter[str]] = {"core": Counter(), "full": Counter()}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            # A test in a class has the class' name behind the module's.
            parts = case.attrib["classname"].split(".")
            while parts and not ROOT.joinpath(*parts).with_suffix(".py").is_file():
                parts.pop()
            if parts:
                is_full = case.find("properties/property[@name='full']") is not None
                file = "/".join(parts) + ".py"
                seconds["full" if is_full else "core"][file] += float(case.attrib["time"])
    return seconds


def main() -> None:
    reports = [Path(word) for word in sys.argv[1:]] or [ROOT / "build" / "pytest.xml"]
    seconds = json.loads(STORED.read_text(encoding="utf-8"))
    found = durations(reports)
    for file in found["full"]:
        # All its tests were run: if none was of the core, none is any more.
        seconds["core"].pop(file, None)
    for kind, of in found.items():
        seconds[kind].update(of)
        here = {
            file: round(time, 1) for file, time in seconds[kind].items() if (ROOT / file).exists()
        }
        seconds[kind] = dict(sorted(here.items(), key=lambda each: -each[1]))
    STORED.write_text(json.dumps(seconds, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
