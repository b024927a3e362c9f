"""The cases of `crates/ctf/tests/specification.txt`, by `import` and by babeltrace2."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tables import loopscope_import

from loopscope import _native

TESTS = Path(__file__).resolve().parents[2] / "crates" / "ctf" / "tests"
TYPES = json.loads(
    # The Rust string has the same escapes as one of JSON, but for lines that go on.
    '"'
    + re.search(  # type: ignore[union-attr]
        r'const TYPES: &str = "\\\n(.*?)";',
        (TESTS / "all" / "specification.rs").read_text(),
        re.DOTALL,
    )
    .group(1)
    .replace("\n", "\\n")
    + '"'
)


def metadata(text: str) -> str:
    text = text.replace("⏎", "\n").replace("␀", "\0")
    kind, _, rest = text.partition(" ")
    if kind == "!":
        return rest
    if kind == ":":
        text = f"event {{ name = e; fields := struct {{ {rest} }}; }};"
    trace = "trace { major = 1; minor = 8; byte_order = le; };\n" if kind != "%" else ""
    return f"/* CTF 1.8 */\n{TYPES}{trace}{rest if kind == '%' else text}"


def cases() -> list[tuple[str, str, str]]:
    found = []
    for line in (TESTS / "specification.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            text, _, message = line[8:].partition("  => ")
            found.append((line[:8].strip(), text, message))
    return found


def write(place: Path, text: str) -> Path:
    place.mkdir()
    (place / "metadata").write_text(metadata(text), encoding="utf-8")
    return place


@pytest.mark.skipif(shutil.which("babeltrace2") is None, reason="SKIPPED LOUDLY: needs babeltrace2")
def test_babeltrace2_reads_what_is_read_with_a_warning(tmp_path: Path) -> None:
    def differs(case: tuple[int, tuple[str, str, str]]) -> str | None:
        number, (verdict, text, _) = case
        trace = write(tmp_path / str(number), text)
        theirs = subprocess.run(["babeltrace2", trace], capture_output=True, check=False)
        expected = verdict.startswith("refuse") == verdict.endswith("!")
        return None if (theirs.returncode == 0) == expected else f"{verdict} {text}"

    with ThreadPoolExecutor(2) as pool:
        assert [each for each in pool.map(differs, enumerate(cases())) if each] == []


def test_import_warns_and_refuses(tmp_path: Path) -> None:
    wrong = []
    for number, (verdict, text, message) in enumerate(cases()):
        trace = write(tmp_path / str(number), text)
        try:
            problems = json.loads(_native.import_ctf(trace, None, lambda *_: None))["problems"]
        except ValueError as error:
            found, shown = "refuse", [str(error)]
        else:
            shown = [each for each in problems if "against" in each or "forbids" in each]
            found = "warn" if shown else "read"
        if found != verdict.rstrip("!") or not any(message in each for each in shown or [message]):
            wrong.append((verdict, text, shown))
    assert wrong == []


def test_a_warning_is_printed(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", ": enum : u8 { many = 300 } t;")
    done = loopscope_import(trace)
    assert done.returncode == 0
    assert done.stderr == (
        '! .: metadata line 9, column 50: "many" is 300, and an integer of 8 bits here has 0 to '
        "255 (CTF 1.8 forbids it; it was read as babeltrace2 reads it)\n"
    )
