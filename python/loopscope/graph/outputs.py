"""Steps that leave files, and the writing of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

from loopscope.analysis.quantity_text import duration, maximum_error
from loopscope.export import write_batches
from loopscope.graph.engine import ROWS, arrow_schema
from loopscope.graph.mistake import WHOLE, Mistake, column, scope
from loopscope.report.samples import unit_of_name

if TYPE_CHECKING:
    from loopscope.graph.build import Context, Product
    from loopscope.graph.engine import Batches, Engine

    Options = Mapping[str, Any]


def export(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    name = options["name"] or context.pipeline
    context.produce("table", name, table, {"format": options["format"]})
    return table


def plot(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    _check_figure(options["kind"], options["columns"], table)
    name = options["name"] or f"{context.pipeline}-{options['kind']}"
    context.produce("figure", name, table, options)
    return table


def narrate(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    time, width = options["time"], options["width"]
    found = column(table, time, ("time",), WHOLE)
    if width != "none":
        column(table, width, ("width",), WHOLE)
    told = options["columns"]
    if told is None:
        told = [
            name
            for name in table.columns
            if name not in (*scope(table), time, width, *_NOT_TOLD)
            and not name.startswith("point_")
        ]
    for i, name in enumerate(told):
        column(table, name, ("columns", i))
    within = scope(table)
    since = found - found.min().over(ibis.window(group_by=within or None))
    needed = [*within, time, *told]
    if "err_ns" in table.columns and width != "err_ns":
        needed.append("err_ns")
    given = {name: table[name] for name in dict.fromkeys(needed)}
    half = table[width] if width != "none" else ibis.literal(0, "int64")
    narrow = table.select(**given, _since=since, _half=half).filter(found.notnull())
    types = {**dict.fromkeys(within, "string"), time: "int64", "line": "string"}
    types |= {"repeat": "int64"} if "repeat" in within else {}
    function = partial(lines, within=(*within, time), told=tuple(told), types=types)
    made = context.engine.mapped(narrow, within, function, types)
    context.produce("log", context.pipeline, made, options)
    return made


_NOT_TOLD = ("counter", "pid", "tid", "cpu", "ts", "start", "end", "err_ns", "start_err")
"""Columns that a line does not tell unless asked for them: the machine's, instants, maximum errors.
"""


def lines(
    batches: Batches, within: Sequence[str], told: Sequence[str], types: Mapping[str, str]
) -> Batches:
    """The rows of a readable log: the columns ``within``, and a `line`.

    It is made of `_since` and `_half` (ns) and what is told.
    """
    schema = arrow_schema(types)
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            second, rest = divmod(row["_since"], 1_000_000_000)
            when = f"{second:6d}.{rest:09d} s"
            if row["_half"] != 0:
                when += f" {'± unknown' if row['_half'] is None else maximum_error(row['_half'])}"
            half = row.get("err_ns") if "err_ns" not in told else None
            words = [_word(name, row[name], half) for name in told if row[name] is not None]
            rows.append({**{name: row[name] for name in within}, "line": "  ".join([when, *words])})
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _word(name: str, value: Any, half: int | None) -> str:
    if name in ("host", "process", "source"):
        return str(value)
    if name == "duration":
        return f"{name} {duration(value)}" + (f" {maximum_error(half)}" if half is not None else "")
    return f"{name} {value}"


def write(product: Product, engine: Engine, folder: Path) -> tuple[list[Path], int]:
    """Writes what a step leaves; the files, and how many rows they are of. Raises OSError."""
    rows = _with_units(engine.rows(product.table, product.order), product.units)
    if product.kind == "table":
        form = product.options["format"]
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        file = folder / "tables" / f"{product.name}.{form}"
        counted = _Counted(rows)
        write_batches(pa.RecordBatchReader.from_batches(rows.schema, counted), form, file)
        return [file], counted.rows
    if product.kind == "log":
        file = folder / f"{product.name}.txt"
        return [file], _write_log(rows, file)
    table = rows.read_all()
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    return list(_draw(product, table, folder / "figures")), table.num_rows


def _with_units(rows: pa.RecordBatchReader, units: Mapping[str, str]) -> pa.RecordBatchReader:
    """The batches with the metadata `unit` of columns whose names do not say theirs."""
    schema = pa.schema(
        field
        if units.get(field.name, "") == unit_of_name(field.name)
        else field.with_metadata({"unit": units.get(field.name, "")})
        for field in rows.schema
    )
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in rows))


class _Counted:
    """Batches of ``ROWS`` rows, so that files do not depend on how an engine cuts them."""

    def __init__(self, batches: pa.RecordBatchReader) -> None:
        self.rows = 0
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        count = 0
        for batch in self._batches:
            self.rows += batch.num_rows
            held.append(batch)
            count += batch.num_rows
            while count >= ROWS:
                table = pa.Table.from_batches(held).combine_chunks()
                yield table.slice(0, ROWS).to_batches()[0]
                held = table.slice(ROWS).to_batches()
                count -= ROWS
        if count:
            yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _write_log(rows: pa.RecordBatchReader, file: Path) -> int:
    count = 0
    shown: tuple[Any, ...] = ()
    with file.open("w", encoding="utf-8") as log:
        for batch in rows:
            within = [name for name in ("run", "point", "repeat") if name in batch.schema.names]
            for row in batch.to_pylist():
                place = tuple(row[name] for name in within)
                if place != shown:
                    log.write(", ".join(f"{name} {row[name]}" for name in within) + "\n")
                    shown = place
                log.write(row["line"] + "\n")
                count += 1
    return count


def _check_figure(kind: str, columns: Mapping[str, str], table: ibis.Table) -> None:
    from loopscope.report import figures

    try:
        figures.check(kind, columns)
    except figures.FigureError as error:
        raise Mistake(str(error), ("columns",)) from None
    roles = [*figures.KINDS[kind].needs, *figures.KINDS[kind].takes]
    for role, name in columns.items():
        if role in roles:
            column(table, name, ("columns", role))


def _draw(product: Product, table: pa.Table, folder: Path) -> Sequence[Path]:
    from loopscope.report import figures

    options = product.options
    return figures.draw(
        options["kind"],
        table,
        folder,
        product.name,
        columns=options["columns"],
        title=options["title"],
        width=options["width"],
    )
