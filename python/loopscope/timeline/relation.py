"""DuckDB's relations, by which this package itself asks for rows of a run's tables.

`Run.table` gives users an Ibis table, which composes better and takes some 40 ms longer to answer,
after 1.5 s of imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

    Relation = DuckDBPyRelation

_WIDTHS = ("tinyint", "smallint", "integer", "bigint", "hugeint")
INTEGERS = frozenset([*_WIDTHS, *(f"u{each}" for each in _WIDTHS)])
"""The names of SQL's types of whole numbers, as `column_types` gives them."""
NUMBERS = INTEGERS | {"float", "double", "decimal"}
"""The names of SQL's types of numbers."""


def column_types(relation: Relation) -> dict[str, str]:
    """The name of each column's SQL type in lower case, without its parameters, in order."""
    types = zip(relation.columns, relation.types, strict=True)
    return {name: str(each.id) for name, each in types}


def identifier(name: str) -> str:
    """The name of a column or a table, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string, quoted for SQL."""
    return "'" + text.replace("'", "''") + "'"


def literals(*texts: str) -> str:
    """Strings, quoted for SQL, with commas between them."""
    return ", ".join(map(literal, texts))
