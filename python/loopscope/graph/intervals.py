"""Steps on instants and intervals, whose maximum errors add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ibis

from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.experiment.problem import nearest
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
    counted = _counted(context, starts, ends, time, width)
    right = ends.select(
        **{f"_on_{name}": ends[name] for name in within},
        _on_n=ends["_n"],
        _end=ends[time],
        _width=ends[width],
        **({f"_on_{name}": ends[name] for name in _COUNTER} if counted else {}),
    )
    alike = [starts[name] == right[f"_on_{name}"] for name in within]
    joined = starts.join(right, [*alike, starts["_n"] == right["_on_n"]], how="left")
    made = joined.select(
        *within,
        start=joined[time],
        end=joined["_end"],
        duration=joined["_end"] - joined[time],
        err_ns=added(joined[width], joined["_width"]),
        **{name: joined[name] for name in kept},
        **({f"_{name}": joined[name] for name in _COUNTER} if counted else {}),
        **({f"_on_{name}": joined[f"_on_{name}"] for name in _COUNTER} if counted else {}),
    )
    return _narrowed(context, made) if counted else made


_COUNTER = ("host", "counter")
"""Columns of a stamp: the host of its counter, and the counter's value."""


def _counted(context: Context, starts: ibis.Table, ends: ibis.Table, time: str, width: str) -> bool:
    """Whether both tables have the stamps of events, and the hosts' rates are known."""
    needed = {*SCOPE, *_COUNTER}
    stamps = (time, width) == ("ts", "err_ns")
    both = needed <= set(starts.columns) and needed <= set(ends.columns)
    return stamps and both and "hosts" in context.stored


def _narrowed(context: Context, made: ibis.Table) -> ibis.Table:
    """Intervals, with less than the sum of both ends' errors where one host's counter claims less.

    It claims a maximum error of intervals between two of its stamps, as in a path
    (`analysis.maximum_error`).
    """
    hosts = context.table("hosts", ("with",))
    # Runs of earlier versions do not say what processors are apart.
    apart = hosts["apart_ns"].fill_null(0) if "apart_ns" in hosts.columns else ibis.literal(0)
    rates = hosts.select(
        **{f"_at_{name}": hosts[name] for name in (*SCOPE, "host")},
        _drift=hosts["drift_ppm"],
        _apart=apart,
    )
    alike = [made[name] == rates[f"_at_{name}"] for name in SCOPE]
    joined = made.join(rates, [*alike, made["_host"] == rates["_at_host"]], how="left")
    length = joined["duration"].abs().cast("float64")
    wander = (length * (joined["_drift"] * ibis.literal(2e-6, "float64"))).ceil()
    wander = wander + joined["_apart"] + 1
    one = (joined["_host"] == joined["_on_host"]) & (
        joined["_counter"].notnull() & joined["_on_counter"].notnull()
    )
    narrower = one & (wander < joined["err_ns"])
    widths = narrower.ifelse(wander.cast("int64"), joined["err_ns"])
    names = [name for name in made.columns if not name.startswith("_")]
    return joined.select(
        **{
            name: ibis.coalesce(widths, joined["err_ns"]) if name == "err_ns" else joined[name]
            for name in names
        }
    )


def added(one: Any, other: Any) -> Any:
    """The sum of two maximum errors, unknown where one is."""
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
        *(["key"] if "key" in messages.columns else []),
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
