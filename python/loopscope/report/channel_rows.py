"""Channels of space-time memory as rows of text, the same on the terminal and on the page."""

from __future__ import annotations

from loopscope.analysis.channel_layers import Layer, layer
from loopscope.analysis.channel_result import ChannelUse, ThreadTimes
from loopscope.analysis.quantity_text import duration, number, quantity
from loopscope.analysis.results import Results
from loopscope.report.link_rows import Row, Table
from loopscope.report.remote_item_rows import remote_item_table
from loopscope.report.rows import ABSENT, Cell

# What is known of each layer besides its time by the clock: processor time, memory, locks.
_INSIDE = {
    "application": ("application_cpu", None, None),
    "blocked": (None, None, None),
    "runtime": ("runtime_cpu", "memory", "synchronisation"),
    "messaging": ("messaging_cpu", None, "messaging_synchronisation"),
}


def channel_tables(results: Results) -> list[Table]:
    """What the channels counted, and how threads spent their time at them."""
    tables = (
        *(_channels(results), _uses(results), remote_item_table(results)),
        *(_threads(results), _layers(results)),
    )
    return [table for table in tables if table.rows]


def _channels(results: Results) -> Table:
    channels = results.channels.channels if results.channels else ()
    rows = tuple(
        Row(
            f"{each.channel} of {each.host}{_repeat(each.repeat, results)}",
            tuple(
                Cell(number(count), count)
                for count in (each.put, each.collected, each.dropped, each.left, each.capacity)
            ),
        )
        for each in channels
    )
    return Table(
        name="channels",
        title="Channels",
        headings=("put", "collected", "dropped", "left", "capacity"),
        rows=rows,
        note="Items. Dropped ones, which had to make room, are among the collected ones, whose "
        "slot was free again; left are those that the channel had at the end.",
    )


def _uses(results: Results) -> Table:
    uses = results.channels.uses if results.channels else ()
    return Table(
        name="channel-uses",
        title="Who puts and gets",
        headings=("items", "rate", "bytes", "bytes a second"),
        rows=tuple(Row(_edge(each, results), _amounts(each)) for each in uses),
        note="Of each thread and channel; got again counts again. Looked: a copy of the newest "
        "item. Rates are from the first item to the last one.",
    )


def _edge(of: ChannelUse, results: Results) -> str:
    thread, channel = _thread(of, results), of.channel
    if of.event == "put":
        return f"{thread} → {channel}"
    return f"{channel} → {thread}" + (" (looked)" if of.event == "looked" else "")


def _amounts(of: ChannelUse) -> tuple[Cell, ...]:
    rate = ABSENT if of.rate_hz is None else quantity(of.rate_hz, "Hz")
    flow = ABSENT if of.rate_hz is None else quantity(of.rate_hz * of.bytes / of.items, "B/s")
    return (
        Cell(number(of.items), of.items),
        Cell(rate, of.rate_hz),
        Cell(quantity(of.bytes, "B"), of.bytes),
        Cell(flow, None),
    )


def _threads(results: Results) -> Table:
    threads = results.channels.threads if results.channels else ()
    missing = [each.missing for each in threads if each.missing != 0]
    note = (
        "From a thread's first call of a channel to the end of its last one: application is the "
        "time between calls, blocked what it waited in them for an item or for room, runtime the "
        "rest of them. Polls that found nothing are the application's. A service's threads "
        "relay items between hosts: blocked is the time in which they waited for something to do, "
        "messaging that in which they sent or received, and they have messages instead of calls. "
        "These are times by the clock, also where another thread had the processor."
    )
    if missing:
        known = [each for each in missing if each is not None]
        many = f"Up to {number(sum(known))}" if len(known) == len(missing) else "An unknown number"
        note += f" {many} of their records may be missing: such a call counts as application."
    return Table(
        name="channel-threads",
        title="Threads at channels",
        headings=("calls", "time", "application", "blocked", "runtime", "messaging"),
        rows=tuple(Row(_thread(each, results), _times(each)) for each in threads),
        note=note,
    )


def _thread(of: ThreadTimes | ChannelUse, results: Results) -> str:
    uses = results.channels.uses if results.channels else ()
    threads = results.channels.threads if results.channels else ()
    every: tuple[ThreadTimes | ChannelUse, ...] = (*uses, *threads)
    of_component = {
        each.tid for each in every if (each.repeat, each.component) == (of.repeat, of.component)
    }
    thread = "" if len(of_component) == 1 else f" thread {of.tid}"
    name = "service" if of.component.startswith("_") else of.component
    return f"{name} of {of.host}{thread}{_repeat(of.repeat, results)}"


def _times(of: ThreadTimes) -> tuple[Cell, ...]:
    times = (of.application_ns, of.blocked_ns, of.runtime_ns, of.messaging_ns)
    return (
        Cell(number(of.calls), of.calls),
        Cell(duration(of.time_ns), of.time_ns),
        *(Cell(_with_share(ns, of.time_ns), ns) for ns in times),
    )


def _layers(results: Results) -> Table:
    threads = results.channels.threads if results.channels else ()
    note = (
        "Sums of all threads; CPU time of those of which the kernel's events tell it. Memory is "
        "the taking and freeing of items' places, synchronisation that of locks and the waking of "
        "others, both in the layer's time, with what recording them takes."
    )
    rows = tuple(
        Row(name, tuple(_part(layer(threads, each) if each else None) for each in (name, *inside)))
        for name, inside in _INSIDE.items()
    )
    return Table(
        name="channel-layers",
        title="Layers of the threads at channels",
        headings=("time", "CPU time", "memory", "synchronisation"),
        rows=rows if threads else (),
        note=note,
    )


def _part(of: Layer | None) -> Cell:
    if of is None:
        return Cell(ABSENT, None)
    if of.unknown:
        # What they share says nothing of the other threads.
        return Cell(f"{duration(of.ns)} of {of.threads} threads", of.ns)
    return Cell(_with_share(of.ns, of.whole_ns), of.ns)


def _with_share(ns: int, whole_ns: int) -> str:
    share = f"{100 * ns / whole_ns:.1f} %" if whole_ns else "none"
    return f"{duration(ns)} ({share})"


def _repeat(repeat: int, results: Results) -> str:
    return f", repeat {repeat}" if results.repeats > 1 else ""
