"""The step that judges the rows of a table by a limit, as `expect` judges messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopscope.analysis.deadline import Tally, timed
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.graph.engine import as_types, types_of
from loopscope.graph.mistake import REAL, TEXT, TRUTH, WHOLE, column
from loopscope.graph.sampling import stretches

if TYPE_CHECKING:
    from loopscope.graph.build import Context
    from loopscope.graph.engine import Batches

    Options = Mapping[str, Any]

_GIVEN = {
    "limit": "int64",
    "count": "int64",
    "met": "int64",
    "missed": "int64",
    "undecided": "int64",
    "allowed": "int64",
    "verdict": "string",
}


def deadline(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    by = options["by"]
    given = {"_value": column(table, options["of"], ("of",), WHOLE)}
    given["_width"] = ibis.literal(0, "int64")
    if options["width"] != "none":
        given["_width"] = column(table, options["width"], ("width",), WHOLE)
    for name in by:
        column(table, name, ("by",), WHOLE, REAL, TEXT, TRUTH)
    narrow = table.select(*by, **given, _row=ibis.literal(1, "int64"))
    types = {name: types_of(narrow)[name] for name in by} | _GIVEN
    if not by:
        # An empty table has a verdict as well, and a function is not called without rows.
        none = as_types(narrow.aggregate(_row=narrow.count() * 0), types_of(narrow))
        narrow = ibis.union(as_types(narrow, types_of(narrow)), none)
    function = partial(judged, by=tuple(by), options=dict(options), types=types)
    return context.engine.mapped(narrow, by, function, types)


def judged(
    batches: Batches, by: Sequence[str], options: Options, types: Mapping[str, str]
) -> Batches:
    """The verdicts on the columns `_value` and `_width` (ns), a row for each group.

    The batches are in the order of ``by``; `_row` is 0 in a row that stands for none.
    """
    from loopscope.graph.engine import arrow_schema

    tally: Tally | None = None
    key: tuple[Any, ...] = ()

    def row(tally: Tally) -> pa.RecordBatch:
        allowed = _allowed(options["misses"], len(tally))
        found = {
            "limit": options["limit"],
            "count": len(tally),
            "met": tally.met,
            "missed": tally.missed,
            "undecided": tally.undecided,
            "allowed": allowed,
            "verdict": str(tally.verdict(allowed)),
        }
        rows = [dict(zip(by, key, strict=True)) | found]
        return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(types))

    for found, part in stretches(batches, by):
        if tally is None or found != key:
            if tally is not None:
                yield row(tally)
            tally, key = Tally(), found
        _add(tally, part.filter(pc.equal(part["_row"], 1)), options["limit"])
    if tally is not None:
        yield row(tally)


def _add(tally: Tally, part: pa.RecordBatch, limit: int) -> None:
    n = len(part)
    nothing = np.zeros(n, np.int64)
    tally.add(
        timed(
            repeat=nothing,
            id=nothing,
            time=nothing,
            value=part["_value"].fill_null(0).to_numpy(zero_copy_only=False),
            err=part["_width"].fill_null(UNKNOWN_NS).to_numpy(zero_copy_only=False),
            lost=part["_value"].is_null().to_numpy(zero_copy_only=False),
            op="<",
            limit=limit,
        )
    )


def _allowed(misses: Mapping[str, int | float], count: int) -> int:
    share = misses.get("ppm")
    # A share in billionths, so that the product of whole numbers is exact.
    return int(misses["rows"]) if share is None else count * round(share * 1000) // 10**9
