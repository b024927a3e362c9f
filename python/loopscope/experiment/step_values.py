"""Readers of the values of steps' options, for use in their models (`steps`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from . import formula, quantity, values
from .grammar import ExpressionError
from .problem import nearest
from .quantity import RATIO
from .values import JsonSchema, Names, Rule, text, wrong

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
STATISTICS: Final = ("mean", "deviation", "min", "max")


@dataclass(frozen=True)
class Columns(Rule):
    """One column or a list of them, each once."""

    least: int = 0

    def read(self, value: object, names: Names) -> list[str]:
        items = value if isinstance(value, list) else [value]
        if len(items) < self.least:
            wrong("this names no column")
        read = [values.Identifier("a column").read(item, names) for item in items]
        for i, name in enumerate(read):
            if name in read[:i]:
                wrong(f"the column {name!r} is named twice")
        return read

    def schema(self) -> JsonSchema:
        one = values.Identifier("a column").schema()
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": self.least}]}


@dataclass(frozen=True)
class Formula(Rule):
    """A formula over columns."""

    use: formula.Use = "row"

    @property
    def example(self) -> str:
        return {"row": "duration > 5ms", "aggregate": "max(latency)", "window": "lag(ts)"}[self.use]

    def read(self, value: object, names: Names) -> str:
        if isinstance(value, bool | int | float):
            return str(value).lower() if isinstance(value, bool) else str(value)
        given = text(value)
        try:
            formula.parse(given, self.use)
        except ExpressionError as error:
            wrong(error.message, error.hint)
        return given

    def schema(self) -> JsonSchema:
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True)
class TableName(Rule):
    """The name of a pipeline or of a table of the run."""

    def read(self, value: object, names: Names) -> str:
        return text(value)

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class TableNames(Rule):
    """One table or a list of them."""

    def read(self, value: object, names: Names) -> list[str]:
        items = value if isinstance(value, list) else [value]
        if not items:
            wrong("this names no table")
        return [text(item) for item in items]

    def schema(self) -> JsonSchema:
        one = TableName().schema()
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


@dataclass(frozen=True)
class Amount(Rule):
    """A number above zero, or a quantity in its base unit."""

    def read(self, value: object, names: Names) -> int | float:
        if isinstance(value, str):
            dimension = quantity.dimension_of(value)
            if dimension is None:
                wrong(f"{value!r} is neither a number nor a quantity such as 10us")
            exact = quantity.parse(value, dimension)
            value = int(exact) if exact.denominator == 1 else float(exact)
        if isinstance(value, bool) or not isinstance(value, int | float):
            wrong("this should be a number or a quantity such as 10us")
        if not value > 0:
            wrong("this should be more than zero")
        return value

    def schema(self) -> JsonSchema:
        return {"type": ["string", "number"]}


@dataclass(frozen=True)
class Misses(Rule):
    """A number of rows, or a share of them."""

    def read(self, value: object, names: Names) -> dict[str, int | float]:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"rows": values.Integer(0, 2**62).read(value, names)}
        share = values.Quantity(RATIO, "0%", "100%").read(value, names)
        return {"ppm": share}

    def schema(self) -> JsonSchema:
        share = {"type": "string", "pattern": quantity.pattern(RATIO)}
        return values.or_reference({"anyOf": [{"type": "integer", "minimum": 0}, share]})


@dataclass(frozen=True)
class StatisticList(Rule):
    """Names of statistics."""

    def read(self, value: object, names: Names) -> list[str]:
        items = value if isinstance(value, list) else [value]
        for item in items:
            given = text(item)
            if given not in STATISTICS and not _is_percentile(given):
                wrong(
                    f"there is no statistic {given!r} (they are {', '.join(STATISTICS)} and "
                    "percentiles as p99 or p999)",
                    "max" if given == "p100" else nearest(given, STATISTICS),
                )
        return [str(item) for item in items]

    def schema(self) -> JsonSchema:
        one = {"type": "string", "pattern": f"^({'|'.join(STATISTICS)}|{PERCENTILE})$"}
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


PERCENTILE = "p[0-9]{1,2}|p9[0-9]{2,}"
"""The third digit and those after it are decimals: p999 is 99.9 %.

Below p90 they are not meant, and p100 would be 10 %.
"""


def _is_percentile(given: str) -> bool:
    return re.fullmatch(PERCENTILE, given, re.ASCII) is not None and given[1:].strip("0") != ""


@dataclass(frozen=True)
class Callable(Rule):
    """``module:function``."""

    def read(self, value: object, names: Names) -> str:
        given = text(value)
        module, colon, function = given.partition(":")
        if not (colon and module.isidentifier() and function.isidentifier()):
            wrong(f"{given!r} is not module:function: the module is a .py file beside this file")
        return given

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^{NAME}:{NAME}$"}
