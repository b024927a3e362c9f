"""Mistakes of a graph that its tables show, and what a table's columns are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopscope.experiment.problem import nearest

if TYPE_CHECKING:
    import ibis
    import ibis.expr.datatypes as dt

Key = str | int

_REFUSED = "REFUSED: "


class GraphError(Exception):
    """A graph that cannot be made of these runs. The text says why and what to do."""


def refused_if(condition: Any, why: Any, else_: Any) -> Any:
    """An expression of whole numbers that fails with a text on rows for which a condition holds.

    `reason` finds it. Both engines fail alike where a text is taken for a number.
    """
    import ibis

    return condition.ifelse((ibis.literal(_REFUSED) + why + "'").cast("int64"), else_)


def reason(error: Exception) -> str:
    """Cause of an engine's error, in a line.

    For one on an executor it stands between stacks of Java's and Python's.
    """
    if refused := re.search(rf"{_REFUSED}([^']*)'", str(error)):
        return refused[1]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line.partition("UserError: ")[2] for line in lines if "UserError: " in line]
    causes = [
        line.partition(": ")[2].partition(": ")[2] or line
        for line in lines
        if line.startswith("Caused by: ")
    ]
    own += causes[-1:]
    own += [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (own or lines or [type(error).__name__])[0]


class Mistake(Exception):
    """A mistake in a step.

    ``keys`` lead to it from the step's options; ``hint`` is the nearest right spelling.
    """

    def __init__(self, message: str, keys: Iterable[Key] = (), hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.keys = tuple(keys)
        self.hint = hint


@dataclass(frozen=True)
class Kind:
    """Kind of a column's values, in a person's words."""

    name: str
    numeric: bool = False


WHOLE = Kind("a whole number", numeric=True)
REAL = Kind("a real number", numeric=True)
TEXT = Kind("text")
TRUTH = Kind("true or false")
OTHER = Kind("a list or bytes")
NOTHING = Kind("null")


def kind_of(dtype: dt.DataType) -> Kind:
    """Kind of the values of an Ibis type."""
    if dtype.is_integer():
        return WHOLE
    if dtype.is_floating() or dtype.is_decimal():
        return REAL
    if dtype.is_string():
        return TEXT
    if dtype.is_boolean():
        return TRUTH
    return NOTHING if dtype.is_null() else OTHER


def column(
    table: ibis.Table, name: str, keys: Iterable[Key] = (), *kinds: Kind, of: str = "the table"
) -> Any:
    """A column of the table. Raises Mistake where it has none, or none of these kinds."""
    if name not in table.columns:
        close = nearest(name, table.columns)
        listed = "" if close else f" (it has: {', '.join(table.columns)})"
        raise Mistake(f"{of} has no column {name!r}{listed}", keys, close)
    found = table[name]
    kind = kind_of(found.type())
    if kinds and kind not in kinds:
        wanted = " or ".join(each.name for each in kinds)
        raise Mistake(f"the column {name!r} is {kind.name}, not {wanted}", keys)
    return found


SCOPE = ("run", "point", "repeat")
"""Columns that together identify a repeat among those of all runs."""

TIMES = ("ts", "start", "end")
"""Columns that hold instants, which are of one repeat."""


def scope(table: ibis.Table) -> list[str]:
    """The columns of ``SCOPE`` that a table still has."""
    return [name for name in SCOPE if name in table.columns]


def repeats(table: ibis.Table, of: str = "the table") -> list[str]:
    """The columns of ``SCOPE``, for a step that goes by time.

    The times of two repeats are of two stretches, and have no order. Raises Mistake where one of
    them is not there.
    """
    for name in SCOPE:
        if name not in table.columns:
            raise Mistake(
                f"{of} has no column {name!r} any more: this step keeps to one repeat by "
                f"{', '.join(SCOPE)}, so they have to stay in it"
            )
    return list(SCOPE)
