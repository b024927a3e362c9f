"""Every text file and every text from another program has an encoding: a locale chooses none."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopscope.files import write_whole

ROOT = Path(__file__).resolve().parents[2]
TEXT = {"read_text", "write_text"}
OPENS = {"open", "fdopen", "NamedTemporaryFile", "TemporaryFile"}
PROGRAMS = {"run", "Popen", "check_output"}


def without_encoding(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        given = {each.arg: each.value for each in node.keywords}
        if "encoding" in given or None in given:
            continue
        words = [each.value for each in node.args if isinstance(each, ast.Constant)]
        words += [each.value for each in given.values() if isinstance(each, ast.Constant)]
        is_binary = any(isinstance(each, str) and "b" in each and len(each) < 4 for each in words)
        # Without a mode a temporary file is binary, and `Path.open` reads text.
        temporary = name.endswith("TemporaryFile") and not any(each == "w" for each in words)
        # A handle of the system's, or a traversable of another module.
        of_os = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in (
            "os",
            "tarfile",
        )
        reads = name in OPENS and not (is_binary or temporary or of_os)
        runs = name in PROGRAMS and "text" in given
        if name in TEXT or reads or runs:
            yield f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_no_text_without_an_encoding() -> None:
    files = [
        *(ROOT / "python" / "loopscope").rglob("*.py"),
        *(ROOT / "crates" / "trace-py" / "loopscope_trace").rglob("*.py"),
    ]
    assert files
    found = [
        each
        for file in sorted(files)
        if "_proto" not in file.parts
        for each in without_encoding(file)
    ]
    assert found == [], "\n".join(found)


def test_what_is_told_in_an_ascii_locale_is_utf8(tmp_path: Path) -> None:
    """What results have in them, and a file's own words."""
    file = tmp_path / "grüße.yaml"
    file.write_text("name: x\ndescription: '→ 5 µs'\nhosts: [h1]\nhotsts: 'µ'\n", "utf-8")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    words = [sys.executable, "-c", "from loopscope.cli import main; main()", "run", str(file)]
    done = subprocess.run([*words, "--json"], env=environment, capture_output=True, check=False)
    assert done.returncode == 2, done.stderr.decode()
    told = json.loads(done.stdout.decode())
    assert told["verdict"] is None and ".yaml: " in told["error"]
    assert [each["path"] for each in told["problems"]] and "grüße" in done.stderr.decode()


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write_whole(file, "→ 5 µs")
    assert file.read_bytes().decode("utf-8") == "→ 5 µs"
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "\ud800")
    with pytest.raises(OSError) as raised:
        write_whole(tmp_path / "none" / "results.json", "x")
    assert raised.value.filename.endswith("none/results.json")
    assert file.read_bytes().decode("utf-8") == "→ 5 µs"
