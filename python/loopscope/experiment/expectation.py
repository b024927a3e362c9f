"""Expectations: ``PATH.STAT OP VALUE``, ``PATH[EVENT -> EVENT].STAT OP VALUE``, of a value of
``measure.values`` ``NAME OP VALUE``, and of hosts' clocks ``HOST.realtime.offset OP VALUE``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from . import quantity
from .plan import RATE, Operator, Stat
from .problem import nearest

COUNTS = ("count", "lost", "duplicates", "superseded")
SPELLINGS: dict[str, Stat] = {**{stat: stat for stat in get_args(Stat)}, "p99.9": "p999"}
OPERATORS: tuple[Operator, ...] = get_args(Operator)

FORM = "PATH.STAT OP VALUE, such as loop.p99 < 5ms"
EVENTS = r"(?:\[\s*(?P<start>\S+?)\s*->\s*(?P<end>[^\s\]]+)\s*\])"
_LINE = re.compile(
    r"\s*(?P<path>[^\s.\[\]<>=!]+)"
    rf"{EVENTS}?"
    r"(?:\.(?P<stat>[A-Za-z0-9_]+(?:\.[0-9]+)?))?"
    r"\s*(?P<operator>[<>=!~]+)"
    r"\s*(?P<value>\S(?:.*\S)?)\s*"
)
EVERY_HOST = "hosts"
"""Stands for all hosts where a clock is expected to be right."""
CLOCK: Final = "realtime"
_OF_CLOCK = re.compile(
    r"\s*(?P<host>[^\s.\[\]<>=!]+)\.(?P<clock>[A-Za-z0-9_]+)\.(?P<what>[A-Za-z_]+)"
    r"\s*(?P<operator>[<>=!~]+)"
    r"\s*(?P<value>\S(?:.*\S)?)\s*"
)
UNITS = {
    "ns": quantity.DURATION,
    "B": quantity.SIZE,
    "bit/s": quantity.RATE,
    "Hz": quantity.FREQUENCY,
}
"""Units of values that an expectation may scale, as in 90Mbit."""
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_SLIPS = {"=": "==", "=<": "<=", "=>": ">=", "<>": "!=", "~=": "!=", "===": "=="}


class ExpectationError(ValueError):
    """A line that is no expectation. ``hint`` is a right spelling of the wrong part."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Line:
    """An expectation as written; whether its path and events exist is not known here.

    ``stat`` None: ``path`` is the name of a value or, of a ``clock``, of a host.
    """

    text: str
    path: str
    hop: tuple[str, str] | None
    stat: Stat | None
    operator: Operator
    value: int | float
    clock: Literal["realtime"] | None = None


def parse(text: str, units: Mapping[str, str | None] | None = None) -> Line:
    """Reads one line. Times are given in ns, counts as they are. Raises ExpectationError.

    ``units`` are of the file's values, by name; None where a value's cannot be read.
    """
    of_clock = _OF_CLOCK.fullmatch(text)
    if of_clock is not None:
        return _clock(text, of_clock)
    match = _LINE.fullmatch(text)
    if match is None:
        raise ExpectationError(f"{text!r} is not {FORM}")
    of_value = match["stat"] is None
    if of_value and (match["start"] or match["path"] not in (units or {})):
        close = None if match["start"] else nearest(match["path"], units or {})
        raise ExpectationError(f"{text!r} is not {FORM}", close)
    stat = None if of_value else SPELLINGS.get(match["stat"])
    if stat is None and not of_value:
        raise ExpectationError(
            f"there is no statistic {match['stat']!r} (they are {', '.join(get_args(Stat))})",
            nearest(match["stat"], SPELLINGS),
        )
    operator = _operator(match["operator"])
    hop = (match["start"], match["end"]) if match["start"] else None
    if stat is None:
        value = _of_unit(match["value"], (units or {})[match["path"]])
    else:
        value = _value(match["value"], stat)
    return Line(" ".join(text.split()), match["path"], hop, stat, operator, value)


def _clock(text: str, match: re.Match[str]) -> Line:
    """Of a host's clock, not loopscope's."""
    host, clock = match["host"], match["clock"]
    right = f"{host}.{CLOCK}.offset"
    if clock == "monotonic" or re.fullmatch(r"ptp[0-9]+", clock):
        origin = "its host's start" if clock == "monotonic" else "whatever set it"
        raise ExpectationError(
            f"{clock} counts from {origin}, so it has no offset from another host's", right
        )
    if clock != CLOCK:
        raise ExpectationError(f"there is no clock {clock!r}: of a host, write {right}", right)
    if match["what"] != "offset":
        raise ExpectationError(f"of a clock only the offset is judged: write {right}", right)
    try:
        value = quantity.parse_whole(match["value"], quantity.DURATION)
    except quantity.QuantityError as error:
        raise ExpectationError(f"an offset is a time: {error.message}", error.hint) from None
    operator = _operator(match["operator"])
    return Line(" ".join(text.split()), host, None, None, operator, value, CLOCK)


def _operator(text: str) -> Operator:
    for known in OPERATORS:
        if known == text:
            return known
    raise ExpectationError(
        f"{text!r} is not a comparison (they are {' '.join(OPERATORS)})", _SLIPS.get(text)
    )


def unit(stat: str) -> str:
    """Of a statistic; empty: it counts."""
    return "" if stat in COUNTS else "Hz" if stat == RATE else "ns"


def _value(text: str, stat: Stat) -> int | float:
    if stat == RATE:
        return _of_unit(text, unit(stat))
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


def _of_unit(text: str, unit: str | None) -> int | float:
    """What a value in this unit is compared with."""
    if unit is None:
        # A mistake in the value itself is told where that stands.
        return 0
    if unit in UNITS:
        try:
            return float(quantity.parse(text, UNITS[unit]))
        except quantity.QuantityError as error:
            raise ExpectationError(error.message, error.hint) from None
    number = text.removesuffix(unit).rstrip()
    if re.fullmatch(_NUMBER, number) is None:
        wanted = f"a number of {unit}" if unit else "a number without unit"
        raise ExpectationError(f"{text!r} should be {wanted}")
    if unit and number == text:
        raise ExpectationError(f"{text!r} has no unit", f"{text} {unit}")
    return float(number)
