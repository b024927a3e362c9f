"""Expectations, one line each: of one number, or what each message has to meet.

``SUBJECT.STAT OP VALUE`` is about one number, where SUBJECT is ``PATH``, ``PATH[EVENT -> EVENT]``
or ``COMPONENT/GROUP:NAME``; so are ``NAME OP VALUE`` of a value of ``measure.values`` and
``HOST.realtime.offset OP VALUE``. What each message has to meet is in ``requirement``, what may
follow either in ``clause``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from . import clause, quantity, requirement
from .clause import Clauses, ExpectationError
from .measures import RATE, Operator, Stat, TimeWindow
from .problem import nearest
from .requirement import RequirementLine

COUNTS = ("count", "sent", "received", "lost", "duplicates", "superseded")
SPELLINGS: dict[str, Stat] = {**{stat: stat for stat in get_args(Stat)}, "p99.9": "p999"}
OF_EVENTS: tuple[Stat, ...] = (RATE, "jitter")
"""Of messages at an event, and of occurrences of one."""
OPERATORS: tuple[Operator, ...] = get_args(Operator)

FORM = "PATH.STAT OP VALUE, such as loop.p99 < 5ms, or PATH OP TIME, such as loop < 10ms"
_SUBJECT = re.compile(
    r"\s*(?P<name>[^\s.,\[\]<>=!~]+)"
    r"(?:\[(?P<inside>[^\]]*)\])?"
    r"(?:\.(?P<stat>[A-Za-z0-9_]+(?:\.[0-9]+)?))?"
    r"(?P<rest>[\s<>=!~,].*|)",
    re.DOTALL,
)
_INSIDE = re.compile(r"\s*(?P<start>\S+?)\s*(?P<how>->|\sbefore\s)\s*(?P<end>\S+)\s*")
_COMPARISON = re.compile(r"(?P<operator>[<>=!~]+)\s*(?P<value>\S(?:.*\S)?)\s*")
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


@dataclass(frozen=True)
class Line:
    """An expectation of one number as written; whether what it names exists is not known here.

    ``stat`` None: ``path`` is the name of a value or, of a ``clock``, of a host. Else ``path`` may
    also be an event.
    """

    text: str
    path: str
    hop: tuple[str, str] | None
    stat: Stat | None
    operator: Operator
    value: int | float
    clock: Literal["realtime"] | None = None
    window: TimeWindow | None = None


def parse(text: str, units: Mapping[str, str | None] | None = None) -> Line | RequirementLine:
    """Reads one line. Times are given in ns, counts as they are. Raises ExpectationError.

    ``units`` are of the file's values, by name; None where a value's cannot be read.
    """
    of_clock = _OF_CLOCK.fullmatch(text)
    if of_clock is not None:
        return _clock(text, of_clock)
    if clause.belongs_to_another(text):
        raise ExpectationError(
            f"{text!r} belongs to the statement before it: put quotes round the whole, because in "
            "[ ] a comma ends an item"
        )
    match = _SUBJECT.fullmatch(text)
    if match is None:
        raise ExpectationError(f"{text!r} is not {FORM}")
    name, stat, inside = match["name"], match["stat"], match["inside"]
    plain = _COMPARISON.fullmatch(match["rest"].strip())
    if stat is None and inside is None and name in (units or {}):
        if plain is None:
            raise ExpectationError(f"{text!r} is not {FORM}", f"{name} < VALUE")
        value = _of_unit(plain["value"], (units or {})[name])
        return Line(_tidy(text), name, None, None, _operator(plain["operator"]), value)
    statement, clauses = clause.split(_tidy(text[: match.start("rest")]), match["rest"])
    hop, before = _hop(name, inside)
    tidy = _tidy(text)
    if before:
        if statement or stat:
            raise ExpectationError(f"{text!r}: nothing but clauses goes after {match['inside']!r}")
        assert hop is not None
        return requirement.before(tidy, name, hop, clauses)
    comparison = _COMPARISON.fullmatch(statement)
    if comparison is None:
        said = None if stat else requirement.stated(tidy, name, hop, statement, clauses)
        if said is None:
            raise ExpectationError(f"{text!r} is not {FORM}")
        return said
    operator, given = _operator(comparison["operator"]), comparison["value"]
    if requirement.is_event(name):
        return _of_event(tidy, name, hop, stat, operator, given, clauses)
    if stat is None or stat == requirement.AGE:
        kind: Literal["time", "age"] = "time" if stat is None else "age"
        try:
            return requirement.compared(tidy, name, hop, kind, operator, given, clauses)
        except ExpectationError as error:
            # What is no time may be meant for a value.
            close = nearest(name, units or {}) if stat is None and inside is None else None
            raise ExpectationError(error.message, error.hint or close) from None
    known = SPELLINGS.get(stat)
    if known is None:
        raise ExpectationError(
            f"there is no statistic {stat!r} (they are {', '.join(get_args(Stat))}, and of each "
            f"message {requirement.AGE})",
            nearest(stat, [*SPELLINGS, requirement.AGE]),
        )
    clauses.refuse_misses(f"{stat}, which is one number: say it of each message", f"{name} < TIME")
    return Line(tidy, name, hop, known, operator, _value(given, known), window=clauses.window)


def event_of(text: str) -> str | None:
    """The event that a line is about, as written; None where it is about something else."""
    match = _SUBJECT.fullmatch(text)
    return match["name"] if match and requirement.is_event(match["name"]) else None


def _hop(name: str, inside: str | None) -> tuple[tuple[str, str] | None, bool]:
    """The two events between the brackets, and whether they are ``EVENT before EVENT``."""
    if inside is None:
        return None, False
    match = _INSIDE.fullmatch(inside)
    if match is None:
        raise ExpectationError(
            f"between the brackets of {name!r} are two events: [EVENT -> EVENT] or "
            "[EVENT before EVENT]"
        )
    return (match["start"], match["end"]), match["how"] != "->"


def _of_event(
    text: str,
    event: str,
    hop: tuple[str, str] | None,
    stat: str | None,
    operator: Operator,
    given: str,
    clauses: Clauses,
) -> Line:
    if hop is not None or stat is None:
        raise ExpectationError(
            f"of an event the {' or the '.join(OF_EVENTS)} is compared, or it is 'every TIME "
            "within TIME'",
            f"{event}.rate",
        )
    known = next((each for each in OF_EVENTS if each == stat), None)
    if known is None:
        raise ExpectationError(
            f"there is no {stat!r} of an event (they are {', '.join(OF_EVENTS)})",
            nearest(stat, OF_EVENTS),
        )
    clauses.refuse_misses(
        f"{stat}, which is one number: say it of each interval", f"{event} every TIME within TIME"
    )
    return Line(text, event, None, known, operator, _value(given, known), window=clauses.window)


def _tidy(text: str) -> str:
    return " ".join(text.split())


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
    return Line(_tidy(text), host, None, None, operator, value, CLOCK)


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
    if stat not in COUNTS:
        try:
            if stat == RATE:
                return float(quantity.parse(text, quantity.FREQUENCY))
            return quantity.parse_whole(text, quantity.DURATION)
        except quantity.QuantityError as error:
            what = "frequency" if stat == RATE else "time"
            raise ExpectationError(f"{stat} is a {what}: {error.message}", error.hint) from None
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
