"""Clauses after a statement of ``expect``: the time that it is about, the misses that it allows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

from . import quantity
from .grammar import ExpressionError
from .measures import Allowed, MissesIn, TimeWindow

_TIMED: Final = ("after", "between", "share")
_WORDS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LONGEST_ROW: Final = 1_000_000


class Clauses:
    """The clauses of a line, whose syntax trees (`lark.Tree`) these are.

    Raises ExpressionError where some are there twice, in another order, or wrongly separated.
    """

    def __init__(self, line: str, trees: Sequence[Any]) -> None:
        self._line = line
        self._timed = {str(tree.children[0]): tree for tree in trees if tree.data in _TIMED}
        self._rows = [tree.children[1] for tree in trees if tree.data == "clause"]
        self._check_commas(trees)
        self._check_order([str(tree.children[0]) for tree in trees if tree.data in _TIMED])

    @property
    def names(self) -> list[str]:
        """Beginnings of the clauses, or their whole texts."""
        return [*self._timed, *(written(self._line, row) for row in self._rows)]

    @property
    def window(self) -> TimeWindow | None:
        """The time that the statement is about; None: the whole run."""
        if "after" in self._timed:
            window = TimeWindow(self._time("after", self._timed["after"].children[1]))
            if not window.after_ns:
                raise ExpressionError("'after 0s' is the whole run: leave it out")
            return window
        if "between" not in self._timed:
            return None
        text = written(self._line, self._timed["between"])
        times = self._timed["between"].children[1::2]
        if len(times) < 2:
            raise ExpressionError(f"{text!r} should be 'between TIME and TIME'")
        begin, end = self._time("between", times[0]), self._time("and", times[1])
        if begin >= end:
            first, last = (written(self._line, each) for each in times)
            right = f"between {last} and {first}" if begin > end else None
            raise ExpressionError(f"{text!r} leaves no time", right)
        return TimeWindow(begin, end)

    @property
    def allowed(self) -> Allowed:
        """The misses that are allowed."""
        met = None
        if "for" in self._timed:
            met = _share(written(self._line, self._timed["for"].children[1]))
        return Allowed(met_ppb=met, rows=tuple(self._misses(row) for row in self._rows))

    def _check_commas(self, trees: Sequence[Any]) -> None:
        for tree in trees:
            clause = written(self._line, tree)
            before = " ".join(self._line[: tree.meta.start_pos].split())
            if tree.data == "missing_comma_slip":
                after = " ".join(self._line[tree.meta.end_pos :].split())
                raise ExpressionError(
                    f"a comma is missing before {clause!r}", f"{before}, {clause}{after}"
                )
            if tree.data == "comma_slip":
                clause = clause.removeprefix(",").lstrip()
                raise ExpressionError(
                    f"no comma goes before {clause.split()[0]!r}", f"{before} {clause}"
                )

    def _check_order(self, given: list[str]) -> None:
        if len(self._timed) < len(given) or {"after", "between"} <= self._timed.keys():
            raise ExpressionError(
                "one 'after' or 'between' is enough, and one 'for': "
                f"{' … '.join(given)} is too much"
            )
        if given[:1] == ["for"] and len(given) > 1:
            share, time = (written(self._line, tree) for tree in self._timed.values())
            line = " ".join(self._line.split())
            raise ExpressionError(
                f"'for' comes after {given[1]!r}: first the time, then the share",
                line.replace(f"{share} {time}", f"{time} {share}"),
            )

    def _time(self, word: str, tree: Any) -> int:
        return time_ns(written(self._line, tree), f"after {word!r} comes a time")

    def _misses(self, row: Any) -> MissesIn:
        text = written(self._line, row)
        line = " ".join(self._line.partition(",")[0].split())
        counts = [_count(str(token), text) for token in row.children if token.type == "WORD"]
        if row.data == "in_a_row":
            (n,) = counts
            if n < 2:
                message = f"{text!r} allows no miss at all, which is what a statement means without"
                raise ExpressionError(f"{message} it", line)
            return MissesIn(n - 1, n)
        most, of = counts
        if not 0 < most < of:
            why = "allows no miss at all" if most == 0 else "forbids nothing"
            raise ExpressionError(f"{text!r} {why}: M is from 1 to less than N")
        if most + 1 == of:
            right = f"{line}, no {of} misses in a row"
            raise ExpressionError(f"{text!r} has a plainer form", right)
        return MissesIn(most, of)


def written(line: str, tree: Any) -> str:
    """The text of a syntax tree as the line has it, with single spaces."""
    return " ".join(line[tree.meta.start_pos : tree.meta.end_pos].split())


def time_ns(text: str, what: str) -> int:
    """A duration in ns. Raises ExpressionError, which begins with ``what``."""
    try:
        return quantity.parse_whole(text, quantity.DURATION)
    except quantity.QuantityError as error:
        raise ExpressionError(f"{what}: {error.message}", error.hint) from None


def _share(text: str) -> int:
    """At least so many of 10⁹ are met."""
    number = text.removesuffix("%")
    if number == text:
        close = f"for {text}%" if quantity.is_number(text) else None
        raise ExpressionError(f"'for {text}' should be a share, such as for 99.9%", close)
    try:
        ppb = quantity.parse(text, quantity.RATIO) * 1000
    except quantity.QuantityError as error:
        raise ExpressionError(f"'for {text}': {error.message}", error.hint) from None
    if ppb == 10**9:
        raise ExpressionError("'for 100%' is what a statement means without it: leave it out")
    if not 0 < ppb < 10**9:
        raise ExpressionError(f"'for {text}' is no share: it lies between 0% and 100%")
    if Fraction(ppb).denominator != 1:
        raise ExpressionError(f"'for {text}' is finer than 0.0000001%")
    return int(ppb)


def _count(text: str, clause: str) -> int:
    if text in _WORDS:
        return 2 + _WORDS.index(text)
    if not (text.isascii() and text.isdecimal()):
        raise ExpressionError(f"{text!r} in {clause!r} should be a number")
    if len(text) > 7 or int(text) > _LONGEST_ROW:
        raise ExpressionError(f"{clause!r} looks at more than {_LONGEST_ROW} in succession")
    return int(text)
