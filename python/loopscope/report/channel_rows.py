"""Channels of space-time memory as rows of text, the same on the terminal and on the page."""

from __future__ import annotations

from loopscope.analysis.channel_result import ChannelUse, ThreadTimes
from loopscope.analysis.quantity_text import duration, number, quantity
from loopscope.analysis.results import Results
from loopscope.report.link_rows import Row, Table
from loopscope.report.rows import ABSENT, Cell


def channel_tables(results: Results) -> list[Table]:
    """What the channels counted, and how threads spent their time at them."""
    tables = _channels(results), _uses(results), _threads(results)
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
        "rest of them. Polls that found nothing are the application's. The last column is the "
        "runtime's share of the processor time that is not blocked, where the kernel's events "
        "tell it; the others are times by the clock, also where another thread had the processor."
    )
    if missing:
        known = [each for each in missing if each is not None]
        many = f"Up to {number(sum(known))}" if len(known) == len(missing) else "An unknown number"
        note += f" {many} of their records may be missing: such a call counts as application."
    return Table(
        name="channel-threads",
        title="Threads at channels",
        headings=("calls", "time", "application", "blocked", "runtime", "runtime of CPU time"),
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
    return f"{of.component} of {of.host}{thread}{_repeat(of.repeat, results)}"


def _times(of: ThreadTimes) -> tuple[Cell, ...]:
    def share(ns: int, whole_ns: int) -> str:
        return f"{100 * ns / whole_ns:.1f} %" if whole_ns else "none"

    times = (of.application_ns, of.blocked_ns, of.runtime_ns)
    cpu = of.application_cpu_ns, of.runtime_cpu_ns
    of_cpu = ABSENT if None in cpu else share(cpu[1] or 0, sum(ns or 0 for ns in cpu))
    return (
        Cell(number(of.calls), of.calls),
        Cell(duration(of.time_ns), of.time_ns),
        *(Cell(f"{duration(ns)} ({share(ns, of.time_ns)})", ns) for ns in times),
        Cell(of_cpu, None),
    )


def _repeat(repeat: int, results: Results) -> str:
    return f", repeat {repeat}" if results.repeats > 1 else ""
