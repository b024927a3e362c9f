"""Formulas as Ibis expressions that mean the same on every engine.

What engines disagree about is settled here: dividing by zero and roots of what is negative give
null, ``//`` and ``round`` are as the documentation says, and sums are of whole numbers, because
sums of others depend on the order in which threads add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import ibis
from ibis.expr.operations import Field

from loopscope.experiment.formula import AGGREGATES, Call, Column, Constant, Node, Use, parse
from loopscope.graph.mistake import (
    NOTHING,
    REAL,
    TEXT,
    TRUTH,
    WHOLE,
    Key,
    Kind,
    Mistake,
    column,
    kind_of,
)

if TYPE_CHECKING:
    Value = Any


def row_value(table: ibis.Table, text: str, keys: Iterable[Key], *kinds: Kind) -> Value:
    """A formula over each row.

    Raises Mistake where it does not fit the table, or its values are not of these kinds.
    """
    made = _Translation(table, keys).value(parse(text))
    return _of_kind(made, text, keys, kinds)


def group_value(
    table: ibis.Table, text: str, keys: Iterable[Key], by: Sequence[str], here: str | None = None
) -> Value:
    """A formula over a group of rows that are alike in ``by``.

    Where there is a column ``here``, rows with 0 in it stand for none.
    """
    node = parse(text, "aggregate")
    _one_value_each(node, by, text, keys)
    translation = _Translation(table, keys, "aggregate", here=here)
    return _of_kind(translation.value(node), text, keys, ())


def window_value(
    table: ibis.Table, text: str, keys: Iterable[Key], frame: Any, neighbours: Any
) -> Value:
    """A formula over windows.

    ``frame`` is for what is made of its rows, ``neighbours`` for the rows before and after.
    """
    translation = _Translation(table, keys, "window", frame, neighbours)
    return _of_kind(translation.value(parse(text, "window")), text, keys, ())


def _of_kind(made: Value, text: str, keys: Iterable[Key], kinds: Sequence[Kind]) -> Value:
    kind = kind_of(made.type())
    if kind == NOTHING:
        raise Mistake(f"{text!r} is always null", keys)
    if kinds and kind not in kinds:
        wanted = " or ".join(each.name for each in kinds)
        raise Mistake(f"{text!r} is {kind.name}, not {wanted}", keys)
    return made


def _one_value_each(node: Node, by: Sequence[str], text: str, keys: Iterable[Key]) -> None:
    if isinstance(node, Column) and node.name not in by:
        raise Mistake(
            f"{text!r}: {node.name} has many values in a group: say which, such as max({node.name})"
            ", or name it in by",
            keys,
        )
    if isinstance(node, Call) and node.name not in AGGREGATES:
        for each in node.arguments:
            _one_value_each(each, by, text, keys)


class _Translation:
    def __init__(
        self,
        table: ibis.Table,
        keys: Iterable[Key],
        use: Use = "row",
        frame: Any = None,
        neighbours: Any = None,
        here: str | None = None,
    ) -> None:
        self.table = table
        self.keys = tuple(keys)
        self.use = use
        self.frame = frame
        self.neighbours = neighbours
        self.here = here

    def value(self, node: Node) -> Value:
        if isinstance(node, Column):
            return column(self.table, node.name, self.keys)
        if isinstance(node, Constant):
            return _constant(node.value)
        if node.name in AGGREGATES:
            return self._of_rows(node)
        values = [self.value(each) for each in node.arguments]
        return self._call(node.name, values)

    def _call(self, name: str, values: list[Value]) -> Value:
        if name in _COMPARISONS:
            self._alike(name, values, may_be_null=False)
            return _COMPARISONS[name](*values)
        if name == "in":
            self._alike(name, values, may_be_null=False)
            return values[0].isin(values[1:])
        if name == "is null":
            return values[0].isnull()
        if name in ("coalesce", "least", "greatest", "nullif"):
            self._alike(name, values)
            return {
                "coalesce": ibis.coalesce,
                "least": ibis.least,
                "greatest": ibis.greatest,
                "nullif": lambda x, y: x.nullif(y),
            }[name](*values)
        if name == "if":
            self._are(name, values[:1], TRUTH)
            self._alike(name, values[1:])
            return values[0].ifelse(values[1], values[2])
        if name in _OF_TRUTHS:
            self._are(name, values, TRUTH)
            return _OF_TRUTHS[name](*values)
        if name in _OF_TEXTS:
            self._are(name, values, TEXT)
            return _OF_TEXTS[name](*values)
        if name == "text":
            self._are(name, values, WHOLE)
            return values[0].cast("string")
        if name in ("//", "%"):
            self._are(name, values, WHOLE)
            return whole_ratio(*values) if name == "//" else values[0] % values[1].nullif(_ZERO)
        self._are(name, values, WHOLE, REAL)
        return _OF_NUMBERS[name](*values)

    def _of_rows(self, call: Call) -> Value:
        """A function of several rows."""
        name = call.name
        if name in ("lag", "lead"):
            distance = call.arguments[1] if len(call.arguments) > 1 else Constant(1)
            if not (isinstance(distance, Constant) and type(distance.value) is int):
                raise Mistake(f"{name}(): the number of rows is a number", self.keys)
            shifted = getattr(self.value(call.arguments[0]), name)(distance.value)
            return shifted.over(self.neighbours)
        if name == "row":
            return (ibis.row_number() + 1).over(self.neighbours).cast("int64")
        values = [self.value(each) for each in call.arguments]
        if name in ("sum", "mean"):
            if kind_of(values[0].type()) == REAL:
                raise Mistake(
                    f"{name}() is of whole numbers, so that it is the same each time: derive one "
                    "first, such as round(1000 * x), or use the step statistics",
                    self.keys,
                )
            self._are(name, values, WHOLE)
            # Wide enough for any sum of 64-bit numbers.
            total = self._over(values[0].cast("decimal(38, 0)").sum())
            if name == "sum":
                return total.cast("int64")
            return total.cast("float64") / self._over(values[0].count()).nullif(_ZERO)
        if name == "count_if":
            self._are(name, values, TRUTH)
            counted = values[0].ifelse(_ONE, _ZERO).fill_null(_ZERO)
            return self._over(counted.sum()).fill_null(_ZERO)
        if name == "count":
            if self.here and not values:
                return self.table[self.here].sum().cast("int64")
            return self._over(values[0].count() if values else self.table.count())
        if name == "count_distinct":
            return values[0].nunique()
        if name in ("min", "max") and kind_of(values[0].type()) not in (WHOLE, REAL, TEXT):
            self._are(name, values, WHOLE, REAL, TEXT)
        return self._over(getattr(values[0], name)())

    def _over(self, aggregate: Value) -> Value:
        return aggregate.over(self.frame) if self.use == "window" else aggregate

    def _are(self, name: str, values: Sequence[Value], *kinds: Kind) -> None:
        for value in values:
            kind = kind_of(value.type())
            if kind not in kinds:
                wanted = " or ".join(each.name for each in kinds)
                of = value.op()
                given = f"{of.name} is {kind.name}" if isinstance(of, Field) else kind.name
                raise Mistake(f"{_operation_text(name)} takes {wanted}, but {given}", self.keys)

    def _alike(self, name: str, values: Sequence[Value], may_be_null: bool = True) -> None:
        kinds = {kind_of(value.type()) for value in values}
        if NOTHING in kinds and not may_be_null:
            raise Mistake(f"nothing is {name} null", self.keys, "is null or is not null")
        kinds -= {NOTHING}
        if len(kinds) > 1 and not all(kind.numeric for kind in kinds):
            both = " with ".join(sorted(kind.name for kind in kinds))
            raise Mistake(f"{_operation_text(name)} puts together {both}", self.keys)


def _operation_text(name: str) -> str:
    return f"{name}()" if name.isidentifier() and name not in ("and", "or", "not", "in") else name


_ZERO, _ONE = ibis.literal(0, "int64"), ibis.literal(1, "int64")


def _constant(value: int | float | str | bool | None) -> Value:
    if value is None:
        return ibis.null()
    types = {bool: "boolean", int: "int64", float: "float64", str: "string"}
    return ibis.literal(value, types[type(value)])


def floor_to(value: Value, step: int) -> Value:
    """The multiple of a whole number at or below a whole number."""
    size = ibis.literal(step, "int64")
    return value - ((value % size) + size) % size


def whole_ratio(value: Value, by: Value) -> Value:
    """The quotient cut off towards zero, exact as long as it has fewer than 51 bits.

    What is divided is a multiple, so that the real quotient rounds to the right one.
    """
    divisor = by.nullif(_ZERO)
    return ((value - value % divisor).cast("float64") / divisor).round().cast("int64")


def _positive(value: Value, zero_too: bool = False) -> Value:
    real = value.cast("float64")
    return (real >= 0 if zero_too else real > 0).ifelse(real, ibis.null("float64"))


def _rounded(value: Value) -> Value:
    """Halves away from zero; whole numbers stay what they are."""
    if value.type().is_integer():
        return value
    away = (value.abs() + 0.5).floor()
    return (value < 0).ifelse(-away, away).cast("int64")


def _whole(way: str) -> Callable[[Value], Value]:
    def apply(value: Value) -> Value:
        return value if value.type().is_integer() else getattr(value, way)().cast("int64")

    return apply


_COMPARISONS: dict[str, Callable[..., Value]] = {
    "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}
_OF_TRUTHS: dict[str, Callable[..., Value]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "not": lambda x: ~x,
}
_OF_TEXTS: dict[str, Callable[..., Value]] = {
    "||": lambda x, y: x + y,
    "length": lambda x: x.length().cast("int64"),
    "lower": lambda x: x.lower(),
    "upper": lambda x: x.upper(),
    "contains": lambda x, y: x.contains(y),
    "starts_with": lambda x, y: x.startswith(y),
    "ends_with": lambda x, y: x.endswith(y),
}
_OF_NUMBERS: dict[str, Callable[..., Value]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x.cast("float64") / y.cast("float64").nullif(ibis.literal(0.0, "float64")),
    "negative": lambda x: -x,
    "abs": lambda x: x.abs(),
    "round": _rounded,
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
    "sqrt": lambda x: _positive(x, zero_too=True).sqrt(),
    "ln": lambda x: _positive(x).ln(),
    "log10": lambda x: _positive(x).log10(),
    "exp": lambda x: x.cast("float64").exp(),
    "real": lambda x: x.cast("float64"),
}
