"""Verdicts as JUnit's XML, which CI systems read: one test case per expectation.

A FAIL is a failure. An UNKNOWN, and a run or a point that failed, is an error: never a pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from loopscope.analysis import Results, SweepResults
from loopscope.report.verdict_rows import verdict_rows

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def write_junit(path: Path, results: Results | SweepResults) -> None:
    """Raises OSError."""
    root = ElementTree.Element("testsuites", name=_experiment(results))
    if isinstance(results, SweepResults):
        for point in results.points:
            suite = _suite(root, f"{_experiment(results)}[{point.name}]")
            if point.error is not None:
                _case(suite, "run", "ERROR", point.error)
            elif point.results is not None:
                _judged(suite, point.results)
    else:
        _judged(_suite(root, _experiment(results)), results)
    _write(path, root)


def write_junit_of_failure(path: Path, experiment: str, why: str) -> None:
    """Writes the JUnit file of a run that gave no results. Raises OSError."""
    root = ElementTree.Element("testsuites", name=experiment)
    _case(_suite(root, experiment), "run", "ERROR", why)
    _write(path, root)


def _experiment(results: Results | SweepResults) -> str:
    return results.experiment.name if isinstance(results, SweepResults) else results.experiment


def _suite(root: Element, name: str) -> Element:
    return ElementTree.SubElement(root, "testsuite", name=name)


def _judged(suite: Element, results: Results) -> None:
    for row in verdict_rows(results):
        _case(suite, row.expectation, str(row.verdict), row.summary)


def _case(suite: Element, name: str, verdict: str, said: str) -> None:
    # XML has no place for control characters, which a program's last words may have.
    said = "".join(char if char.isprintable() or char in "\n\t" else "�" for char in said)
    case = ElementTree.SubElement(suite, "testcase", classname=suite.get("name", ""), name=name)
    if verdict == "PASS":
        if said:
            ElementTree.SubElement(case, "system-out").text = said
    elif verdict == "FAIL":
        ElementTree.SubElement(case, "failure", message=said, type=verdict)
    else:
        ElementTree.SubElement(case, "error", message=said, type=verdict)


def _write(path: Path, root: Element) -> None:
    for suite in (root, *root):
        cases = list(suite.iter("testcase"))
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        suite.set("errors", str(sum(case.find("error") is not None for case in cases)))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    path.write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n', encoding="utf-8")
