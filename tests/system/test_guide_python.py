"""docs/guide/python.md and docs/guide/pytest.md, as a reader would run them."""

from __future__ import annotations

import re
import shutil

import pytest
from machine import ROOT, Machine

from loopscope.extras import EXTRAS, remedy

pytestmark = pytest.mark.full


def blocks(page: str, language: str) -> list[str]:
    """The page's fenced blocks of a language."""
    text = (ROOT / "docs/guide" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def home(root: None, machine: Machine) -> Machine:
    """With the shipped pipeline; how fast a shared machine is, is not this test's business."""
    shutil.copytree(ROOT / "experiments", machine.directory / "experiments")
    file = machine.directory / "experiments/pipeline.yaml"
    file.write_text(re.sub(r"p99 < \d+ms", "p99 < 30s", file.read_text()))
    return machine


def test_the_script(home: Machine) -> None:
    home.write("script.py", "".join(blocks("python.md", "python")))
    done = home.guide(". .venv/bin/activate\n", "python script.py\n")
    assert "PASS loop.p99 < 30s" in done.stdout and "name: strict" in done.stdout
    assert (home.directory / "figures/waterfall-loop.svg").exists()
    assert (home.directory / "runs/strict/latest/report.html").exists()


def test_the_tests(home: Machine) -> None:
    [program] = blocks("pytest.md", "python")
    home.write("test_loop.py", program)
    home.environment["PYTEST_PLUGINS"] = "loopscope.pytest_plugin"
    done = home.guide(". .venv/bin/activate\n", *blocks("pytest.md", "sh"))
    assert "2 passed" in done.stdout
    runs = [run for run in home.directory.glob("runs/pipeline/*") if not run.is_symlink()]
    assert len(runs) == 1


def test_the_extras_are_the_packages() -> None:
    page = (ROOT / "docs/guide/python.md").read_text()
    for extra, _ in EXTRAS.values():
        assert f"`{remedy(extra)}`" in page
