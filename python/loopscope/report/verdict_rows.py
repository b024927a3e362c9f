"""The verdicts of a run as rows of text: expectations, then the targets of patterns."""

from __future__ import annotations

from dataclasses import dataclass

from loopscope.analysis import Results, Verdict
from loopscope.report.rows import deciding, measured


@dataclass(frozen=True)
class VerdictRow:
    """The verdict of one expectation, or of one target of a pattern."""

    expectation: str
    """Text of the experiment file, such as `loop.p99 < 5ms`."""
    verdict: Verdict
    measured: str
    """The measured value and its maximum error, such as `2.507 ms ± 85 ns`; empty for a pattern."""
    reason: str
    """Why it is UNKNOWN, or which host or cause made it FAIL; else empty."""
    cases: str = ""
    """The messages that decided a FAIL or UNKNOWN; else empty."""

    @property
    def summary(self) -> str:
        """The measured value, the reason and the messages that decided, in one text."""
        return ": ".join(filter(None, (self.measured, self.reason, self.cases)))


def verdict_rows(results: Results) -> list[VerdictRow]:
    """A row for each expectation and for each target of a pattern."""
    rows = [
        VerdictRow(each.text, each.verdict, measured(each), each.reason or "", deciding(each))
        for each in results.expectations
    ]
    for pattern in results.patterns:
        for row in pattern.rows:
            if row.verdict is not None:
                name = f"{pattern.name}: {row.message_type} at {row.receiver} within its target"
                rows.append(VerdictRow(name, row.verdict, "", row.reason or ""))
    return rows
