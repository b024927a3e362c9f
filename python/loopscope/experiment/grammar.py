"""Reads expressions of the experiment file by the grammar in ``expressions.lark``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Literal

from .problem import nearest

if TYPE_CHECKING:
    from lark import Lark, Token

Start = Literal["expectation", "value_comparison", "subject", "formula"]

_READABLE: Final = {
    "NAME": "a name",
    "EVENT": "an event",
    "ARROW": "->",
    "STATISTIC": ".STATISTIC",
    "OPERATOR": "a comparison",
    "TEXT": "a value",
    "WORD": "a value",
    "COLUMN": "a column",
    "NUMBER": "a number",
    "STRING": "a text",
    "PLUS": "an operator",
    "COMMA": "a comma",
    "LPAR": "(",
    "RPAR": ")",
    "RSQB": "]",
    "$END": "the end",
}
"""Names in messages of terminals that are no words of the language."""
_WORDS: Final = frozenset(
    "and or not in is between case when then else end null true false".split()
    + "every within order complete symmetric before after for no at most misses a row any".split()
)


class ExpressionError(ValueError):
    """A text that is not the expression that is wanted. ``hint`` is a right spelling."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Unreadable(ExpressionError):
    """A text that the grammar does not allow, and where it stops doing so.

    ``at`` is the index of the first character that does not fit, ``seen`` are the terminals before
    it that no rule has taken up yet.
    """

    def __init__(
        self, what: str, text: str, at: int, seen: tuple[Token, ...], expected: Iterable[str]
    ) -> None:
        self.what = what
        self.text = text
        self.at = at
        self.seen = seen
        found = next(iter(text[at:].split()), None)
        words = sorted(_WORDS & {terminal.lower() for terminal in expected})
        reason = f"expected {_either(set(expected))}, not {repr(found) if found else 'the end'}"
        close = nearest(found, words) if found and found.isalpha() else None
        super().__init__(self.located(reason), close)

    def located(self, reason: str) -> str:
        """A message with the place, for a reason that says more than what is expected."""
        return f"the {self.what} {self.text!r} cannot be read at its column {self.at + 1}: {reason}"


def parse(start: Start, text: str, what: str) -> Any:
    """The syntax tree of an expression, a `lark.Tree`; ``what`` names it in messages.

    Raises Unreadable.
    """
    from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    interactive: Any = _lark().parse_interactive(text, start)
    try:
        interactive.exhaust_lexer()
        return interactive.feed_eof()
    except UnexpectedInput as error:
        accepted: Iterable[str] = ()
        at = len(text.rstrip())
        if isinstance(error, UnexpectedCharacters):
            at, accepted = error.pos_in_stream or 0, interactive.accepts()
        elif isinstance(error, UnexpectedToken):
            accepted = interactive.accepts()
            if error.token.type != "$END":
                at = error.token.start_pos or 0
        seen = tuple(each for each in interactive.parser_state.value_stack if _is_token(each))
        raise Unreadable(what, text, at, seen, accepted) from None


@cache
def _lark() -> Lark:
    import lark

    starts: tuple[Start, ...] = ("expectation", "value_comparison", "subject", "formula")
    grammar = files(__package__).joinpath("expressions.lark").read_text(encoding="utf-8")
    return lark.Lark(
        grammar, parser="lalr", start=list(starts), keep_all_tokens=False, propagate_positions=True
    )


def _is_token(value: object) -> bool:
    import lark

    return isinstance(value, lark.Token)


def _either(terminals: set[str]) -> str:
    """Alternatives that could stand in a place, for people.

    Of a formula's words only those that no operator or value stands for.
    """
    if "COLUMN" in terminals:
        terminals = {"COLUMN", "NUMBER", "STRING", "LPAR"}
    elif "PLUS" in terminals:
        terminals = terminals & {"PLUS", "COMMA", "RPAR", "WHEN", "THEN", "ELSE", "END", "$END"}
    names = [_READABLE[each] for each in _READABLE if each in terminals]
    names += sorted(word for word in _WORDS if word.upper() in terminals)
    *others, last = names or ["something else"]
    return f"{', '.join(others)} or {last}" if others else last
