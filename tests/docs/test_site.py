"""The documentation site: it builds in strict mode, and its pages load nothing from elsewhere."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
# Attributes whose address a browser loads by itself; a link's is loaded only by a click.
LOADED = {"src", "srcset", "data", "poster"}
ELSEWHERE = re.compile(r"^\s*(https?:)?//", re.IGNORECASE)
IN_CSS = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]*)|@import\s+['\"]([^'\"]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Every warning, such as a broken link or a page without a place, fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """Collects the addresses that a page loads from another place."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        loaded = LOADED | (
            {"href"} if tag == "link" and values.get("rel") != "canonical" else set()
        )
        self.found += [
            values[name] for name in loaded & values.keys() if ELSEWHERE.match(values[name])
        ]


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text())
        assert not loads.found, f"{page.relative_to(site)} loads {loads.found}"
    for sheet in site.rglob("*.css"):
        assert not IN_CSS.search(sheet.read_text()), sheet.relative_to(site)


def test_generated_pages_have_every_command_and_key(site: Path) -> None:
    commands = (site / "reference/commands.html").read_text()
    for name in ("run", "clock-verify", "net-set"):
        assert f'id="{name}"' in commands
    assert "--junit" in commands
    keys = (site / "reference/experiment-file.html").read_text()
    for key in ("hosts", "drain", "correlation", "wander"):
        assert f"<code>{key}</code>" in keys
    steps = (site / "reference/analysis-steps.html").read_text()
    assert 'id="narrate"' in steps


def test_the_python_page_has_every_public_name(site: Path) -> None:
    import loopscope

    page = (site / "reference/python.html").read_text()
    for name in loopscope.__all__:
        assert name == "__version__" or re.search(rf'id="loopscope[\w.]*\.{name}"', page), name


def texts(folder: Path) -> Iterator[str]:
    """Every text in the Python files of a folder, with `…` for each value that is put in."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                )


def test_the_reasons_of_unknown_are_the_programs() -> None:
    page = (ROOT / "docs/guide/unknown.md").read_text()
    row = re.compile(r"^\| `([^`]+)`(?: \(values\))? \| [^|]+ \| [^|]+ \|$", re.MULTILINE)
    reasons = row.findall(page)
    said = list(texts(ROOT / "python/loopscope/analysis"))
    assert len(reasons) > 20
    for reason in reasons:
        parts = [part.strip() for part in reason.split("…")]
        assert all(any(part in text for text in said) for part in parts), reason


def test_files_that_decisions_name_exist() -> None:
    tops = (
        "bench",
        "crates",
        "docs",
        "experiments",
        "proto",
        "python",
        "schema",
        "scripts",
        "tests",
    )
    files = [str(file) for top in tops for file in (ROOT / top).rglob("*.*")]
    named = re.compile(r"`([\w.-]+/[\w./-]+\.(?:py|rs|c|h|md|proto|txt|yaml))`")
    for page in [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs/decisions").glob("*.md"))]:
        for name in named.findall(page.read_text()):
            assert any(file.endswith(f"/{name}") for file in files), f"{page.name}: no {name}"


def test_the_phases_of_a_program_are_the_modules_example() -> None:
    page = (ROOT / "docs/guide/components.md").read_text()
    [shown] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    module = (ROOT / "python/loopscope/phase.py").read_text()
    assert "".join(f"    {line}\n" if line else "\n" for line in shown.splitlines()) in module
