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
    written = []
    for name, table in run.every_table().items():
        seen(name)
        file = folder / f"{name}.{form}"
        write_batches(table.to_pyarrow_batches(), form, file)
        written.append(file)
    return written


def write_batches(batches: pa.RecordBatchReader, form: str, file: Path) -> None:
    """A table as one file of the given form. Raises `OSError`."""
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
