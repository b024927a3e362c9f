"""Steps on instants and intervals, whose half-widths add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ibis

from loopscope.analysis.quantity import UNKNOWN_NS
from loopscope.experiment.problem import nearest
from loopscope.graph.formulas import whole_ratio
from loopscope.graph.mistake import SCOPE, WHOLE, Mistake, column, repeats, scope

if TYPE_CHECKING:
    from loopscope.experiment import MessagePath
    from loopscope.graph.build import Context

    Options = Mapping[str, Any]


def pair(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    ends = context.table(options["with"], ("with",))
    time, width, key = options["time"], options["width"], options["key"]
    kept = [name for name in options["keep"] if name not in key]
    for each, of in ((table, "the table"), (ends, options["with"])):
        column(each, time, ("time",), WHOLE, of=of)
        column(each, width, ("width",), WHOLE, of=of)
        for name in key:
            column(each, name, ("key",), of=of)
    for name in kept:
        column(table, name, ("keep",))
        if name in ("start", "end", "duration", "err_ns", *SCOPE):
            raise Mistake(f"there would be two columns {name!r}", ("keep",))
    repeats(ends, options["with"])
    within = [*repeats(table), *(name for name in key if name not in SCOPE)]

    def numbered(each: ibis.Table) -> ibis.Table:
        """With the number of the row among those of its key."""
        rest = [name for name in each.columns if name not in (*within, time)]
        order = [each[time].asc(), *(each[name].asc(nulls_first=False) for name in rest)]
        return each.mutate(_n=ibis.row_number().over(ibis.window(group_by=within, order_by=order)))

    starts, ends = numbered(table), numbered(ends)
    right = ends.select(
        **{f"_on_{name}": ends[name] for name in within},
        _on_n=ends["_n"],
        _end=ends[time],
        _width=ends[width],
    )
    alike = [starts[name] == right[f"_on_{name}"] for name in within]
    joined = starts.join(right, [*alike, starts["_n"] == right["_on_n"]], how="left")
    return joined.select(
        *within,
        start=joined[time],
        end=joined["_end"],
        duration=joined["_end"] - joined[time],
        err_ns=added(joined[width], joined["_width"]),
        **{name: joined[name] for name in kept},
    )


def added(one: Any, other: Any) -> Any:
    """The sum of two half-widths, unknown where one is."""
    unknown = ibis.literal(UNKNOWN_NS, "int64")
    return ((one >= unknown) | (other >= unknown)).ifelse(unknown, one + other)


def path(context: Context, table: None, options: Options) -> ibis.Table:
    known, messages = context.path(options["name"], ("name",))
    first = _event(known, options["first"], "first", 0)
    last = _event(known, options["last"], "last", len(known.events) - 1)
    if first >= last:
        raise Mistake(
            f"{known.events[first]} does not come before {known.events[last]} in {known.name!r}",
            ("first",),
        )
    start, end = messages[f"ts_{first}"], messages[f"ts_{last}"]
    if (first, last) == known.loop:
        duration, width = messages["latency"], messages["latency_err"]
    elif last == first + 1:
        duration, width = messages[f"hop_{first}"], messages[f"hop_err_{first}"]
    else:
        duration, width = end - start, added(messages[f"err_{first}"], messages[f"err_{last}"])
    shared = [*scope(messages), *(c for c in messages.columns if c.startswith("point_"))]
    return messages.select(
        *shared,
        "id",
        start=start,
        start_err=messages[f"err_{first}"],
        end=end,
        duration=duration,
        err_ns=width,
    )


def _event(path: MessagePath, name: str | None, key: str, default: int) -> int:
    events = [str(event) for event in path.events]
    if name is None:
        return default
    if name not in events:
        raise Mistake(
            f"the path {path.name!r} has no event {name!r}", (key,), nearest(name, events)
        )
    return events.index(name)


def deadline(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    zero, one = ibis.literal(0, "int64"), ibis.literal(1, "int64")
    value = column(table, options["of"], ("of",), WHOLE)
    width = zero
    if options["width"] != "none":
        width = column(table, options["width"], ("width",), WHOLE)
    for name in options["by"]:
        column(table, name, ("by",))
    limit = ibis.literal(options["limit"], "int64")
    known = value.notnull() & width.notnull() & (width < ibis.literal(UNKNOWN_NS, "int64"))
    met = known & (value + width < limit)
    missed = known & (value - width >= limit)

    def rows(condition: Any) -> Any:
        return condition.ifelse(one, zero).fill_null(zero).sum().cast("int64").fill_null(zero)

    grouped = table.group_by(options["by"]) if options["by"] else table
    counts = grouped.aggregate(count=table.count(), met=rows(met), missed=rows(missed))
    share = options["misses"].get("ppm")
    if share is None:
        allowed = ibis.literal(options["misses"]["rows"], "int64")
    else:
        # A share in billionths, so that the product of whole numbers is exact.
        whole = counts["count"] * ibis.literal(round(share * 1000), "int64")
        allowed = whole_ratio(whole, ibis.literal(10**9, "int64"))
    undecided = counts["count"] - counts["met"] - counts["missed"]
    verdict = ibis.cases(
        (counts["missed"] > allowed, "FAIL"),
        (counts["missed"] + undecided <= allowed, "PASS"),
        else_="UNKNOWN",
    )
    return counts.select(
        *options["by"],
        limit=limit,
        count=counts["count"],
        met=counts["met"],
        missed=counts["missed"],
        undecided=undecided,
        allowed=allowed,
        verdict=verdict,
    )
