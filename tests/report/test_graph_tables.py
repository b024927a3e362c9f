"""Branching paths, on the terminal and on the page."""

import html
import re

import pytest
from synthetic_run import ClockStep, Host, SyntheticRun
from test_path_graph_verdicts import HELD, held
from test_terminal import plain, printed

from loopscope.analysis import analyse
from loopscope.experiment import Allowed, Expectation, Hop, Requirement
from loopscope.report import write_report
from loopscope.report.dag_rows import graph_tables
from loopscope.report.figure_source import FigureSource
from loopscope.timeline import open_run

LATE = Requirement("way.age < 5us", "age", "way", None, None, "<", 5000, None, Allowed(), None)
RATE = Expectation("way.rate > 90Hz", "way", None, "rate", ">", 90.0, False)
WAIT = Expectation("way[…].p99 < 5us", "way", Hop(1, 2), "p99", "<", 5000, True)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rows = held([0, 5000, 7000, 10_000, 50_000], [6000, 12_000, 14_000])
    made = SyntheticRun(
        tmp_path_factory.mktemp("run"),
        rows,
        [Host("h1", True, 0, 0.0)],
        paths=[HELD],
        expect=[LATE, RATE, WAIT],
        clock_steps=[ClockStep("h1", ns=(10**6, 10**6))],
    )
    return open_run(made.write())


@pytest.fixture(scope="module")
def results(run):
    return analyse(run)


def test_ends_come_first_and_every_edge_has_its_row(results):
    [table] = graph_tables(results)
    labels = [row.label for row in table.rows]
    assert labels == [
        "source/a:sent → control/b:step",
        "  source/a:sent → control/a:received",
        "  control/a:received → control/b:step",
    ]
    assert [row.cells[0].text for row in table.rows] == ["", "id", "latest by time"]
    end = dict(zip(table.headings, table.rows[0].cells, strict=True))
    counts = ("sent", "used", "superseded", "lost", "unused")
    assert [end[name].value for name in counts] == [5, 2, 2, 0, 1]
    assert end["age"].value == 5000 and "undecided" not in end and "dupl." not in end
    for head, cell in end.items():
        assert cell.text or head == "uses"


def test_a_graph_of_one_beginning_and_end_goes_by_its_name(run, results):
    source = FigureSource(run.path)
    hop = "way[source/a:sent -> control/a:received]"
    use = "way[control/a:received -> control/b:step]"
    mine = {name for name in source.subjects if name.startswith("way")}
    assert mine == {"way", "way.age", hop, use, use + ".age"}
    [flow] = results.graphs[0].ends
    assert max(source.samples("way").table["value"].to_pylist()) == flow.times["max"]
    assert max(source.samples("way.age").table["value"].to_pylist()) == flow.age_ns == 5000


def test_terminal_and_page_say_the_same(run, results):
    [table] = graph_tables(results)
    lines = plain(printed(results)).splitlines()
    start = lines.index("Path way")
    assert re.split(r"\s{2,}", lines[start + 1].strip()) == list(table.headings)
    for line, row in zip(lines[start + 2 :], table.rows, strict=False):
        assert line.startswith(row.label)
        cells = [cell.text for cell in row.cells if cell.text]
        assert re.split(r"\s{2,}", line[len(row.label) :].strip()) == cells
    page = write_report(run, results).read_text()
    [shown] = re.findall(r'<table id="graph-way">(.*?)</table>', page, re.S)
    cells = [html.unescape(each) for each in re.findall(r"<td[^>]*>(.*?)</td>", shown)]
    assert cells == [cell.text for row in table.rows for cell in row.cells]
    assert results.to_dict()["graphs"]["way"]["ends"][0]["superseded"] == 2


def test_what_was_expected_has_its_unit(results):
    said = printed(results)
    assert "FAIL" in said and re.search(r"way\.age < 5us +2 met, 1 missed", said)
    assert "5.000 µs" in said
    assert re.search(r"PASS +way\.rate > 90Hz\s+[0-9.]+ kHz", said), said
    assert [str(each.verdict) for each in results.expectations] == ["FAIL", "PASS", "PASS"]
