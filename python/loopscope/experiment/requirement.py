"""Statements about each message of a path, or each interval between occurrences of an event."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from . import quantity
from .clause import Clauses, ExpectationError
from .measures import Allowed, Operator, TimeWindow
from .problem import nearest

Kind = Literal["time", "age", "before", "order", "complete", "symmetric", "every"]
AGE: Final = "age"
ORDERS: Final = ("<", "<=", ">", ">=")
OF_EVERY_MESSAGE: Final = {"before": "'before'", "order": "'in order'", "complete": "'complete'"}
"""What is said of messages that all go on to the end, by kind, and how."""
_VERBS: Final = {
    "every": "COMPONENT/GROUP:NAME every TIME within TIME",
    "in order": "PATH in order",
    "complete": "PATH complete",
    "symmetric": "PATH symmetric within TIME",
}
_PERIODIC = re.compile(r"every\s+(?P<period>\S+(?:\s\S+)??)\s+within\s+(?P<limit>\S.*)")
_SYMMETRIC = re.compile(r"symmetric\s+within\s+(?P<limit>\S.*)")


@dataclass(frozen=True)
class RequirementLine:
    """A requirement as written; whether its path, events and component exist is not known here.

    Of ``every`` ``subject`` is an event, else a path.
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


def is_event(name: str) -> bool:
    """Whether this is written as an event, ``component/group:name``, and not as a path."""
    return "/" in name


def compared(
    text: str,
    subject: str,
    hop: tuple[str, str] | None,
    kind: Literal["time", "age"],
    operator: Operator,
    value: str,
    clauses: Clauses,
) -> RequirementLine:
    """``PATH OP TIME`` and ``PATH.age OP TIME``."""
    if operator not in ORDERS:
        raise ExpectationError(
            f"each message's {kind} is compared by {' '.join(ORDERS)}: {operator} would hold by "
            "chance only"
        )
    if kind == AGE and operator not in ("<", "<="):
        raise ExpectationError("an age is bounded from above: data may always be fresher")
    limit = _time(value, f"a message's {kind}")
    return _line(text, kind, subject, hop, clauses, operator=operator, limit=limit)


def before(text: str, path: str, events: tuple[str, str], clauses: Clauses) -> RequirementLine:
    """``PATH[EVENT before EVENT]``."""
    return _line(text, "before", path, events, clauses)


def stated(
    text: str, subject: str, hop: tuple[str, str] | None, rest: str, clauses: Clauses
) -> RequirementLine | None:
    """A statement in words: ``rest`` is what follows its subject. None where it is none."""
    words = rest.split()
    if not words:
        return None
    if words[0] == "before" and is_event(subject):
        right = f"PATH[{' '.join([subject, *words])}]"
        raise ExpectationError("which messages' events? They are those of a path", right)
    verb = " ".join(words[:2]) if words[0] == "in" else words[0]
    if verb not in _VERBS:
        close = nearest(verb, _VERBS) or nearest(words[0], _VERBS)
        if not re.fullmatch("[A-Za-z ]+", verb):
            return None
        raise ExpectationError(
            f"after {subject!r} comes a comparison or one of {', '.join(_VERBS)}: not {verb!r}",
            close,
        )
    if is_event(subject) != (verb == "every"):
        raise ExpectationError(f"{verb!r} is said of {_VERBS[verb].split()[0]}: {_VERBS[verb]}")
    if verb == "every":
        match = _PERIODIC.fullmatch(rest)
        if match is None or hop is not None:
            raise ExpectationError(f"{text!r} should be {_VERBS[verb]}")
        period, limit = (_time(match[part], "a period") for part in ("period", "limit"))
        if limit >= period:
            raise ExpectationError(
                f"within {match['limit']} of {match['period']} allows two at once: the tolerance "
                "is less than the period"
            )
        return _line(text, "every", subject, None, clauses, limit=limit, period=period)
    if verb == "symmetric":
        match = _SYMMETRIC.fullmatch(rest)
        if match is None:
            raise ExpectationError(f"{text!r} should be {_VERBS[verb]}")
        limit = _time(match["limit"], "a difference")
        return _line(text, "symmetric", subject, hop, clauses, operator="<=", limit=limit)
    if rest.split() != verb.split():
        extra = " ".join(words[len(verb.split()) :])
        raise ExpectationError(f"{extra!r} does not go after {_VERBS[verb]!r}")
    return _line(text, "order" if verb == "in order" else "complete", subject, hop, clauses)


def _line(
    text: str,
    kind: Kind,
    subject: str,
    hop: tuple[str, str] | None,
    clauses: Clauses,
    operator: Operator | None = None,
    limit: int | None = None,
    period: int | None = None,
) -> RequirementLine:
    given = (clauses.allowed, clauses.window)
    return RequirementLine(text, kind, subject, hop, operator, limit, period, *given)


def _time(text: str, what: str) -> int:
    try:
        return quantity.parse_whole(text, quantity.DURATION)
    except quantity.QuantityError as error:
        raise ExpectationError(f"{what} is a time: {error.message}", error.hint) from None
