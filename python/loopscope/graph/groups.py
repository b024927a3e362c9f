"""Steps that make one row of many."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import ibis

from loopscope.graph.engine import as_types, types_of
from loopscope.graph.formulas import floor_to, group_value, whole_ratio
from loopscope.graph.mistake import REAL, TEXT, TRUTH, WHOLE, Mistake, column, refused_if, repeats

if TYPE_CHECKING:
    from loopscope.graph.build import Context

    Options = Mapping[str, Any]


def group(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    for name in options["by"]:
        column(table, name, ("by",))
    made = _derived(table, options, options["by"])
    return (table.group_by(options["by"]) if options["by"] else table).aggregate(**made)


_STRETCHES = 100_000_000
"""Largest number of stretches of a repeat."""


def resample(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    """Each stretch has a row that stands for none, so that a group of nothing is counted too."""
    time = column(table, options["time"], ("time",), WHOLE)
    for name in options["by"]:
        column(table, name, ("by",))
    within = repeats(table)
    alike = [*within, *(name for name in options["by"] if name not in within)]
    every = options["every"]
    table = table.filter(time.notnull())
    span = ibis.window(group_by=within)
    time = table[options["time"]]
    first = time.min().over(span)
    timed = table.mutate(_first=first, _last=time.max().over(span))
    since = timed[options["time"]] - timed["_first"]
    rows = timed.mutate(
        _start=timed["_first"] + floor_to(since, every), _here=ibis.literal(1, "int64")
    )
    spans = rows.select(*alike, "_first", "_last").distinct()
    length = ibis.literal(every, "int64")
    stretches = whole_ratio(spans["_last"] - spans["_first"], length) + 1
    many = stretches.cast("string") + f" stretches are more than {_STRETCHES}: choose longer ones"
    stretches = refused_if(stretches > _STRETCHES, many, stretches)
    grid = spans.mutate(_n=ibis.range(ibis.literal(0, "int64"), stretches).unnest())
    grid = grid.mutate(
        _start=grid["_first"] + grid["_n"].cast("int64") * length, _here=ibis.literal(0, "int64")
    )
    grid = grid.drop("_n")
    types = types_of(rows)
    both = ibis.union(as_types(rows, types), as_types(grid, types))
    made = _derived(both, options, (*alike, "_start"), here="_here")
    return both.group_by([*alike, "_start"]).aggregate(**made).rename(start="_start")


def _derived(
    table: ibis.Table, options: Options, by: tuple[str, ...], here: str | None = None
) -> dict[str, Any]:
    taken = [name for name in options["derive"] if name in by or (here and name == "start")]
    if taken:
        raise Mistake(f"there would be two columns {taken[0]!r}", ("derive", taken[0]))
    return {
        name: group_value(table, text, ("derive", name), by, here)
        for name, text in options["derive"].items()
    }


def histogram(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    value = column(table, options["of"], ("of",), WHOLE)
    for name in options["by"]:
        column(table, name, ("by",))
        if name in ("low", "high", "count"):
            raise Mistake(f"there would be two columns {name!r}", ("by",))
    size = options["bin"]
    if size != int(size):
        raise Mistake(f"bins of {size} are not whole", ("bin",))
    table = table.filter(value.notnull())
    binned = table.mutate(low=floor_to(table[options["of"]], int(size)))
    counted = binned.group_by([*options["by"], "low"]).aggregate(count=binned.count())
    high = counted["low"] + ibis.literal(int(size), "int64")
    return counted.select(*options["by"], "low", high=high, count=counted["count"])


def statistics(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    from loopscope.graph.sampling import COLUMNS, statistics_of

    value = column(table, options["of"], ("of",), WHOLE, REAL)
    given = {"_value": value}
    if options["width"] != "none":
        column(table, options["of"], ("of",), WHOLE)
        given["_width"] = column(table, options["width"], ("width",), WHOLE)
    by = options["by"]
    for name in by:
        column(table, name, ("by",), WHOLE, REAL, TEXT, TRUTH)
        if name in COLUMNS:
            raise Mistake(f"there would be two columns {name!r}", ("by",))
    narrow = table.select(*by, **given)
    types = {name: types_of(narrow)[name] for name in by} | COLUMNS
    function = partial(statistics_of, by=tuple(by), options=dict(options), types=types)
    return context.engine.mapped(narrow, by, function, types)
