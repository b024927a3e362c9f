"""Verdicts as errors of a test, and as HTML of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from loopscope.analysis import Results, Verdict
from loopscope.analysis.quantity_text import duration
from loopscope.report.verdict_rows import VerdictRow, verdict_rows

COLOURS = {Verdict.PASS: "#1a7f37", Verdict.FAIL: "#cf222e", Verdict.UNKNOWN: "#9a6700"}


class ExpectationsFailed(AssertionError):
    """At least one expectation of a run is FAIL. The text names each, its cause and the report."""


class ExpectationsUnknown(AssertionError):
    """No expectation of a run is FAIL, and at least one is UNKNOWN, or none was stated.

    The text says why.
    """


def assert_passed(title: str, judged: Sequence[tuple[str, Results]], report: Path) -> None:
    """Raises ExpectationsFailed or ExpectationsUnknown unless every verdict is PASS.

    ``judged`` has the results of each point by its name, which is empty without a sweep.
    """
    __tracebackhide__ = True
    verdicts = {results.verdict for _, results in judged}
    if verdicts == {Verdict.PASS}:
        return
    lines = []
    for point, results in judged:
        if results.verdict is not Verdict.PASS:
            lines += [f"{point}:"] if point else []
            lines += _explanations(results)
    where = report.as_uri() if report.exists() else f"none; make it: loopscope report {title}"
    worst = Verdict.FAIL if Verdict.FAIL in verdicts else Verdict.UNKNOWN
    text = "\n".join([f"{title}: {worst}", *lines, f"report: {where}"])
    raise (ExpectationsFailed if worst is Verdict.FAIL else ExpectationsUnknown)(text)


def _explanations(results: Results) -> list[str]:
    """The expectations that are not PASS, and what the run says of their causes."""
    rows = [row for row in verdict_rows(results) if row.verdict is not Verdict.PASS]
    lines = []
    for row in rows:
        reason = f" ({row.reason})" if row.reason else ""
        lines.append(f"  {row.verdict!s:<7}  {row.expectation}: {row.measured}{reason}")
        lines += [f"           {row.cases}"] if row.cases else []
    if results.verdict is None:
        lines.append("  UNKNOWN  the experiment states no expectation: give expect")
    lines += [f"  cause    {line}" for line in slowest_hops(results, rows)]
    return lines + [f"  problem  {problem}" for problem in results.problems]


def slowest_hops(results: Results, rows: Iterable[VerdictRow]) -> list[str]:
    """For each path that one of these expectations is about, the hop with the greatest p99."""
    texts = [row.expectation for row in rows]
    lines = []
    for path in results.paths:
        whole = path.loop.times["p99"]
        hops = [hop for hop in path.hops if hop.times["p99"] is not None]
        if whole is None or not hops or not any(_is_about(text, path.name) for text in texts):
            continue
        slowest = max(hops, key=lambda hop: hop.times["p99"] or 0)
        p99 = duration(slowest.times["p99"] or 0)
        lines.append(
            f"the slowest hop of {path.name} is {slowest.first} → {slowest.last}: "
            f"p99 {p99}, of the whole path {duration(whole)}"
        )
    return lines


def _is_about(expectation: str, path: str) -> bool:
    rest = expectation.lstrip().removeprefix(path)
    return rest != expectation.lstrip() and not (rest[:1].isalnum() or rest[:1] in ("_", "-", "/"))


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str | Verdict | None]]) -> str:
    """A table of texts, which are escaped; a verdict has its colour."""
    head = "".join(f"<th style='text-align:left'>{escape(each)}</th>" for each in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(content: str | Verdict | None) -> str:
    style = "text-align:left"
    if isinstance(content, Verdict):
        style += f";font-weight:bold;color:{COLOURS[content]}"
    return f"<td style='{style}'>{escape(str(content or ''))}</td>"


def html_lines(*lines: str) -> str:
    """Paragraphs of these texts, which are escaped; empty ones are left out."""
    return "".join(f"<div>{escape(line)}</div>" for line in lines if line)


def expectation_html(results: Results) -> str:
    """The table of verdicts."""
    rows = verdict_rows(results)
    if not rows:
        return html_lines("nothing was expected")
    return html_table(
        ("verdict", "expectation", "measured", ""),
        [(row.verdict, row.expectation, row.measured, row.reason) for row in rows],
    )
