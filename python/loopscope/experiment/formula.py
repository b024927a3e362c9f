"""Formulas over the columns of a table, as SQL writes scalar expressions, with units.

``duration > 5ms and host = 'h2'`` is read by the grammar into the few kinds of nodes below and is
never executed as text. A quantity stands for a number in its base unit: ``5ms`` is 5 000 000.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from . import grammar, quantity
from .grammar import ExpressionError
from .problem import nearest

Use = Literal["row", "aggregate", "window"]
"""Scope of a formula: values of its row; of a group of rows; of the rows around it."""


@dataclass(frozen=True)
class Function:
    """``least`` to ``most`` arguments (None: any number)."""

    what: str
    least: int
    most: int | None
    uses: tuple[Use, ...] = ("row", "aggregate", "window")


_GROUPS: Final[tuple[Use, ...]] = ("aggregate", "window")
FUNCTIONS: Final[dict[str, Function]] = {
    "abs": Function("abs(x): magnitude", 1, 1),
    "round": Function("round(x): nearest whole number, halves away from zero", 1, 1),
    "floor": Function("floor(x): whole number at or below", 1, 1),
    "ceil": Function("ceil(x): whole number at or above", 1, 1),
    "sqrt": Function("sqrt(x): square root, null below zero", 1, 1),
    "ln": Function("ln(x): natural logarithm, null at and below zero", 1, 1),
    "log10": Function("log10(x): decimal logarithm, null at and below zero", 1, 1),
    "exp": Function("exp(x): e to the power x", 1, 1),
    "real": Function("real(x): as a real number", 1, 1),
    "text": Function("text(x): a whole number as text", 1, 1),
    "least": Function("least(x, y, …): the smallest that is not null", 2, None),
    "greatest": Function("greatest(x, y, …): the largest that is not null", 2, None),
    "coalesce": Function("coalesce(x, y, …): the first that is not null", 2, None),
    "nullif": Function("nullif(x, y): null where both are equal, else x", 2, 2),
    "if": Function("if(condition, x, y): x where it holds, else y", 3, 3),
    "length": Function("length(t): characters of a text", 1, 1),
    "lower": Function("lower(t): in lower case", 1, 1),
    "upper": Function("upper(t): in upper case", 1, 1),
    "contains": Function("contains(t, part): whether a text holds another", 2, 2),
    "starts_with": Function("starts_with(t, part)", 2, 2),
    "ends_with": Function("ends_with(t, part)", 2, 2),
    "count": Function("count(): rows; count(x): rows where x is not null", 0, 1, _GROUPS),
    "count_if": Function("count_if(condition): rows where it holds", 1, 1, _GROUPS),
    "sum": Function("sum(x), of whole numbers", 1, 1, _GROUPS),
    "mean": Function("mean(x), of whole numbers", 1, 1, _GROUPS),
    "min": Function("min(x): smallest", 1, 1, _GROUPS),
    "max": Function("max(x): largest", 1, 1, _GROUPS),
    "count_distinct": Function(
        "count_distinct(x): how many different values", 1, 1, ("aggregate",)
    ),
    "first": Function("first(x): of the window's first row", 1, 1, ("window",)),
    "lag": Function("lag(x): of the row before, lag(x, n): n rows before", 1, 2, ("window",)),
    "lead": Function("lead(x): of the row after, lead(x, n): n rows after", 1, 2, ("window",)),
    "row": Function("row(): the row's number, from 1", 0, 0, ("window",)),
}
AGGREGATES: Final = frozenset(name for name, each in FUNCTIONS.items() if "row" not in each.uses)
"""Functions of several rows, whose arguments are of each row."""


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A number, text, truth value, or None for null."""

    value: int | float | str | bool | None
    unit: str = ""
    """The base unit that the value of a quantity is in; empty for other constants."""


@dataclass(frozen=True)
class Call:
    """An operator (as written, ``-`` of one argument among them; ``is null``) or a function."""

    name: str
    arguments: tuple[Node, ...]


Node = Column | Constant | Call


def parse(text: str, use: Use = "row") -> Node:
    """The nodes of a formula.

    Raises ExpressionError where it is none, or asks for what ``use`` has not.
    """
    if not text.strip():
        raise ExpressionError("the formula is empty")
    try:
        return _Reading(use).node(grammar.parse("formula", text, "formula"), inside=None)
    except grammar.Unreadable as error:
        raise _syntax_error(error) from None
    except RecursionError:
        raise ExpressionError("the formula is nested too deeply") from None


def columns(node: Node) -> Iterator[str]:
    """The columns that a formula uses, in its order."""
    if isinstance(node, Column):
        yield node.name
    elif isinstance(node, Call):
        for each in node.arguments:
            yield from columns(each)


def _quantity(text: str) -> tuple[int | float, str]:
    """A quantity's value in its base unit, and that."""
    dimension = quantity.dimension_of(text)
    if dimension is None:
        units = [unit for each in quantity.DIMENSIONS for unit in each.units]
        number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµμ")
        close = nearest(text[len(number) :], units)
        raise ExpressionError(
            f"{text!r} is no quantity such as 5ms or 1500B", number + close if close else None
        )
    value = quantity.parse(text, dimension)
    exact = value.denominator == 1
    return value.numerator if exact else float(value), dimension.base


def _syntax_error(error: grammar.Unreadable) -> ExpressionError:
    """Error for a text that the grammar does not allow, with the nearest valid form."""
    rest = error.text[error.at :]
    last = error.seen[-1] if error.seen else None
    for operator, instead in _INSTEAD.items():
        if rest.startswith(operator):
            return ExpressionError(f"{error.text!r} has {operator} in it", instead)
    word = re.match(r"[^\W\d]\w*", rest)
    if last is not None and last.type == "NUMBER" and word is not None:
        right = last + word[0]
        if quantity.dimension_of(right) is not None:
            return ExpressionError(f"{error.text!r} has a space before a unit", right)
    return ExpressionError(error.message, error.hint)


_INSTEAD: Final = {"&&": "and", "&": "and", "|": "or", "^": "!="}
"""Operators of other languages, and what they are called here."""
OPERATORS: Final = frozenset(
    ("=", "!=", "<", "<=", ">", ">=", "and", "or", "+", "-", "*", "/", "//", "%", "||")
    + ("not", "is null", "in", "negative")
)
_SPELLINGS: Final = {"==": "=", "<>": "!=", "div": "//"}


class _Reading:
    """The syntax tree of a formula as the nodes above."""

    def __init__(self, use: Use) -> None:
        self.use = use

    def node(self, tree: Any, inside: str | None) -> Node:
        """``inside`` is the function of several rows that this is an argument of."""
        kind, parts = tree.data, tree.children
        if kind == "binary":
            operator = parts[1].lower()
            return self.call(_SPELLINGS.get(operator, operator), [parts[0], parts[2]], inside)
        if kind == "column":
            return Column(str(parts[0]))
        if kind == "quoted_column":
            return Column(parts[0][1:-1].replace('""', '"'))
        if kind == "number":
            return _number(str(parts[0]))
        if kind == "string":
            return Constant(parts[0][1:-1].replace("''", "'"))
        if kind in _WORDS:
            return Constant(_WORDS[kind])
        if kind == "positive":
            return self.node(parts[1], inside)
        if kind == "negative":
            made = self.node(parts[1], inside)
            if isinstance(made, Constant) and isinstance(made.value, int | float):
                return Constant(-made.value, made.unit)
            return Call("negative", (made,))
        if kind == "negation":
            return self.call("not", [parts[1]], inside)
        if kind.removeprefix("not_") in _RANGES or kind == "is_not_null":
            made = self.range(kind.removeprefix("not_"), parts, inside)
            return Call("not", (made,)) if "not" in kind.split("_") else made
        if kind == "case":
            return self.case(parts, inside)
        arguments = parts[1].children if kind == "call" and parts[1:] else []
        return self.function(str(parts[0]).lower(), arguments, inside, kind == "call_of_rows")

    def range(self, kind: str, parts: list[Any], inside: str | None) -> Call:
        trees = [part for part in parts if hasattr(part, "data")]
        if kind == "within":
            value, low, high = trees
            bounds = (self.call(">=", [value, low], inside), self.call("<=", [value, high], inside))
            return Call("and", bounds)
        if kind == "one_of":
            return self.call("in", [trees[0], *trees[1].children], inside)
        return self.call("is null", trees, inside)

    def case(self, parts: list[Any], inside: str | None) -> Node:
        trees = [part for part in parts if hasattr(part, "data")]
        branches = [tree for tree in trees if tree.data == "branch"]
        otherwise = trees[len(branches) :]
        made: Node = self.node(otherwise[0], inside) if otherwise else Constant(None)
        for branch in reversed(branches):
            _, condition, _, value = branch.children
            made = Call("if", (self.node(condition, inside), self.node(value, inside), made))
        return made

    def call(self, name: str, arguments: list[Any], inside: str | None) -> Call:
        return Call(name, tuple(self.node(each, inside) for each in arguments))

    def function(self, name: str, arguments: list[Any], inside: str | None, of_rows: bool) -> Node:
        """``of_rows``: its argument is a star."""
        function = FUNCTIONS.get(name)
        if function is None or self.use not in function.uses:
            known = [each for each, found in FUNCTIONS.items() if self.use in found.uses]
            if function is None:
                message = f"there is no function {name}()"
            else:
                message = f"{name}() is of several rows: it goes into group, resample or window"
                known = []
            raise ExpressionError(message, nearest(name, known))
        if name in AGGREGATES and inside:
            raise ExpressionError(f"{name}() within {inside}(): derive the inner one first")
        if of_rows and name != "count":
            raise ExpressionError(f"* is of count() only: write {function.what}")
        most = function.most
        if len(arguments) < function.least or (most is not None and len(arguments) > most):
            message = f"{name}() has {len(arguments)} arguments: write {function.what}"
            raise ExpressionError(message)
        return self.call(name, arguments, name if name in AGGREGATES else inside)


_WORDS: Final = {"true": True, "false": False, "null": None}
_RANGES: Final = ("within", "one_of", "is_null")


def _number(text: str) -> Constant:
    try:
        value = int(text)
    except ValueError:
        try:
            return Constant(float(text))
        except ValueError:
            return Constant(*_quantity(f"0{text}" if text.startswith(".") else text))
    if value >= 2**63:
        raise ExpressionError(f"{text} does not fit in 64 bits")
    return Constant(value)
