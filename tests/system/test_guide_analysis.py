"""The commands of docs/guide/analysis.md, one after the other.

A run's analyses can be made again from its streams.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from machine import ROOT, Machine

pytestmark = pytest.mark.full

GUIDE = ROOT / "docs/guide/analysis"
PAGE = (ROOT / "docs/guide/analysis.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_what_the_guide_shows_is_in_its_files() -> None:
    files = [yaml.safe_load((GUIDE / name).read_text()) for name in ("loop.yaml", "own.yaml")]
    shown = [yaml.safe_load(block) for block in blocks("yaml")]
    assert len(shown) == 2
    for block, file in zip(shown, files, strict=True):
        assert block["analyse"].items() <= file["analyse"].items()
    functions = blocks("python")
    assert len(functions) == 2
    assert all(block in (GUIDE / "own.py").read_text() for block in functions)


def analysed(folder: Path) -> dict[str, bytes]:
    """Every file of a run's analyses."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.usefixtures("root")
def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    shutil.copytree(GUIDE, home / "docs/guide/analysis")
    shutil.copytree(ROOT / "experiments/graphs", home / "experiments/graphs")
    done = machine.guide("".join(blocks("sh")), timeout_s=240, forks=True)
    assert '"duration","p99",' in done.stdout
    assert "pipe.sent  id " in done.stdout
    assert '"lag","correlation"' in done.stdout
    assert len(json.loads((home / "both/graph.json").read_text())["runs"]) == 2
    latest = home / "runs/analysed/latest"
    before = analysed(latest / "analysis")
    assert {"analysed/graph.json", "own/tables/memory.csv"} <= before.keys()

    # The same from the streams alone, also where the person's own file is gone.
    shutil.rmtree(home / "docs")
    again = machine.command("report", "runs/analysed/latest")
    assert again.returncode == 0, again.stderr
    assert analysed(latest / "analysis") == before

    # Spark lives for seconds: see tests/graph/conftest.py.
    machine.environment["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Where there is no time line yet, analyse makes it.
    engines = ["duckdb"]
    if importlib.util.find_spec("pyspark") and shutil.which("java"):
        engines.append("local[2]")
    for engine in engines:
        for derived in ("timeline", "tables"):
            shutil.rmtree(latest / "base/1" / derived)
        done = machine.command("analyse", latest, "--engine", engine, "-o", f"on-{engine}")
        assert done.returncode == 0, done.stderr
        made = analysed(home / f"on-{engine}")
        definition = json.loads(made.pop("graph.json"))
        assert definition["engine"].keys() >= {"loopscope", "ibis"}
        assert made == {
            name.removeprefix("analysed/"): content
            for name, content in before.items()
            if name.startswith("analysed/") and not name.endswith("graph.json")
        }
