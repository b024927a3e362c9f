"""A run's page shows its analyses: the beginning of tables and logs, and the figures."""

from __future__ import annotations

import base64
import re
from html import unescape
from pathlib import Path

import pytest
from synthetic_run import pipeline, write_sweep
from typer.testing import CliRunner

from loopscope.analysis import analyse, analyse_sweep
from loopscope.cli import app
from loopscope.report import analyses, write_report
from loopscope.report import write_sweep as write_page
from loopscope.timeline import open_run

MESSAGES = 60
GRAPH = """\
analyse:
  loop: {steps: [path: loop, {plot: {kind: ccdf, columns: {x: duration}}}]}
  odd:
    from: loop
    steps: [{derive: {text: "'<i>'"}}, {EXPORT}]
  slow:
    from: loop
    steps: [{narrate: {time: start, width: start_err}}]
"""


def analysed(run: Path, form: str = "csv") -> str:
    file = run.parent / "mine.yaml"
    file.write_text(GRAPH.replace("EXPORT", f"export: {form}"))
    done = CliRunner().invoke(app, ["analyse", str(run), "--graph", str(file)])
    assert done.exit_code == 0, done.output
    return (run / "report.html").read_text()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = pipeline(tmp_path / "run", messages=MESSAGES).write()
    opened = open_run(path)
    write_report(opened, analyse(opened))
    return path


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_tables_logs_and_figures_are_in_the_page(run: Path, form: str) -> None:
    page = analysed(run, form)
    [drawn] = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    folder = run / "analysis/mine"
    assert base64.b64decode(drawn) == (folder / "figures/loop-ccdf.svg").read_bytes()
    [text] = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    log = (folder / "slow.txt").read_text()
    assert log.startswith(unescape(text)) and unescape(text).count("\n") == 20
    # A heading of the repeat and 19 messages.
    assert f"… and {MESSAGES - 19} lines more" in page
    odd = page[page.index("<h3>odd</h3>") : page.index("<h3>slow</h3>")]
    assert odd.count("<tr>") == 1 + 10 and f"… and {MESSAGES - 10} rows more" in odd
    assert odd.count("<td>&lt;i&gt;</td>") == 10 and "<i>" not in odd
    for link in re.findall(r'<a href="([^"]*)"', page):
        assert (run / link).exists()


def test_they_stand_in_place_of_those_before(run: Path) -> None:
    first = analysed(run)
    assert analysed(run) == first
    (run / "analysis/mine").rename(run / "analysis/.mine")
    analyses.fill(run)
    page = (run / "report.html").read_text()
    assert "Analysis mine" in first and "Analysis mine" not in page


def test_a_page_without_a_place_for_them_stays(run: Path) -> None:
    (run / "report.html").write_text("<p>of another version</p>")
    assert analysed(run) == "<p>of another version</p>"


def test_large_figures_are_only_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyses, "_FIGURES", 1000)
    page = analysed(run)
    assert "<img class=" not in page and "Too large for this page" in page
    assert "loop-ccdf.svg</a>" in page


def test_what_is_gone_is_told_and_the_rest_shown(run: Path) -> None:
    analysed(run)
    (run / "analysis/mine/tables/odd.csv").unlink()
    analyses.fill(run)
    page = (run / "report.html").read_text(encoding="utf-8")
    odd = page[page.index("<h3>odd</h3>") : page.index("<h3>slow</h3>")]
    assert "Its files are not all there" in odd and "odd.csv" not in odd
    assert "loop-ccdf.svg</a>" in page


def test_the_page_of_a_sweep_has_them_too(tmp_path: Path) -> None:
    points = [({"size": size}, pipeline(tmp_path / "sweep", messages=MESSAGES)) for size in (3, 4)]
    run = write_sweep(points, {})
    write_page(run, analyse_sweep(run), ())
    assert "<h3>odd</h3>" in analysed(run)
