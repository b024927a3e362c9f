"""docs/guide/figures.md, command by command."""

from __future__ import annotations

import csv
import re
import shutil

import pytest
from machine import ROOT, Machine, without_kernel

from loopscope.report.canvas import RASTER_DPI, WIDTHS
from loopscope.report.catalogue import KINDS
from loopscope.report.chart import FEW
from loopscope.report.figures import KINDS as OF_TABLES

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/figures.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_table_has_every_kind() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    assert re.findall(r"`(.*?)`", " ".join(rows)) == list(KINDS)
    for kind in OF_TABLES.values():
        for name in (*kind.needs, *kind.takes, *kind.options):
            assert f"`{name}`" in PAGE, name


def test_its_figures_are_the_programs() -> None:
    assert "{one} and {two} inches".format(**WIDTHS) in PAGE
    assert f"more than {FEW} points" in PAGE and f"{RASTER_DPI} dots per inch" in PAGE


@pytest.mark.usefixtures("root")
def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    shutil.copytree(ROOT / "docs/guide/studies", home / "docs/guide/studies")
    shutil.copytree(ROOT / "experiments", home / "experiments")
    # How fast a shared machine is, and what its kernel does, is not this test's business.
    for file in ("experiments/pipeline.yaml", "docs/guide/studies/study.yaml"):
        text = without_kernel((home / file).read_text())
        (home / file).write_text(re.sub(r"p99 < \d+ms", "p99 < 30s", text))
    (home / "table.py").write_text("".join(blocks("python")))
    script = "".join(blocks("sh")) + "python table.py\n"
    machine.guide(script, timeout_s=300, forks=True)
    drawn = {file.stem for file in (home / "runs/pipeline/latest/figures").iterdir()}
    assert drawn == {
        "ccdf-loop",
        "histogram-loop",
        "scatter-loop",
        "scatter-loop-source-pipe-sent-node1-pipe-received",
        "timeline",
        "waterfall-loop",
    }
    of_sweep = {file.stem for file in (home / "runs/study/latest/figures").iterdir()}
    assert {"mean-deviation-loop", "response"} <= of_sweep
    point = home / "runs/study/latest/size=6B,period=2ms/figures"
    assert {file.stem for file in point.iterdir()} == {"ccdf-loop"}
    paper = {file.name for file in (home / "paper").iterdir()}
    assert {"scatter-loop.pdf", "scatter-loop.svg", "scatter-loop.csv", "response.pdf"} <= paper
    assert "scatter-loop.png" not in paper
    with (home / "paper/response.csv").open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert 0 < len(found) <= 1000
    assert list(found[0]) == ["time since the first (ns)", "latency (ns)", "latency err (ns)"]
