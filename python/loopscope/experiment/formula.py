"""Formulas over the columns of a table, as SQL writes scalar expressions, with units.

``duration > 5ms and host = 'h2'`` is read by sqlglot's parser into the few kinds of nodes below and
never executed as text. A quantity stands for a number in its base unit: ``5ms`` is 5 000 000.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from . import quantity
from .problem import nearest

Use = Literal["row", "aggregate", "window"]
"""What a formula may ask for: values of its row; of a group of rows; of the rows around it."""


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
    """Of a quantity: the base unit that ``value`` is in."""


@dataclass(frozen=True)
class Call:
    """An operator (as written, ``-`` of one argument among them; ``is null``) or a function."""

    name: str
    arguments: tuple[Node, ...]


Node = Column | Constant | Call


class FormulaError(ValueError):
    """A text that is no formula. ``hint`` is a right spelling."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def parse(text: str, use: Use = "row") -> Node:
    """Reads a formula. Raises FormulaError where it is none, or asks for what ``use`` has not."""
    import sqlglot.errors

    try:
        tree = _parser(text)
    except (sqlglot.errors.ParseError, sqlglot.errors.TokenError) as error:
        # sqlglot's own text shows the place by terminal codes.
        place = getattr(error, "errors", None)
        where = f" near its column {place[0]['col']}" if place and place[0].get("col") else ""
        raise FormulaError(f"the formula {text!r} cannot be read{where}") from None
    except RecursionError:
        raise FormulaError("the formula is nested too deeply") from None
    return _Reading(text, use).node(tree, inside=None)


def columns(node: Node) -> Iterator[str]:
    """The columns that a formula uses, in its order."""
    if isinstance(node, Column):
        yield node.name
    elif isinstance(node, Call):
        for each in node.arguments:
            yield from columns(each)


def _parser(text: str) -> Any:
    import sqlglot
    from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

    class Parser(sqlglot.Parser):
        # Functions stay calls by their names: which there are is said here, not by a dialect.
        FUNCTIONS: dict[str, Any] = {}
        FUNCTION_PARSERS: dict[str, Any] = {}
        NO_PAREN_FUNCTIONS: dict[Any, Any] = {}
        NO_PAREN_FUNCTION_PARSERS = {"CASE": lambda self: self._parse_case()}

    tokens: list[Token] = []
    for token in sqlglot.tokenize(text, read="duckdb"):
        before = tokens[-1] if tokens else None
        # A number and a word with nothing between them are a quantity.
        if (
            before is not None
            and before.token_type == TokenType.NUMBER
            and token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
            and token.start == before.end + 1
        ):
            text = before.text + token.text
            _quantity(text)
            tokens[-1] = Token(TokenType.NUMBER, text, col=before.col)
        else:
            tokens.append(token)
        if token.token_type == TokenType.DAMP:
            raise FormulaError(f"{text!r} has && in it", "and")
    if not tokens:
        raise FormulaError("the formula is empty")
    found = Parser(dialect="duckdb").parse(tokens, text)
    if len(found) != 1 or found[0] is None:
        raise FormulaError(f"{text!r} is not one formula")
    return found[0]


def _quantity(text: str) -> tuple[int | float, str]:
    """A quantity's value in its base unit, and that."""
    dimension = quantity.dimension_of(text)
    if dimension is None:
        units = [unit for each in quantity.DIMENSIONS for unit in each.units]
        number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµμ")
        close = nearest(text[len(number) :], units)
        raise FormulaError(
            f"{text!r} is no quantity such as 5ms or 1500B", number + close if close else None
        )
    value = quantity.parse(text, dimension)
    exact = value.denominator == 1
    return value.numerator if exact else float(value), dimension.base


_BINARY = {
    "EQ": "=",
    "NEQ": "!=",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "And": "and",
    "Or": "or",
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "IntDiv": "//",
    "Mod": "%",
    "DPipe": "||",
}
_INSTEAD = {"ArrayOverlaps": "and", "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "!="}
OPERATORS: Final = frozenset(_BINARY.values()) | {"not", "is null", "in", "negative"}


class _Reading:
    """sqlglot's tree to ours; everything that is not listed here is refused."""

    def __init__(self, text: str, use: Use) -> None:
        self.text = text
        self.use = use

    def node(self, tree: Any, inside: str | None) -> Node:
        """``inside`` is the function of several rows that this is an argument of."""
        kind = type(tree).__name__
        if kind in _BINARY:
            return self.call(_BINARY[kind], [tree.this, tree.expression], inside)
        if kind == "Paren":
            return self.node(tree.this, inside)
        if kind == "Column" and not tree.args.get("table"):
            return Column(tree.name)
        if kind == "Literal":
            return Constant(tree.this) if tree.is_string else self.number(tree.this)
        if kind == "Boolean":
            return Constant(bool(tree.this))
        if kind == "Null":
            return Constant(None)
        if kind == "Not":
            return self.call("not", [tree.this], inside)
        if kind == "Neg":
            made = self.node(tree.this, inside)
            if isinstance(made, Constant) and isinstance(made.value, int | float):
                return Constant(-made.value, made.unit)
            return Call("negative", (made,))
        if kind == "Is" and type(tree.expression).__name__ == "Null":
            return self.call("is null", [tree.this], inside)
        if kind == "Between":
            low = self.call(">=", [tree.this, tree.args["low"]], inside)
            high = self.call("<=", [tree.this, tree.args["high"]], inside)
            return Call("and", (low, high))
        if kind == "In" and tree.expressions and not tree.args.get("query"):
            return self.call("in", [tree.this, *tree.expressions], inside)
        if kind == "Case" and tree.this is None:
            default = tree.args.get("default")
            made = Constant(None) if default is None else self.node(default, inside)
            for each in reversed(tree.args["ifs"]):
                made = Call(
                    "if",
                    (self.node(each.this, inside), self.node(each.args["true"], inside), made),
                )
            return made
        if kind == "Anonymous":
            return self.function(str(tree.this).lower(), tree.expressions, inside)
        if kind in _INSTEAD:
            raise FormulaError(
                f"{self.text!r} has an operator that is not known here", _INSTEAD[kind]
            )
        if kind == "Alias" and type(tree.this.expression).__name__ == "Literal":
            raise FormulaError(
                f"{self.text!r} has a space before a unit", f"{tree.this.expression}{tree.alias}"
            ) from None
        what = tree.sql(dialect="duckdb") if hasattr(tree, "sql") else str(tree)
        raise FormulaError(f"{what!r} is no part of a formula")

    def call(self, name: str, arguments: list[Any], inside: str | None) -> Call:
        return Call(name, tuple(self.node(each, inside) for each in arguments))

    def function(self, name: str, arguments: list[Any], inside: str | None) -> Node:
        function = FUNCTIONS.get(name)
        if function is None or self.use not in function.uses:
            known = [each for each, found in FUNCTIONS.items() if self.use in found.uses]
            if function is None:
                message = f"there is no function {name}()"
            else:
                message = f"{name}() is of several rows: it goes into group, resample or window"
                known = []
            raise FormulaError(message, nearest(name, known))
        if name in AGGREGATES and inside:
            raise FormulaError(f"{name}() within {inside}(): derive the inner one first")
        if name == "count" and len(arguments) == 1 and type(arguments[0]).__name__ == "Star":
            arguments = []
        most = function.most
        if len(arguments) < function.least or (most is not None and len(arguments) > most):
            raise FormulaError(f"{name}() has {len(arguments)} arguments: write {function.what}")
        return self.call(name, arguments, name if name in AGGREGATES else inside)

    def number(self, text: str) -> Constant:
        try:
            value = int(text)
        except ValueError:
            try:
                return Constant(float(text))
            except ValueError:
                return Constant(*_quantity(text))
        if value >= 2**63:
            raise FormulaError(f"{text} does not fit in 64 bits")
        return Constant(value)
