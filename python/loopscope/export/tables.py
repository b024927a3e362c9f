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
        texts = printable(batches)
        with pyarrow.csv.CSVWriter(file, texts.schema) as csv:
            for batch in texts:
                csv.write_batch(batch)


def printable(batches: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The batches with texts for values that CSV has no form for.

    Lists and structs are as Python writes them, bytes are hexadecimal digits.
    """
    import pyarrow as pa

    odd = {each.name for each in batches.schema if not _has_form(each.type)}
    schema = pa.schema(
        [each.with_type(pa.string()) if each.name in odd else each for each in batches.schema]
    )

    def texts(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            pa.array([_text(value) for value in column.to_pylist()], pa.string())
            if field.name in odd
            else column
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        return pa.record_batch(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, (texts(batch) for batch in batches))


def _has_form(kind: pa.DataType) -> bool:
    import pyarrow as pa

    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_interval(kind)
        or any(is_one(kind) for is_one in binary)
    )


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)
