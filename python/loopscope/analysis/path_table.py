"""`tables/path-<name>.parquet`, written piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from loopscope.layout import path_table
from loopscope.timeline import RunError

if TYPE_CHECKING:
    from loopscope.timeline import Run

ROWS = 1 << 18
"""Rows of a piece, which is a row group."""

Piece = Callable[[], dict[str, pa.Array]]


def write_table(run: Run, repeat: int, path: str, pieces: Sequence[Piece]) -> None:
    """The table of a path in one repeat, from the columns of some of its rows each.

    Raises `RunError` where the file cannot be written.
    """
    file = path_table(run.repeats[repeat], path)
    unfinished = file.with_suffix(".unfinished")
    writer: pq.ParquetWriter | None = None
    try:
        file.parent.mkdir(exist_ok=True)
        for table in _ahead(pieces):
            if writer is None:
                integers = [each.name for each in table.schema if pa.types.is_integer(each.type)]
                writer = pq.ParquetWriter(
                    unfinished,
                    table.schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=[each for each in table.column_names if each not in integers],
                    column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
                )
            writer.write_table(table)
        assert writer is not None
        writer.close()
        unfinished.replace(file)
    except OSError as error:
        raise RunError(f"{file}: {error.strerror or error}") from error


def _ahead(pieces: Sequence[Piece]) -> Iterator[pa.Table]:
    """Each piece is made while the one before it is written, which needs no interpreter."""
    with ThreadPoolExecutor(1) as other:
        made = other.submit(pieces[0])
        for piece in pieces[1:]:
            columns = made.result()
            made = other.submit(piece)
            yield pa.table(columns)
        yield pa.table(made.result())
