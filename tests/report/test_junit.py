"""What a CI system reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from synthetic_run import pipeline
from test_patterns import ONE as PATTERN
from test_patterns import good, measured
from test_sweep import sweep_of
from typer.testing import CliRunner

from loopscope.analysis import analyse, analyse_sweep
from loopscope.analysis.verdict import Verdict
from loopscope.cli import app
from loopscope.cli.run import _write_junit
from loopscope.report.junit import write_junit, write_junit_of_failure
from loopscope.timeline import open_run

KINDS = {None: "PASS", "failure": "FAIL", "error": "UNKNOWN"}


def verdicts(path: Path) -> dict[str, str]:
    """The verdict of each test case; checks that the numbers agree."""
    root = ElementTree.parse(path).getroot()
    found = {}
    for suite in root:
        kinds = []
        for case in suite:
            kind = next((child.tag for child in case if child.tag != "system-out"), None)
            kinds.append(kind)
            found[case.get("classname") + ": " + case.get("name")] = KINDS[kind]
        numbers = [suite.get(name) for name in ("tests", "failures", "errors")]
        assert numbers == [str(len(kinds)), *(str(kinds.count(k)) for k in ("failure", "error"))]
    assert root.get("tests") == str(len(found))
    return found


def test_every_expectation_is_a_case_with_its_verdict(tmp_path: Path) -> None:
    results = analyse(open_run(pipeline(tmp_path / "run", messages=300, lose_every=100).write()))
    unknown = replace(results.expectations[0], text="other", verdict=Verdict.UNKNOWN)
    results = replace(results, expectations=(*results.expectations, unknown))
    write_junit(tmp_path / "out.xml", results)
    wanted = {
        f"{results.experiment}: {each.text}": str(each.verdict) for each in results.expectations
    }
    assert verdicts(tmp_path / "out.xml") == wanted
    assert set(wanted.values()) == {"PASS", "FAIL", "UNKNOWN"}


def test_targets_of_message_tables_are_cases(tmp_path: Path) -> None:
    results = measured(good(), tmp_path, PATTERN)
    write_junit(tmp_path / "out.xml", results)
    assert results.patterns
    judged = [row for of in results.patterns for row in of.rows if row.verdict is not None]
    assert sorted(verdicts(tmp_path / "out.xml").values()) == sorted(str(r.verdict) for r in judged)


def test_each_point_of_a_sweep_is_a_suite(tmp_path: Path) -> None:
    root, _ = sweep_of(tmp_path / "sweep", failed=[2], limits=(10**6, 10**6, 5))
    write_junit(tmp_path / "out.xml", analyse_sweep(root))
    found = {name.partition("[")[2]: each for name, each in verdicts(tmp_path / "out.xml").items()}
    case = "loop.p99 < x"
    assert found == {
        f"delay=1us]: {case}": "PASS",
        "delay=2us]: run": "UNKNOWN",
        f"delay=3us]: {case}": "FAIL",
    }


def test_a_failed_run_is_an_error_whatever_it_said(tmp_path: Path) -> None:
    write_junit_of_failure(tmp_path / "out.xml", "own", 'node1 <ended> with "\x1b[31m\x00" & 1')
    assert verdicts(tmp_path / "out.xml") == {"own: run": "UNKNOWN"}
    message = ElementTree.parse(tmp_path / "out.xml").find(".//error").get("message")
    assert message == 'node1 <ended> with "\ufffd[31m\ufffd" & 1'


def test_a_place_that_is_not_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "name: own\nhosts: [h1]\ncomponents:\n  a: {host: h1, run: 'true'}\n"
        "phases: [{name: run, timeout: 1s}]\n"
    )
    done = CliRunner().invoke(app, ["run", str(file), "--junit", str(tmp_path / "no/out.xml")])
    assert done.exit_code == 2 and "there is no such folder" in done.stderr


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        "name: e\nhosts: [h1]\ncomponents: {a: {host: h1, run: 'true', ready: {exit: 0}}}\n"
        "phases: [{name: run, timeout: 5s}]\n"
    )
    for place, said in ((tmp_path, "this is a folder"), (tmp_path / "no/x", "no such folder")):
        done = CliRunner().invoke(app, ["run", str(file), "--junit", str(place)])
        assert done.exit_code == 2 and said in done.stderr, done.output
    # A pass that a CI system cannot read is none, and what the run said is not lost.
    told = _write_junit(tmp_path / "e.yaml" / "x", "e", "it failed")
    assert told is False
