"""Every table of a run as a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from loopscope.timeline import Run

FORMATS = ("parquet", "arrow", "csv")


def write_tables(run: Run, form: str, folder: Path, seen: Callable[[str], None]) -> list[Path]:
    """Each table as `folder`/<table>.<form>, all repeats, with the column `repeat`.

    `arrow` is the IPC file format. ``seen`` is told of each table before it is written. Raises
    `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    database = run.register()
    written = []
    for schema, view in _views(database.con):
        name = view if schema == "main" else f"{schema}.{view}"
        seen(name)
        file = folder / f"{name}.{form}"
        batches = database.con.sql(f'SELECT * FROM "{schema}"."{view}"').to_arrow_reader()
        _write(batches, form, file)
        written.append(file)
    return written


def _views(connection: object) -> list[tuple[str, str]]:
    listing = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
    found: list[tuple[str, str]] = connection.sql(listing).fetchall()  # type: ignore[attr-defined]
    return found


def _write(batches: pa.RecordBatchReader, form: str, file: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if form == "parquet":
        with pyarrow.parquet.ParquetWriter(file, batches.schema, compression="zstd") as parquet:
            for batch in batches:
                parquet.write_batch(batch)
    elif form == "arrow":
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batches.schema) as arrow:
            for batch in batches:
                arrow.write_batch(batch)
    else:
        # CSV has no lists: those of histograms are texts.
        schema = pa.schema(
            [
                pa.field(each.name, pa.string() if pa.types.is_nested(each.type) else each.type)
                for each in batches.schema
            ]
        )
        with pyarrow.csv.CSVWriter(file, schema) as csv:
            for batch in batches:
                columns = [
                    pa.array(
                        [None if value is None else str(value) for value in column.to_pylist()]
                    )
                    if pa.types.is_nested(column.type)
                    else column
                    for column in batch.columns
                ]
                csv.write_batch(pa.record_batch(columns, schema=schema))
