"""Steps that keep, leave out, or widen rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ibis

from loopscope.graph.formulas import row_value, window_value
from loopscope.graph.mistake import REAL, TEXT, TIMES, TRUTH, WHOLE, Mistake, column, repeats, scope

if TYPE_CHECKING:
    from loopscope.graph.build import Context

    Options = Mapping[str, Any]


def select(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    for i, name in enumerate(options["columns"]):
        column(table, name, (i,))
    return table.select(*options["columns"])


def where(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    return table.filter(row_value(table, options["condition"], (), TRUTH))


def trim(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    time = column(table, options["time"], ("time",), WHOLE)
    whole = ibis.window(group_by=repeats(table))
    kept = table.mutate(
        _first=time.min().over(whole),
        _last=time.max().over(whole),
    )
    kept = kept.filter(
        kept[options["time"]] - kept["_first"] >= ibis.literal(options["first"], "int64"),
        kept["_last"] - kept[options["time"]] >= ibis.literal(options["last"], "int64"),
    )
    return kept.drop("_first", "_last")


def rename(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    names = dict(options["columns"])
    for old in names:
        column(table, old, (old,))
    new = [names.get(name, name) for name in table.columns]
    for old, name in names.items():
        if new.count(name) > 1:
            raise Mistake(f"there would be two columns {name!r}", (old,))
    return table.rename({new: old for old, new in names.items()})


def derive(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    for name, text in options["columns"].items():
        table = table.mutate(**{name: row_value(table, text, (name,))})
    return table


def top(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    value = column(table, options["of"], ("of",), WHOLE, REAL, TEXT)
    for name in options["by"]:
        column(table, name, ("by",))
    table = table.filter(value.notnull())
    first = table[options["of"]]
    order = [first.asc() if options["least"] else first.desc()]
    order += [table[name].asc(nulls_first=False) for name in table.columns if name != options["of"]]
    place = ibis.row_number().over(ibis.window(group_by=options["by"] or None, order_by=order))
    ranked = table.mutate(_place=place)
    return ranked.filter(ranked["_place"] < options["rows"]).drop("_place")


def window(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    order = column(table, options["order"], ("order",), WHOLE)
    for name in options["by"]:
        column(table, name, ("by",))
    apart = repeats(table) if options["order"] in TIMES else scope(table)
    within = [*apart, *(name for name in options["by"] if name not in apart)]
    # Rows of the same time have an order too, or two runs could differ.
    others = [name for name in table.columns if name not in (*within, options["order"])]
    each = [order.asc(), *(table[name].asc(nulls_first=False) for name in others)]
    neighbours = ibis.window(group_by=within or None, order_by=each)
    if options["time"] is not None:
        frame = ibis.range_window(
            preceding=ibis.literal(options["time"], "int64"),
            following=0,
            group_by=within or None,
            order_by=order,
        )
    else:
        before = None if options["rows"] is None else options["rows"] - 1
        frame = ibis.rows_window(
            preceding=before, following=0, group_by=within or None, order_by=each
        )
    made = {
        name: window_value(table, text, ("derive", name), frame, neighbours)
        for name, text in options["derive"].items()
    }
    return table.mutate(**made)
