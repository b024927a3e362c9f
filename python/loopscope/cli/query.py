"""``loopscope query``: SQL over the tables of a run."""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscope.cli import exits

if TYPE_CHECKING:
    import pyarrow as pa

    from loopscope.timeline import Run

SHOWN = 100
"""Rows on a terminal; all of them elsewhere."""

HELP = "Ask a run's tables in SQL; without a query, list them."


def query(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest.", show_default=False
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
        str | None, typer.Option("--point", metavar="NAME", help="Of this point of a sweep.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    import duckdb
    import pyarrow as pa

    from loopscope.export import printable
    from loopscope.timeline import RunError, open_run

    if as_json and as_csv:
        exits.end(exits.USAGE, "--json and --csv exclude each other")
    try:
        opened = open_run(run, point)
        batches = distinct(_listing(opened) if sql is None else _answer(opened, sql))
        if as_json:
            _print_json(batches)
        elif as_csv:
            _print_csv(printable(batches))
        else:
            _print(printable(batches))
    except (RunError, duckdb.Error, pa.ArrowException) as error:
        exits.end(exits.USAGE, str(error))


def _listing(run: Run) -> pa.RecordBatchReader:
    """Every table and its columns."""
    import pyarrow as pa

    tables = run.every_table()
    columns = [", ".join(table.columns) for table in tables.values()]
    return pa.table({"table": list(tables), "columns": columns}).to_reader()


def _answer(run: Run, sql: str) -> pa.RecordBatchReader:
    from loopscope.timeline import RunError, is_interrupt

    con = run.register().con
    try:
        relation = con.sql(sql)
        if relation is None:
            raise RunError("the query gives no rows: ask with SELECT")
        answer: pa.RecordBatchReader = relation.to_arrow_reader()
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
    for batch in batches:
        for row in batch.to_pylist():
            # What JSON has no form for (times, intervals) is text.
            typer.echo(json.dumps(_json(row), default=str))


def _json(value: Any) -> Any:
    """Whole sums are numbers (DuckDB's have 128 bits), not-a-number and the infinities, which JSON
    does not have, are null, bytes are hexadecimal."""
    if isinstance(value, dict):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.hex() if isinstance(value, bytes) else value


def _print_csv(batches: pa.RecordBatchReader) -> None:
    import pyarrow.csv

    with pyarrow.csv.CSVWriter(sys.stdout.buffer, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _print(batches: pa.RecordBatchReader) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    tty = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for field in batches.schema:
        number = str(field.type).startswith(("int", "uint", "double", "float", "decimal"))
        table.add_column(field.name, justify="right" if number else "left", overflow="fold")
    count = 0
    for batch in batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            count += 1
            if not tty or count <= SHOWN:
                table.add_row(*(_text(value) for value in row))
    console = Console(highlight=False, width=None if tty else 10_000)
    console.print(table)
    if tty and count > SHOWN:
        console.print(f"{count} rows, the first {SHOWN} shown: --csv or --json prints all")


def _text(value: Any) -> str:
    return "" if value is None else str(value)
