"""Engines that carry a pipeline out: none (its types alone), DuckDB, or Spark (`spark`).

A graph is written once, in Ibis expressions; where it has to leave them (statistics by resampling,
lines of text, a person's own function) the engine hands batches of Arrow to a function.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import ibis
import pyarrow as pa

from loopscope.graph.tables import Part, Stored

if TYPE_CHECKING:
    Batches = Iterator[pa.RecordBatch]
    Function = Callable[[Batches], Batches]

ROWS = 1 << 16
"""Largest number of rows of a batch."""


class Engine(Protocol):
    """Tables in, tables out."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of the engine's packages, by name."""
        ...

    @property
    def spreads(self) -> bool:
        """Whether several processes share its work.

        Then work for `each` is best given in small pieces.
        """
        ...

    def stored(self, name: str, table: Stored) -> ibis.Table:
        """A table of the runs, with its types."""
        ...

    def mapped(
        self, table: ibis.Table, by: Sequence[str], function: Function, types: Mapping[str, str]
    ) -> ibis.Table:
        """The table that a function makes of the table's batches.

        Rows that are alike in ``by`` come to the same call one after the other, in the order of all
        columns; what a call sees besides them is not said.
        """
        ...

    def kept(self, table: ibis.Table) -> ibis.Table:
        """Table of the same rows, computed once."""
        ...

    def each(self, work: Callable[[Any], None], items: Sequence[Any]) -> None:
        """Does the work for each item, on files that are there for all of the engine.

        Returns when all is done. Where the engine spreads, an item is a task of its own, in any of
        its processes and at any time; one whose process died is done again, so that whatever the
        work leaves must be the same then. Nothing comes back. Raises GraphError with the reason of
        one that failed.
        """
        ...

    def rows(self, table: ibis.Table, order: Sequence[str]) -> pa.RecordBatchReader:
        """The rows in order, for a sink, with the types of ``arrow_schema``."""
        ...


def arrow_schema(types: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of columns with Ibis's types."""
    return ibis.schema(dict(types)).to_pyarrow()


def applied(function: Function, batches: Batches, schema: pa.Schema) -> Batches:
    """The batches that a function makes of batches, with the schema's types.

    It is not called without rows: which calls have none depends on the engine.
    """
    given = (batch for batch in batches if batch.num_rows)
    first = next(given, None)
    if first is not None:
        for batch in function(itertools.chain([first], given)):
            yield batch.cast(schema)


def types_of(table: ibis.Table) -> dict[str, str]:
    """Columns and their types, as a graph holds them."""
    return {name: _held(str(dtype)) for name, dtype in table.schema().items()}


def _held(dtype: str) -> str:
    """Whole numbers with 64 bits, whichever width an engine makes of an expression."""
    dtype = dtype.removeprefix("!")
    if dtype.startswith(("int", "uint")):
        return "int64"
    return "float64" if dtype.startswith(("float", "decimal")) else dtype


def as_types(table: ibis.Table, types: Mapping[str, str]) -> ibis.Table:
    """A table with exactly these columns and types: missing ones are null."""
    columns = {
        name: _cast(table[name], dtype) if name in table.columns else ibis.literal(None, type=dtype)
        for name, dtype in types.items()
    }
    return table.select(**columns)


def _cast(column: Any, dtype: str) -> Any:
    given = column.type()
    if given.is_floating():
        # What is not finite is no number, and there is one zero: engines order these differently.
        zero, no_number = ibis.literal(0.0, given), column.isnan() | column.isinf()
        column = no_number.ifelse(ibis.null(given), (column == zero).ifelse(zero, column))
    return column if str(given) == dtype else column.cast(dtype)


class Types:
    """Carries nothing out: every table is empty, and has its types."""

    versions: Mapping[str, str] = {}
    spreads = False

    def stored(self, name: str, table: Stored) -> ibis.Table:
        return ibis.table(dict(table.types), name=name)

    def mapped(
        self, table: ibis.Table, by: Sequence[str], function: Function, types: Mapping[str, str]
    ) -> ibis.Table:
        return ibis.table(dict(types), name=ibis.util.gen_name("mapped"))

    def kept(self, table: ibis.Table) -> ibis.Table:
        return ibis.table(types_of(table), name=ibis.util.gen_name("kept"))

    def each(self, work: Callable[[Any], None], items: Sequence[Any]) -> None:
        pass

    def rows(self, table: ibis.Table, order: Sequence[str]) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(arrow_schema(types_of(table)), [])


class DuckDB:
    """On this machine. Use as a context manager."""

    spreads = False

    def __init__(self) -> None:
        self._connection = ibis.duckdb.connect()
        self._folder = tempfile.TemporaryDirectory(prefix="loopscope-graph-")
        self._connection.raw_sql(f"SET temp_directory = '{self._folder.name}/spilled'")

    def __enter__(self) -> DuckDB:
        return self

    def __exit__(self, *error: object) -> None:
        if any(error):
            self._connection.con.interrupt()
        self._connection.disconnect()
        self._folder.cleanup()

    @property
    def versions(self) -> Mapping[str, str]:
        import duckdb

        return {"duckdb": duckdb.__version__, "ibis": ibis.__version__}

    def stored(self, name: str, table: Stored) -> ibis.Table:
        return union_of(table, self._read)

    def _read(self, part: Part) -> ibis.Table:
        # A point's folder, delay=10ms, is no partition of its tables.
        files = [str(file) for file in part.files]
        return self._connection.read_parquet(files, hive_partitioning=False, union_by_name=True)

    def mapped(
        self, table: ibis.Table, by: Sequence[str], function: Function, types: Mapping[str, str]
    ) -> ibis.Table:
        ordered = self.rows(table, [*by, *(name for name in table.columns if name not in by)])
        return self._spooled(applied(function, iter(ordered), arrow_schema(types)), types)

    def kept(self, table: ibis.Table) -> ibis.Table:
        return self._connection.create_table(ibis.util.gen_name("kept"), obj=table, temp=True)

    def each(self, work: Callable[[Any], None], items: Sequence[Any]) -> None:
        for item in items:
            work(item)

    def rows(self, table: ibis.Table, order: Sequence[str]) -> pa.RecordBatchReader:
        types = types_of(table)
        ordered = in_order(as_types(table, types), order)
        reader = self._connection.to_pyarrow_batches(ordered, chunk_size=ROWS)
        return pa.RecordBatchReader.from_batches(
            arrow_schema(types), (batch.cast(arrow_schema(types)) for batch in reader)
        )

    def _spooled(self, batches: Batches, types: Mapping[str, str]) -> ibis.Table:
        """Through a file, so that no more than a batch is in memory and the connection is free."""
        import pyarrow.parquet

        file = Path(self._folder.name) / f"{ibis.util.gen_name('mapped')}.parquet"
        schema = arrow_schema(types)
        with pyarrow.parquet.ParquetWriter(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return self._connection.read_parquet(str(file), hive_partitioning=False)


def union_of(table: Stored, read: Callable[[Part], ibis.Table]) -> ibis.Table:
    """The parts of a table one after the other, with the table's types."""
    parts = []
    for part in table.parts:
        known = {name: ibis.literal(value) for name, value in part.columns.items()}
        files = read(part)
        files = files.drop(*(name for name in known if name in files.columns))
        parts.append(as_types(files.mutate(**known), table.types))
    return ibis.union(*parts) if len(parts) > 1 else parts[0]


def in_order(table: ibis.Table, order: Sequence[str]) -> ibis.Table:
    """Sorted by columns, nulls last."""
    return table.order_by([table[name].asc(nulls_first=False) for name in order])
