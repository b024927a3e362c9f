"""What follows a statement of ``expect``: the time it is about, and the misses it allows.

``STATEMENT [after TIME | between TIME and TIME] [for SHARE%]`` and then, each after a comma,
``no N misses in a row`` or ``at most M misses in any N``. In this order, so that there is one way
to say each thing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from . import quantity
from .measures import Allowed, MissesIn, TimeWindow

_WORDS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_COUNT = r"(?P<{}>[0-9]+|[a-z]+)"
_IN_A_ROW = re.compile(rf"no\s+{_COUNT.format('n')}\s+miss(?:es)?\s+in\s+a\s+row")
_IN_ANY = re.compile(
    rf"at\s+most\s+{_COUNT.format('m')}\s+miss(?:es)?\s+in\s+any\s+{_COUNT.format('n')}"
)
_KEYWORD = re.compile(r"(?:^|\s)(after|between|for)(?=\s|$)")
_ROWS = re.compile(r"\s(no\s+\S+\s+miss|at\s+most\s)")
_LONGEST_ROW: Final = 1_000_000
FORMS: Final = "'no N misses in a row' or 'at most M misses in any N'"


class ExpectationError(ValueError):
    """A line that is no expectation. ``hint`` is a right spelling of the wrong part."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Clauses:
    """``given`` are their beginnings, as written."""

    window: TimeWindow | None
    allowed: Allowed
    given: tuple[str, ...]

    def refuse_misses(self, why: str, right: str) -> None:
        """Where there is nothing that could be missed. ``right`` is a statement that allows it."""
        for each in self.given:
            if each not in ("after", "between"):
                raise ExpectationError(f"{each!r} does not go with {why}", right)


def split(subject: str, text: str) -> tuple[str, Clauses]:
    """What follows a subject without its clauses, and these. Raises ExpectationError."""
    head, *rows = (part.strip() for part in text.split(","))
    if grown := _ROWS.search(head):
        at = grown.start()
        raise ExpectationError(
            f"a comma is missing before {head[at:].strip()!r}",
            _whole(subject, f"{head[:at].strip()}, {head[at:].strip()}", *rows),
        )
    statement, *parts = (part.strip() for part in _KEYWORD.split(head))
    clauses = dict(zip(parts[::2], parts[1::2], strict=True))
    in_order = sorted(parts[::2], key=lambda word: word == "for")
    if len(clauses) < len(in_order) or {"after", "between"} <= clauses.keys():
        raise ExpectationError(
            "one 'after' or 'between' is enough, and one 'for': "
            f"{' … '.join(parts[::2])} is too much"
        )
    if in_order != parts[::2]:
        right = " ".join([statement, *(f"{word} {clauses[word]}" for word in in_order)])
        raise ExpectationError(
            f"'for' comes after {in_order[0]!r}: first the time, then the share",
            _whole(subject, right, *rows),
        )
    window = None
    if "after" in clauses:
        window = TimeWindow(_time("after", clauses["after"]))
        if not window.after_ns:
            raise ExpectationError("'after 0s' is the whole run: leave it out")
    elif "between" in clauses:
        window = _between(clauses["between"])
    allowed = Allowed(
        met_ppb=_share(clauses["for"]) if "for" in clauses else None,
        rows=tuple(_row(row, _whole(subject, head)) for row in rows),
    )
    return statement, Clauses(window, allowed, (*in_order, *rows))


def belongs_to_another(text: str) -> bool:
    """Whether this is no line but what follows a comma in one."""
    return _ROWS.match(f" {text.strip()}") is not None


def _whole(subject: str, statement: str, *rows: str) -> str:
    space = " " if statement and not subject.endswith(" ") else ""
    return ", ".join([f"{subject}{space}{statement}", *rows])


def _time(word: str, text: str) -> int:
    try:
        return quantity.parse_whole(text, quantity.DURATION)
    except quantity.QuantityError as error:
        raise ExpectationError(
            f"after {word!r} comes a time: {error.message}", error.hint
        ) from None


def _between(text: str) -> TimeWindow:
    first, word, last = text.partition(" and ")
    if not word:
        raise ExpectationError(f"'between {text}' should be 'between TIME and TIME'")
    begin, end = _time("between", first.strip()), _time("and", last.strip())
    if begin >= end:
        raise ExpectationError(
            f"'between {text}' leaves no time",
            f"between {last.strip()} and {first.strip()}" if begin > end else None,
        )
    return TimeWindow(begin, end)


def _share(text: str) -> int:
    """At least so many of 10⁹."""
    number = text.removesuffix("%")
    if number == text:
        close = f"for {text}%" if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else None
        raise ExpectationError(f"'for {text}' should be a share, such as for 99.9%", close)
    try:
        ppb = quantity.parse(text, quantity.RATIO) * 1000
    except quantity.QuantityError as error:
        raise ExpectationError(f"'for {text}': {error.message}", error.hint) from None
    if ppb == 10**9:
        raise ExpectationError("'for 100%' is what a statement means without it: leave it out")
    if not 0 < ppb < 10**9:
        raise ExpectationError(f"'for {text}' is no share: it lies between 0% and 100%")
    if Fraction(ppb).denominator != 1:
        raise ExpectationError(f"'for {text}' is finer than 0.0000001%")
    return int(ppb)


def _row(text: str, head: str) -> MissesIn:
    if match := _IN_A_ROW.fullmatch(text):
        n = _count(match["n"], text)
        if n < 2:
            raise ExpectationError(
                f"{text!r} allows no miss at all, which is what a statement means without it", head
            )
        return MissesIn(n - 1, n)
    if match := _IN_ANY.fullmatch(text):
        most, of = _count(match["m"], text), _count(match["n"], text)
        if not 0 < most < of:
            why = "allows no miss at all" if most == 0 else "forbids nothing"
            raise ExpectationError(f"{text!r} {why}: M is from 1 to less than N")
        if most + 1 == of:
            raise ExpectationError(
                f"{text!r} has a plainer form", f"{head}, no {of} misses in a row"
            )
        return MissesIn(most, of)
    if _KEYWORD.match(text):
        word = text.split()[0]
        raise ExpectationError(f"no comma goes before {word!r}", f"{head} {text}")
    raise ExpectationError(f"{text!r} is not {FORMS}")


def _count(text: str, clause: str) -> int:
    if text in _WORDS:
        return 2 + _WORDS.index(text)
    if not text.isdecimal():
        raise ExpectationError(f"{text!r} in {clause!r} should be a number")
    if len(text) > 7 or int(text) > _LONGEST_ROW:
        raise ExpectationError(f"{clause!r} looks at more than {_LONGEST_ROW} in succession")
    return int(text)
