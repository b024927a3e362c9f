"""``loopscope query``: SQL over the tables of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from loopscope.cli import exits
from loopscope.cli.text_table import printable_lines, text_table
from loopscope.strict_json import to_json_or_null

if TYPE_CHECKING:
    import pyarrow as pa

    from loopscope.timeline import Run

SHOWN = 100
"""Rows on a terminal; all of them elsewhere."""

HELP = "Ask the tables of a run, a recording or an import in SQL; without a query, list them."


def query(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest; a recording or an import.",
            show_default=False,
        ),
    ],
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL",
            help="In DuckDB's dialect, for example "
            "'select avg(latency) from paths.loop'. Times are ns.",
            show_default=False,
        ),
    ] = None,
    point: Annotated[
        str | None,
        typer.Option(
            "--point",
            metavar="NAME",
            help="Of this point of a sweep. Default: all, in the column `point`.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    import duckdb
    import pyarrow as pa

    from loopscope.export import printable
    from loopscope.timeline import RunError, open_tables

    if as_json and as_csv:
        exits.end(exits.USAGE, "--json and --csv exclude each other")
    try:
        opened = open_tables(run, point)
        print_missing(opened)
        batches = distinct(_listing(opened) if sql is None else _answer(opened, sql))
        if as_json:
            _print_json(batches)
        elif as_csv:
            _print_csv(printable(batches))
        else:
            _print(printable(batches))
    except (RunError, duckdb.Error, pa.ArrowException) as error:
        exits.end(exits.USAGE, str(error))


def print_missing(run: Run) -> None:
    """Says which points of a sweep are not among its tables."""
    from loopscope.timeline import AllPoints

    if isinstance(run, AllPoints) and run.without:
        names = ", ".join(run.without)
        typer.echo(f"loopscope: not run to their end, and not in the tables: {names}", err=True)


def _listing(run: Run) -> pa.RecordBatchReader:
    """Every table and its columns."""
    import pyarrow as pa

    tables = run.every_table()
    columns = [", ".join(table.columns) for table in tables.values()]
    return pa.table({"table": list(tables), "columns": columns}).to_reader()


def _answer(run: Run, sql: str) -> pa.RecordBatchReader:
    from duckdb import ExpectedResultType, StatementType

    from loopscope.timeline import RunError, is_interrupt

    con = run.register().con
    statements = con.extract_statements(sql)
    if not statements:
        raise RunError("the query is empty: ask with SELECT")
    *before, last = statements
    rows = last.expected_result_type == [ExpectedResultType.QUERY_RESULT]
    if not rows and last.type not in (StatementType.COPY, StatementType.EXPORT):
        raise RunError("the query gives no rows: ask with SELECT, or write them with COPY … TO")
    try:
        for statement in before:
            con.execute(statement)
        # A relation is read as it is asked for; what writes is done when it is executed.
        done = con.sql(last.query) if rows else con.execute(last)
        answer: pa.RecordBatchReader = done.to_arrow_reader()
    except RuntimeError as error:
        if not is_interrupt(error):
            raise
        con.interrupt()
        raise KeyboardInterrupt from None
    return answer


def distinct(batches: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """With names of columns that are all different: the second `ts` of a join is `ts_2`."""
    import pyarrow as pa

    names: list[str] = []
    taken = set(batches.schema.names)
    for name in batches.schema.names:
        number = 1
        own = name
        while own in names or (number > 1 and own in taken):
            number += 1
            own = f"{name}_{number}"
        names.append(own)
    fields = [field.with_name(name) for field, name in zip(batches.schema, names, strict=True)]
    return pa.RecordBatchReader.from_batches(
        pa.schema(fields), (batch.rename_columns(names) for batch in batches)
    )


def _print_json(batches: pa.RecordBatchReader) -> None:
    nulls = 0
    for batch in batches:
        for row in batch.to_pylist():
            # What JSON has no form for (times, intervals) is text.
            text, count = to_json_or_null(_json(row), default=str)
            nulls += count
            typer.echo(text)
    if nulls:
        told = f"{nulls} values that are NaN or infinite are null: JSON has no form for them"
        typer.echo(f"loopscope: {told}", err=True)


def _json(value: Any) -> Any:
    """The value in JSON's types.

    Whole sums are numbers (DuckDB's have 128 bits), bytes are hexadecimal.
    """
    if isinstance(value, dict):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.hex() if isinstance(value, bytes) else value


def _print_csv(batches: pa.RecordBatchReader) -> None:
    import pyarrow.csv

    with pyarrow.csv.CSVWriter(sys.stdout.buffer, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _print(batches: pa.RecordBatchReader) -> None:
    names = batches.schema.names
    kinds = (str(field.type) for field in batches.schema)
    numbers = [kind.startswith(("int", "uint", "double", "float", "decimal")) for kind in kinds]
    tty = sys.stdout.isatty()
    shown: list[tuple[Any, ...]] = []
    count = 0
    for batch in batches:
        count += len(batch)
        wanted = batch.slice(0, SHOWN - len(shown)) if tty else batch
        shown += zip(*(column.to_pylist() for column in wanted.columns), strict=True)
    if not tty:
        # In one go: a line at a time would take longer than the query.
        sys.stdout.write("\n".join([*text_table(names, numbers, shown), ""]))
        return
    _print_folded(names, numbers, shown)
    if count > SHOWN:
        typer.echo(f"{count} rows, the first {SHOWN} shown: --csv or --json prints all")


def _print_folded(names: list[str], numbers: list[bool], rows: Iterable[tuple[Any, ...]]) -> None:
    """On a terminal: what is too wide for it is folded."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, number in zip(names, numbers, strict=True):
        justify: Literal["left", "right"] = "right" if number else "left"
        header = Text("\n".join(printable_lines(name)))
        table.add_column(header, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text("\n".join(printable_lines(value))) for value in row))
    Console(highlight=False).print(table)
