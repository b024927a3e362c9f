"""Expectations of an experiment, and their verdicts by the measurement."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from loopscope.experiment import Expectation

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Bracket


class Verdict(str, Enum):
    """PASS and FAIL hold at every value that the measurement allows; UNKNOWN is the rest."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"

    def __str__(self) -> str:
        return self.value


def judge(expectation: Expectation, measured: Bracket) -> Verdict:
    """PASS if it holds everywhere in the bracket, FAIL if nowhere, else UNKNOWN."""
    if _holds_throughout(expectation.op, expectation.value, measured):
        return Verdict.PASS
    if _holds_throughout(_NEGATION[expectation.op], expectation.value, measured):
        return Verdict.FAIL
    return Verdict.UNKNOWN


def _holds_throughout(op: str, value: int | float, measured: Bracket) -> bool:
    lower, upper, compare = measured.lower, measured.upper, _OPERATORS[op]
    if op == "==":
        return lower == upper == value
    if op == "!=":
        return value < lower or (upper is not None and upper < value)
    if op in ("<", "<="):
        return upper is not None and compare(upper, value)
    return compare(lower, value)


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NEGATION = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def overall(verdicts: list[Verdict]) -> Verdict | None:
    """FAIL if one is, else UNKNOWN if one is, else PASS; None where nothing was expected."""
    for worst in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS):
        if worst in verdicts:
            return worst
    return None
