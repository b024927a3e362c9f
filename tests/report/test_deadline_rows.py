"""Terminal, page, JUnit and JSON say the same of requirements."""

from __future__ import annotations

import html
import json
from xml.etree import ElementTree

import pytest
from synthetic_run import SECOND, Row, pipeline
from test_terminal import printed

from loopscope.analysis import Verdict, analyse
from loopscope.experiment import Allowed, Hop, MissesIn, PathEvent, Requirement, TimeWindow
from loopscope.report import write_report
from loopscope.report.junit import write_junit
from loopscope.report.rows import SHOWN, deciding, measured
from loopscope.timeline import open_run

FAIL, PASS, UNKNOWN = Verdict.FAIL, Verdict.PASS, Verdict.UNKNOWN


def wanted(text, kind, limit=None, op=None, allowed=None, **more):
    given = {"path": "loop", "hop": None, "event": None, "period_ns": None, "window": None} | more
    return Requirement(text, kind, op=op, limit_ns=limit, allowed=allowed or Allowed(), **given)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A message in ten is lost; the run goes on long enough for all to be judged."""
    run = pipeline(tmp_path_factory.mktemp("run"), messages=300, repeats=2, lose_every=10)
    run.rows = [*run.rows, Row("sink", "pipe:done", 0, 9 * SECOND, 0, "h1")]
    run.rows += [Row("sink", "pipe:done", 0, 9 * SECOND, 0, "h1", 2)]
    in_a_row = Allowed(rows=(MissesIn(1, 2),))
    run.expect = [
        wanted("loop < 1s", "time", SECOND, "<"),
        wanted("loop < 1s, no two misses in a row", "time", SECOND, "<", in_a_row),
        wanted("hop < 40us", "time", 40_000, "<", Allowed(met_ppb=500_000_000), hop=Hop(0, 1)),
        wanted("loop complete after 1min", "complete", window=TimeWindow(60 * SECOND)),
        wanted(
            "source/pipe:sent every 2ms within 1us",
            "every",
            1000,
            event=PathEvent("source", "h1", "pipe", "sent"),
            path=None,
            period_ns=2_000_000,
        ),
    ]
    results = analyse(open_run(run.write()))
    assert [each.verdict for each in results.expectations] == [FAIL, PASS, UNKNOWN, UNKNOWN, PASS]
    return open_run(run.root), results


def test_counts_and_cases_of_each(made):
    _, results = made
    lost, row, near, _, periodic = results.expectations
    assert measured(lost) == "540 met, 60 missed"
    cases = deciding(lost).split("; ")
    assert cases[0] == "id 1 of repeat 1 at 2.000 ms: lost"
    assert len(cases) == SHOWN + 1 and cases[-1] == "and 50 more"
    assert deciding(row) == "", "a PASS needs no excuse"
    assert len(row.deciding) == 60, "but its misses are in the JSON"
    assert "undecided" in measured(near)
    assert "µs ± 900 ns (undecided)" in deciding(near)
    assert measured(results.expectations[3]) == "not measured"
    assert measured(periodic) == "598 met, 0 missed"


def test_all_say_the_same(made, tmp_path):
    run, results = made
    terminal = printed(results)
    write_report(run, results)
    page = html.unescape((run.output / "report.html").read_text())
    write_junit(tmp_path / "out.xml", results)
    cases = {
        case.get("name"): case for case in ElementTree.parse(tmp_path / "out.xml").iter("testcase")
    }
    read = {each["text"]: each for each in json.loads(results.to_json())["expectations"]}
    for each in results.expectations:
        said = read[each.text]
        assert said["verdict"] == str(each.verdict)
        found = [each.text, measured(each), *filter(None, (each.reason, deciding(each)))]
        [child] = cases[each.text]
        junit = f"{each.text} {child.get('message') or child.text}"
        for text in (terminal, page, junit):
            assert all(part in text for part in found)
        if each.counts is not None:
            assert said["counts"] == each.counts.to_dict()
            assert said["measured"] == each.counts.missed
            assert [case["id"] for case in said["deciding"]] == [case.id for case in each.deciding]
            assert said["deciding_count"] == each.deciding_count
