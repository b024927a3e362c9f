"""A graph on Spark: the same expressions, and its functions on the executors.

Nothing comes to the driver but what a sink takes, which the executors write to files first.
Executors need loopscope and the run's files under the same paths.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

import loopscope
from loopscope.extras import remedy
from loopscope.graph.custom_steps import UserError
from loopscope.graph.engine import applied, arrow_schema, as_types, types_of, union_of
from loopscope.graph.mistake import GraphError, reason
from loopscope.graph.tables import Part, Stored

if TYPE_CHECKING:
    from loopscope.graph.engine import Batches, Function

_QUIET = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
_DDL = {"int64": "bigint", "float64": "double", "string": "string", "boolean": "boolean"}


class Spark:
    """``master`` is as Spark writes it: local[2], spark://HOST:PORT.

    ``shared`` is a folder where all executors can write what sinks take. Use as a context manager.
    Raises GraphError where Spark is not there.
    """

    spreads = True

    def __init__(self, master: str, shared: Path) -> None:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            raise GraphError(
                f"Spark is not installed: {remedy('spark')}, and Java 8, 11 or 17"
            ) from None
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if _is_local(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        package = str(Path(loopscope.__file__).resolve().parents[1])
        settings = {
            # Overflow is an error, as in DuckDB, and not another number.
            "spark.sql.ansi.enabled": "true",
            "spark.sql.session.timeZone": "UTC",
            "spark.executorEnv.PYTHONPATH": package,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
            "spark.driver.extraJavaOptions": _QUIET,
            "spark.executor.extraJavaOptions": _QUIET,
        }
        if _is_local(master):
            # Spark's 200 are for many machines.
            settings["spark.sql.shuffle.partitions"] = "2"
        builder = SparkSession.builder.master(master).appName("loopscope analyse")
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            self._session = builder.getOrCreate()
            self._connection = ibis.pyspark.connect(self._session)
        except Exception as error:
            raise GraphError(f"cannot start Spark at {master}: {reason(error)}") from None
        self._folder = tempfile.TemporaryDirectory(prefix=".graph-", dir=shared.resolve())

    def __enter__(self) -> Spark:
        return self

    def __exit__(self, *error: object) -> None:
        self._session.stop()
        self._folder.cleanup()

    @property
    def versions(self) -> Mapping[str, str]:
        return {"spark": self._session.version, "ibis": ibis.__version__}

    def stored(self, name: str, table: Stored) -> ibis.Table:
        return union_of(table, self._read)

    def _read(self, part: Part) -> ibis.Table:
        paths = [f"file://{file}" for file in part.files]
        # Alone, so that Spark sees no partition in a point's folder, delay=10ms.
        return self._named(self._session.read.parquet(*paths))

    def mapped(
        self, table: ibis.Table, by: Sequence[str], function: Function, types: Mapping[str, str]
    ) -> ibis.Table:
        frame = self._frame(as_types(table, types_of(table)))
        together = frame.repartition(*(f"`{name}`" for name in by)) if by else frame.coalesce(1)
        others = [name for name in table.columns if name not in by]
        ordered = together.sortWithinPartitions(
            *(frame[f"`{name}`"].asc_nulls_last() for name in [*by, *others])
        )
        ddl = ", ".join(f"`{name}` {_DDL[dtype]}" for name, dtype in types.items())
        schema = arrow_schema(types)

        def on_executor(batches: Batches) -> Iterator[pa.RecordBatch]:
            yield from applied(function, batches, schema)

        return self._named(ordered.mapInArrow(on_executor, ddl))

    def kept(self, table: ibis.Table) -> ibis.Table:
        return self._named(self._frame(table).cache())

    def each(self, work: Callable[[Any], None], items: Sequence[Any]) -> None:
        def on_executor(item: Any) -> None:
            try:
                work(item)
            except Exception as error:
                own = type(error).__module__.startswith("loopscope.")
                raise UserError(str(error) if own else f"{type(error).__name__}: {error}") from None

        if not items:
            return
        try:
            self._session.sparkContext.parallelize(items, len(items)).foreach(on_executor)
        except Exception as error:
            raise GraphError(reason(error)) from error

    def rows(self, table: ibis.Table, order: Sequence[str]) -> pa.RecordBatchReader:
        import pyarrow.parquet

        types = types_of(table)
        schema = arrow_schema(types)
        folder = Path(self._folder.name) / ibis.util.gen_name("rows")
        frame = self._frame(as_types(table, types)).repartition(1)
        # One task sorts, on disk where it must: what goes into one file is sorted once, and a sort
        # over several tasks would compute everything twice to find their bounds.
        ordered = frame.sortWithinPartitions(*(frame[f"`{n}`"].asc_nulls_last() for n in order))
        ordered.write.parquet(f"file://{folder}")

        def batches() -> Iterator[pa.RecordBatch]:
            for file in folder.glob("part-*.parquet"):
                with pyarrow.parquet.ParquetFile(file) as part:
                    for batch in part.iter_batches():
                        yield batch.cast(schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _frame(self, table: ibis.Table) -> Any:
        return self._connection.raw_sql(self._connection.compile(table))

    def _named(self, frame: Any) -> ibis.Table:
        name = ibis.util.gen_name("frame")
        frame.createOrReplaceTempView(name)
        return self._connection.table(name)


def _is_local(master: str) -> bool:
    return master.startswith("local")
