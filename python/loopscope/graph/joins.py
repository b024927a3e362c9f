"""Steps that put tables together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ibis

from loopscope.graph.engine import as_types, types_of
from loopscope.graph.mistake import WHOLE, Mistake, column, kind_of, repeats, scope

if TYPE_CHECKING:
    from loopscope.graph.build import Context

    Options = Mapping[str, Any]


def merge(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    tables = {context.label: table}
    for name in options["with"]:
        if name in tables:
            raise Mistake(f"{name!r} is merged with itself", ("with",))
        tables[name] = context.table(name, ("with",))
    label = options["label"]
    types: dict[str, str] = {}
    for name, each in tables.items():
        if label in each.columns:
            raise Mistake(f"{name} has a column {label!r}: give label another name", ("label",))
        for held, dtype in types_of(each).items():
            if types.setdefault(held, dtype) != dtype:
                raise Mistake(
                    f"the column {held!r} is {kind_of(ibis.dtype(dtype)).name} in {name} and "
                    f"{kind_of(ibis.dtype(types[held])).name} before: rename one",
                    ("with",),
                )
    types[label] = "string"
    return ibis.union(
        *(
            as_types(each.mutate(**{label: ibis.literal(name, "string")}), types)
            for name, each in tables.items()
        )
    )


def join(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    other = context.table(options["with"], ("with",))
    on = _shared(table, other, options["on"], "on", options["with"])
    return _beside(table, other, on, options["how"], options["suffix"])


def as_of(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    """Join by time, computed with ranks, since engines do not agree on such joins.

    The largest rank of the other table's rows that come before a row, both tables in one order, is
    that of the last one.
    """
    other = context.table(options["with"], ("with",))
    time = options["time"]
    other_time = options["other"] or time
    column(table, time, ("time",), WHOLE)
    column(other, other_time, ("other",), WHOLE, of=options["with"])
    repeats(table)
    repeats(other, options["with"])
    by = _shared(table, other, options["by"], "by", options["with"])
    other = other.filter(other[other_time].notnull())
    rest = [name for name in other.columns if name not in (*by, other_time)]
    ranked = other.mutate(
        _rank=ibis.row_number().over(
            ibis.window(
                group_by=by or None,
                order_by=[
                    other[other_time].asc(),
                    *(other[name].asc(nulls_first=False) for name in rest),
                ],
            )
        )
    )
    columns = [*by, *(name for name in table.columns if name not in by)]
    left = table.select(
        *columns, _at=table[time], _side=ibis.literal(1, "int64"), _rank=ibis.null("int64")
    )
    right = ranked.select(
        **{name: ranked[name] for name in by},
        **{name: ibis.literal(None, type=table[name].type()) for name in columns if name not in by},
        _at=ranked[other_time],
        _side=ibis.literal(0, "int64"),
        _rank=ranked["_rank"].cast("int64"),
    )
    both = ibis.union(left, as_types(right, types_of(left)))
    before = ibis.window(
        group_by=by or None,
        order_by=[both["_at"].asc(nulls_first=False), both["_side"].asc()],
        preceding=None,
        following=0,
    )
    both = both.mutate(_last=both["_rank"].max().over(before))
    asked = both.filter(both["_side"] == 1)
    if time in table.columns:
        asked = asked.mutate(_last=asked[time].isnull().ifelse(ibis.null("int64"), asked["_last"]))
    asked = asked.drop("_at", "_side", "_rank").rename(_rank="_last")
    ranked = as_types(ranked, types_of(ranked))
    if options["within"] is not None:
        ranked = ranked.mutate(_since=ranked[other_time])
    made = _beside(asked, ranked, [*by, "_rank"], "left", options["suffix"])
    if options["within"] is not None:
        near = made[time] - made["_since"] <= ibis.literal(options["within"], "int64")
        added = [name for name in made.columns if name not in table.columns]
        made = made.mutate(
            **{name: near.ifelse(made[name], ibis.null(made[name].type())) for name in added}
        ).drop("_since")
    return made.drop("_rank")


def _shared(
    table: ibis.Table, other: ibis.Table, names: Sequence[str], key: str, of: str
) -> list[str]:
    """The columns of a join: those named, and the repeat's where both have them."""
    for name in names:
        mine = column(table, name, (key,))
        theirs = column(other, name, (key,), of=of)
        kinds = kind_of(mine.type()), kind_of(theirs.type())
        if kinds[0] != kinds[1]:
            raise Mistake(
                f"the column {name!r} is {kinds[0].name} here and {kinds[1].name} in {of}", (key,)
            )
    both = [name for name in scope(table) if name in other.columns and name not in names]
    return [*both, *names]


def _beside(
    table: ibis.Table, other: ibis.Table, on: Sequence[str], how: str, suffix: str
) -> ibis.Table:
    """Both tables' columns, those of ``on`` once."""
    names = {
        name: name + suffix if name in table.columns else name
        for name in other.columns
        if name not in on
    }
    new = [*table.columns, *names.values()]
    doubled = next((name for name in new if new.count(name) > 1), None)
    if doubled is not None:
        raise Mistake(f"there would be two columns {doubled!r}: give another suffix", ("suffix",))
    right = other.select(
        **{f"_on_{name}": other[name] for name in on},
        **{new: other[name] for name, new in names.items()},
    )
    joined = table.join(right, [table[name] == right[f"_on_{name}"] for name in on], how=how)
    return joined.select(*new)
