"""The way of items to other hosts as rows of text, the same on the terminal and on the page."""

from __future__ import annotations

from loopscope.analysis.channel_result import REMOTE_TIMES, RemoteItems, RemotePart
from loopscope.analysis.quantity_text import duration, maximum_error, number
from loopscope.analysis.results import Results
from loopscope.report.link_rows import Row, Table
from loopscope.report.rows import ABSENT, Cell
from loopscope.report.thread_names import every_thread, has_others

HEADINGS = ("items", "without", *REMOTE_TIMES, "clock error")


def remote_item_table(results: Results) -> Table:
    """A row for each reader on another host, and below it one for each part of the way."""
    remote = results.channels.remote_items if results.channels else ()
    note = (
        "Items that a thread of another host got, each once: how long the home's program, its "
        "service, the network with both services, and the other host took. Without are those of "
        "which a record of either end is missing."
    )
    undecided = sum(each.undecided_sent for each in remote)
    if undecided:
        note += (
            f" Of {number(undecided)} it is open which sending was to this host, because the home "
            "sent them to several: they have neither of the two parts."
        )
    missing = [each.missing for each in remote if each.missing != 0]
    if missing:
        known = [each for each in missing if each is not None]
        many = f"Up to {number(sum(known))}" if len(known) == len(missing) else "An unknown number"
        note += f" {many} of the records of what was got may be missing: nothing says so of them."
    rows = tuple(row for each in remote for row in _rows(each, results))
    return Table("remote-items", "Items to other hosts", HEADINGS, rows, note)


def reader(of: RemoteItems, results: Results) -> str:
    """The channel and who gets its items, as a person reads it."""
    channels = results.channels
    threads = every_thread(channels) if channels else []
    thread = f" thread {of.tid}" if has_others(of, threads) else ""
    repeat = f", repeat {of.repeat}" if results.repeats > 1 else ""
    return f"{of.channel} of {of.home} → {of.component} of {of.host}{thread}{repeat}"


def parts(of: RemoteItems) -> dict[str, RemotePart]:
    """The parts of the way by their names, in order."""
    return {
        f"put → sent on {of.home}": of.put_to_sent,
        f"{of.home} sent → {of.host} received": of.sent_to_received,
        f"received → got on {of.host}": of.received_to_got,
    }


def _rows(of: RemoteItems, results: Results) -> list[Row]:
    return [
        Row(reader(of, results), _cells(of.whole, of.items), heads=True),
        *(Row(f"  {name}", _cells(part, of.items)) for name, part in parts(of).items()),
    ]


def _cells(part: RemotePart, items: int) -> tuple[Cell, ...]:
    times = (part.times[name] for name in REMOTE_TIMES)
    counts = (part.items, items - part.items)
    return (
        *(Cell(number(count), count) for count in counts),
        *(Cell(ABSENT, None) if ns is None else Cell(duration(ns), ns) for ns in times),
        Cell(_clock_error(part), part.err_ns),
    )


def _clock_error(part: RemotePart) -> str:
    if not part.items:
        return ABSENT
    return "± unknown" if part.err_ns is None else maximum_error(part.err_ns)
