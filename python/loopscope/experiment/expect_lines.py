"""Statements of ``expect`` as written: about one number, or about each message or interval.

``SUBJECT.STAT OP VALUE`` is about one number, where SUBJECT is ``PATH``, ``PATH[EVENT -> EVENT]``
or ``COMPONENT/GROUP:NAME``; so are ``NAME OP VALUE`` of a value of ``measure.values`` and
``HOST.realtime.offset OP VALUE``. The others are about each message of a path or each interval
between occurrences of an event. Either may be followed by ``after TIME`` or ``between TIME and
TIME``; the latter also by ``for SHARE%`` and, each after a comma, ``no N misses in a row`` and
``at most M misses in any N``. In this order, so that there is one way to say each thing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from . import quantity
from .expect_clauses import Clauses, time_ns, written
from .grammar import ExpressionError, Unreadable, parse
from .measures import RATE, Allowed, Operator, Stat, TimeWindow
from .problem import nearest
from .statistic_names import CLOCK, is_event, spelled, subject_of, unit

Kind = Literal["time", "age", "before", "order", "complete", "symmetric", "every"]
OPERATORS: Final[tuple[Operator, ...]] = get_args(Operator)
ORDERS: Final = ("<", "<=", ">", ">=")
OF_EVENTS: Final[tuple[Stat, ...]] = (RATE, "jitter")
"""Statistics of messages at an event, and of occurrences of one."""
OF_EVERY_MESSAGE: Final = {"before": "'before'", "order": "'in order'", "complete": "'complete'"}
"""Statements about messages that all go on to the end: how each kind is written."""
AGE: Final = "age"
EVERY_HOST: Final = "hosts"
"""Stands for all hosts where a clock is expected to be right."""
UNITS: Final = {
    "ns": quantity.DURATION,
    "B": quantity.SIZE,
    "bit/s": quantity.RATE,
    "Hz": quantity.FREQUENCY,
}
"""Units of values that an expectation may scale, as in 90Mbit."""
FORM: Final = "PATH.STAT OP VALUE, such as loop.p99 < 5ms, or PATH OP TIME, such as loop < 10ms"
_FORMS_OF_MISSES: Final = "'no N misses in a row' or 'at most M misses in any N'"
_VERBS: Final = {
    "every": "COMPONENT/GROUP:NAME every TIME within TIME",
    "in order": "PATH in order",
    "complete": "PATH complete",
    "symmetric": "PATH symmetric within TIME",
}
_VERB_OF: Final = {"in_order": "in order"}
_SLIPS: Final = {"=": "==", "=<": "<=", "=>": ">=", "<>": "!=", "~=": "!=", "===": "=="}


@dataclass(frozen=True)
class NumberLine:
    """An expectation of one number; whether what it names exists is not known here.

    ``stat`` None: ``path`` is the name of a value or, of a ``clock``, of a host. Else ``path`` may
    also be an event. ``value`` is in ns where the statistic is a time.
    """

    text: str
    path: str
    hop: tuple[str, str] | None
    stat: Stat | None
    operator: Operator
    value: int | float
    clock: Literal["realtime"] | None = None
    window: TimeWindow | None = None


@dataclass(frozen=True)
class MessageLine:
    """A requirement on each message or interval; whether its names exist is not checked here.

    ``subject`` is an event where ``kind`` is ``every``, else a path. Times are in ns.
    """

    text: str
    kind: Kind
    subject: str
    hop: tuple[str, str] | None
    operator: Operator | None
    limit: int | None
    period: int | None
    allowed: Allowed
    window: TimeWindow | None


def parse_line(
    text: str, units: Mapping[str, str | None] | None = None
) -> NumberLine | MessageLine:
    """The meaning of one line. Raises ExpressionError.

    ``units`` are those of the file's values, by name; None where a value's cannot be read.
    """
    of_value = _of_value(text, units or {})
    if of_value is not None:
        return of_value
    try:
        tree = parse("expectation", text, "expectation")
    except Unreadable as error:
        raise _syntax_error(error) from None
    return _Reading(text, tree).line(units or {})


def event_of(text: str) -> str | None:
    """The event that a line is about, as written.

    None where it is about something else or cannot be read.
    """
    try:
        tree = parse("expectation", text, "expectation")
    except Unreadable:
        return None
    name = subject_of(text, tree.children[0]).name
    return name if is_event(name) else None


class _Reading:
    """One line, read from its syntax tree."""

    def __init__(self, text: str, tree: Any) -> None:
        self.written = text
        self.text = " ".join(text.split())
        self.subject = subject_of(text, tree.children[0])
        kinds = {"comparison", "every", "in_order", "complete", "symmetric", "before_slip"}
        rest: Sequence[Any] = tree.children[1:]
        self.statement = rest[0] if rest and rest[0].data in kinds else None
        self.clauses = Clauses(text, rest if self.statement is None else rest[1:])

    def line(self, units: Mapping[str, str | None]) -> NumberLine | MessageLine:
        subject, statement = self.subject, self.statement
        if subject.clock is not None:
            return self._clock(subject.clock)
        if subject.stat is None and subject.part is None and subject.name in units:
            raise ExpressionError(f"{self.written!r} is not {FORM}", f"{subject.name} < VALUE")
        if subject.before:
            if statement is not None or subject.stat is not None:
                raise ExpressionError(
                    f"{self.written!r}: nothing but clauses goes after {subject.inside!r}"
                )
            return self._message("before")
        if statement is None or (subject.stat is not None and statement.data != "comparison"):
            raise ExpressionError(f"{self.written!r} is not {FORM}")
        if statement.data == "comparison":
            return self._comparison(statement, units)
        return self._stated(statement)

    def _comparison(
        self, statement: Any, units: Mapping[str, str | None]
    ) -> NumberLine | MessageLine:
        operator, given = (
            _operator(statement.children[0]),
            written(self.written, statement.children[1]),
        )
        stat, name = self.subject.stat, self.subject.name
        if is_event(name):
            return self._of_event(operator, given)
        if stat is None or stat == AGE:
            try:
                return self._compared("time" if stat is None else "age", operator, given)
            except ExpressionError as error:
                # What is no time may be meant for a value.
                alone = stat is None and self.subject.part is None
                close = nearest(name, units) if alone else None
                raise ExpressionError(error.message, error.hint or close) from None
        known = spelled(stat)
        if known is None:
            raise ExpressionError(
                f"there is no statistic {stat!r} (they are {', '.join(get_args(Stat))}, and of "
                f"each message {AGE})",
                nearest(stat, [*get_args(Stat), "p99.9", AGE]),
            )
        return self._number(known, operator, given, f"{name} < TIME", "each message")

    def _of_event(self, operator: Operator, given: str) -> NumberLine:
        event, stat = self.subject.name, self.subject.stat
        if self.subject.part is not None or stat is None:
            raise ExpressionError(
                f"of an event the {' or the '.join(OF_EVENTS)} is compared, or it is 'every TIME "
                "within TIME'",
                f"{event}.rate",
            )
        known = next((each for each in OF_EVENTS if each == stat), None)
        if known is None:
            raise ExpressionError(
                f"there is no {stat!r} of an event (they are {', '.join(OF_EVENTS)})",
                nearest(stat, OF_EVENTS),
            )
        right = f"{event} every TIME within TIME"
        return self._number(known, operator, given, right, "each interval")

    def _number(
        self, stat: Stat, operator: Operator, given: str, right: str, each: str
    ) -> NumberLine:
        """``right`` is a statement about ``each``, which may allow misses."""
        for clause in self.clauses.names:
            if clause not in ("after", "between"):
                why = f"{self.subject.stat}, which is one number: say it of {each}"
                raise ExpressionError(f"{clause!r} does not go with {why}", right)
        value = _of_statistic(given, stat)
        subject = self.subject
        return NumberLine(
            self.text, subject.name, subject.part, stat, operator, value, window=self.clauses.window
        )

    def _compared(
        self, kind: Literal["time", "age"], operator: Operator, value: str
    ) -> MessageLine:
        """``PATH OP TIME`` and ``PATH.age OP TIME``."""
        if operator not in ORDERS:
            raise ExpressionError(
                f"each message's {kind} is compared by {' '.join(ORDERS)}: {operator} would hold "
                "by chance only"
            )
        if kind == AGE and operator not in ("<", "<="):
            raise ExpressionError("an age is bounded from above: data may always be fresher")
        limit = time_ns(value, f"a message's {kind} is a time")
        return self._message(kind, operator=operator, limit=limit)

    def _stated(self, statement: Any) -> MessageLine:
        """A statement in words."""
        subject = self.subject
        if statement.data == "before_slip":
            if not is_event(subject.name):
                raise _unknown_verb(subject.name, "before")
            right = f"PATH[{' '.join([subject.name, *map(str, statement.children)])}]"
            raise ExpressionError("which messages' events? They are those of a path", right)
        verb = _VERB_OF.get(statement.data, statement.data)
        if is_event(subject.name) != (verb == "every"):
            raise ExpressionError(f"{verb!r} is said of {_VERBS[verb].split()[0]}: {_VERBS[verb]}")
        if verb == "every":
            if len(statement.children) != 4 or subject.part is not None:
                raise ExpressionError(f"{self.written!r} should be {_VERBS[verb]}")
            given = [written(self.written, statement.children[i]) for i in (1, 3)]
            period, limit = (time_ns(each, "a period is a time") for each in given)
            if limit >= period:
                raise ExpressionError(
                    f"within {given[1]} of {given[0]} allows two at once: the tolerance is less "
                    "than the period"
                )
            return self._message("every", limit=limit, period=period)
        if verb == "symmetric":
            limit = time_ns(written(self.written, statement.children[2]), "a difference is a time")
            return self._message("symmetric", operator="<=", limit=limit)
        return self._message("order" if verb == "in order" else "complete")

    def _message(
        self,
        kind: Kind,
        operator: Operator | None = None,
        limit: int | None = None,
        period: int | None = None,
    ) -> MessageLine:
        allowed = self.clauses.allowed
        name, part = self.subject.name, self.subject.part
        window = self.clauses.window
        return MessageLine(self.text, kind, name, part, operator, limit, period, allowed, window)

    def _clock(self, what: str) -> NumberLine:
        """``HOST.CLOCK.offset OP TIME``: about a host's clock that loopscope does not keep."""
        host, clock = self.subject.name, self.subject.stat
        right = f"{host}.{CLOCK}.offset"
        if clock == "monotonic" or (clock and clock[:3] == "ptp" and clock[3:].isdecimal()):
            origin = "its host's start" if clock == "monotonic" else "whatever set it"
            raise ExpressionError(
                f"{clock} counts from {origin}, so it has no offset from another host's", right
            )
        if clock != CLOCK:
            raise ExpressionError(f"there is no clock {clock!r}: of a host, write {right}", right)
        if what != "offset":
            raise ExpressionError(f"of a clock only the offset is judged: write {right}", right)
        if self.statement is None or self.statement.data != "comparison" or self.subject.part:
            raise ExpressionError(f"{self.written!r} is not {FORM}", f"{right} < TIME")
        if self.clauses.names:
            which = self.clauses.names[0]
            raise ExpressionError(f"{which!r} does not go with the offset of a clock")
        operator, given = self.statement.children
        limit = time_ns(written(self.written, given), "an offset is a time")
        return NumberLine(self.text, host, None, None, _operator(operator), limit, CLOCK)


def _of_value(text: str, units: Mapping[str, str | None]) -> NumberLine | None:
    """``NAME OP VALUE``, where it is the name of a value: what follows is in that value's unit."""
    if not units:
        return None
    try:
        name, operator, given = parse("value_comparison", text, "expectation").children
    except Unreadable:
        return None
    if name not in units:
        return None
    value = _of_unit(str(given), units[str(name)])
    return NumberLine(" ".join(text.split()), str(name), None, None, _operator(operator), value)


def _syntax_error(error: Unreadable) -> ExpressionError:
    """Error for a line that the grammar does not allow, with the nearest valid form."""
    text = error.text
    seen = {token.type: str(token) for token in error.seen}
    words = text.split()
    row_alone = words[:1] == ["no"] and words[2:3] and words[2].startswith("miss")
    if row_alone or words[:2] == ["at", "most"]:
        return ExpressionError(
            f"{text!r} belongs to the statement before it: put quotes round the whole, because in "
            "[ ] a comma ends an item"
        )
    before = text[: error.at]
    if "COMMA" in seen:
        row = text[before.rfind(",") + 1 :].partition(",")[0].strip()
        return ExpressionError(error.located(f"{row!r} is not {_FORMS_OF_MISSES}"))
    if before.rfind("[") > before.rfind("]"):
        name = before.partition("[")[0].strip()
        return ExpressionError(
            error.located(
                f"between the brackets of {name!r} are two events: [EVENT -> EVENT] or "
                "[EVENT before EVENT]"
            )
        )
    for terminal, verb in (("EVERY", "every"), ("SYMMETRIC", "symmetric")):
        if terminal in seen:
            return ExpressionError(error.located(f"this should be {_VERBS[verb]}"))
    name, bracket, behind = before.partition("[")
    said = behind.partition("]")[2].split() if bracket else before.split()[1:]
    if said in (["in", "order"], ["complete"]):
        rest = " ".join(text[error.at :].split())
        return ExpressionError(
            error.located(f"{rest!r} does not go after {_VERBS[' '.join(said)]!r}")
        )
    verb = " ".join([*said, *text[error.at :].split()[:1]])
    if name.strip() and "." not in name and re.fullmatch("[A-Za-z ]+", verb):
        unknown = _unknown_verb(name.split()[0], verb)
        return ExpressionError(error.located(unknown.message), unknown.hint)
    return ExpressionError(error.located(f"this is not {FORM}"))


def _unknown_verb(subject: str, verb: str) -> ExpressionError:
    close = nearest(verb, _VERBS) or nearest(verb.split()[0], _VERBS)
    return ExpressionError(
        f"after {subject!r} comes a comparison or one of {', '.join(_VERBS)}: not {verb!r}", close
    )


def _operator(text: str) -> Operator:
    known = next((each for each in OPERATORS if each == text), None)
    if known is None:
        raise ExpressionError(
            f"{str(text)!r} is not a comparison (they are {' '.join(OPERATORS)})", _SLIPS.get(text)
        )
    return known


def _of_statistic(text: str, stat: Stat) -> int | float:
    """Limit of a statistic: ns, Hz, or a count."""
    if unit(stat) == "Hz":
        try:
            return float(quantity.parse(text, quantity.FREQUENCY))
        except quantity.QuantityError as error:
            message = f"{stat} is a frequency: {error.message}"
            raise ExpressionError(message, error.hint) from None
    if unit(stat) == "ns":
        return time_ns(text, f"{stat} is a time")
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    number = text[: len(text) - len(text.lstrip("0123456789"))][:18]
    raise ExpressionError(
        f"{stat} is a count: {text!r} should be a whole number without unit",
        number if number and quantity.dimension_of(text) else None,
    )


def _of_unit(text: str, unit: str | None) -> int | float:
    """Limit of a value in this unit."""
    if unit is None:
        # A mistake in the value itself is reported where that stands.
        return 0
    if unit in UNITS:
        try:
            return float(quantity.parse(text, UNITS[unit]))
        except quantity.QuantityError as error:
            raise ExpressionError(error.message, error.hint) from None
    number = text.removesuffix(unit).rstrip()
    if not quantity.is_number(number) or number.startswith("+"):
        wanted = f"a number of {unit}" if unit else "a number without unit"
        raise ExpressionError(f"{text!r} should be {wanted}")
    if unit and number == text:
        raise ExpressionError(f"{text!r} has no unit", f"{text} {unit}")
    return float(number)
