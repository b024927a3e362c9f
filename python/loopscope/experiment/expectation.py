"""Expectations: ``PATH.STAT OP VALUE`` and ``PATH[EVENT -> EVENT].STAT OP VALUE``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import get_args

from . import quantity
from .plan import Operator, Stat
from .problem import nearest

COUNTS = ("count", "lost", "duplicates")
SPELLINGS: dict[str, Stat] = {**{stat: stat for stat in get_args(Stat)}, "p99.9": "p999"}
OPERATORS: tuple[Operator, ...] = get_args(Operator)

FORM = "PATH.STAT OP VALUE, such as loop.p99 < 5ms"
_LINE = re.compile(
    r"\s*(?P<path>[^\s.\[\]<>=!]+)"
    r"(?:\[\s*(?P<start>\S+?)\s*->\s*(?P<end>[^\s\]]+)\s*\])?"
    r"\.(?P<stat>[A-Za-z0-9_]+(?:\.[0-9]+)?)"
    r"\s*(?P<operator>[<>=!~]+)"
    r"\s*(?P<value>\S(?:.*\S)?)\s*"
)
_SLIPS = {"=": "==", "=<": "<=", "=>": ">=", "<>": "!=", "~=": "!=", "===": "=="}


class ExpectationError(ValueError):
    """A line that is no expectation. ``hint`` is a right spelling of the wrong part."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Line:
    """An expectation as written; whether its path and events exist is not known here."""

    text: str
    path: str
    hop: tuple[str, str] | None
    stat: Stat
    operator: Operator
    value: int


def parse(text: str) -> Line:
    """Reads one line. Times are given in ns, counts as they are. Raises ExpectationError."""
    match = _LINE.fullmatch(text)
    if match is None:
        raise ExpectationError(f"{text!r} is not {FORM}")
    stat = SPELLINGS.get(match["stat"])
    if stat is None:
        raise ExpectationError(
            f"there is no statistic {match['stat']!r} (they are {', '.join(get_args(Stat))})",
            nearest(match["stat"], SPELLINGS),
        )
    operator = next((known for known in OPERATORS if known == match["operator"]), None)
    if operator is None:
        raise ExpectationError(
            f"{match['operator']!r} is not a comparison (they are {' '.join(OPERATORS)})",
            _SLIPS.get(match["operator"]),
        )
    hop = (match["start"], match["end"]) if match["start"] else None
    value = _value(match["value"], stat)
    return Line(" ".join(text.split()), match["path"], hop, stat, operator, value)


def _value(text: str, stat: Stat) -> int:
    if stat not in COUNTS:
        try:
            return quantity.parse_whole(text, quantity.DURATION)
        except quantity.QuantityError as error:
            raise ExpectationError(f"{stat} is a time: {error.message}", error.hint) from None
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    number = re.match(r"[0-9]{1,18}", text)
    raise ExpectationError(
        f"{stat} is a count: {text!r} should be a whole number without unit",
        number[0] if number and quantity.dimension_of(text) else None,
    )
