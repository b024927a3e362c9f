"""``loopscope query``: SQL over the tables of a run."""

from __future__ import annotations

import json
import sys
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

    from loopscope.timeline import RunError, open_run

    if as_json and as_csv:
        exits.end(exits.USAGE, "--json and --csv exclude each other")
    try:
        opened = open_run(run, point)
        batches = _listing(opened) if sql is None else _ask(opened, sql)
        if as_json:
            _print_json(batches)
        elif as_csv:
            _print_csv(batches)
        else:
            _print(batches)
    except (RunError, duckdb.Error, pa.ArrowException) as error:
        exits.end(exits.USAGE, str(error))


def _listing(run: Run) -> pa.RecordBatchReader:
    """Every table and its columns."""
    import pyarrow as pa

    tables = run.every_table()
    columns = [", ".join(table.columns) for table in tables.values()]
    return pa.table({"table": list(tables), "columns": columns}).to_reader()


def _ask(run: Run, sql: str) -> pa.RecordBatchReader:
    from loopscope.timeline import RunError

    relation = run.register().con.sql(sql)
    if relation is None:
        raise RunError("the query gives no rows: ask with SELECT")
    answer: pa.RecordBatchReader = relation.to_arrow_reader()
    return answer


def _print_json(batches: pa.RecordBatchReader) -> None:
    for batch in batches:
        for row in batch.to_pylist():
            # What JSON has no form for (times, binary) is text.
            typer.echo(json.dumps(row, default=str))


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
        for row in batch.to_pylist():
            count += 1
            if not tty or count <= SHOWN:
                table.add_row(*(_text(value) for value in row.values()))
    console = Console(highlight=False, width=None if tty else 10_000)
    console.print(table)
    if tty and count > SHOWN:
        console.print(f"{count} rows, the first {SHOWN} shown: --csv or --json prints all")


def _text(value: Any) -> str:
    return "" if value is None else str(value)
