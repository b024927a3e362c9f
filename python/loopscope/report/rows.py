"""The results as rows of text, the same on the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from loopscope.analysis.deciding_cases import Case
from loopscope.analysis.drop_reasons import reason_text
from loopscope.analysis.kernel_result import (
    Added,
    KernelAdded,
    KernelHistogram,
    KernelLoss,
    ToldEvents,
)
from loopscope.analysis.quantity_text import duration, maximum_error, number, quantity
from loopscope.analysis.results import (
    TIMES,
    ClockEvent,
    ClockResult,
    ExpectationResult,
    IntervalResult,
    LoopResult,
    LossResult,
    PatternResult,
    PatternRow,
    Results,
    ValueResult,
)
from loopscope.analysis.verdict import Verdict

ABSENT = "–"
"""Stands for what was not measured."""
_HEADINGS = {"p999": "p99.9"}


@dataclass(frozen=True)
class Cell:
    text: str
    value: int | float | None
    """Number that the text shows: ns, or a number of messages."""


@dataclass(frozen=True)
class IntervalRow:
    """A path, which has a name, or a hop, which has none."""

    name: str | None
    first: str
    last: str
    cells: tuple[Cell, ...]
    repeat: int | None = None
    """Number of the repeat of a row about one repeat alone."""

    @property
    def label(self) -> str:
        return self.name or f"  {self.ends}"

    @property
    def ends(self) -> str:
        return f"{self.first} → {self.last}" if self.repeat is None else f"repeat {self.repeat}"


def headings(results: Results) -> list[str]:
    """The headings of the columns that the table of paths and hops has for these results."""
    return [column.heading for column in _shown(results)]


def interval_rows(results: Results) -> list[IntervalRow]:
    """Every path, each followed by its repeats where there are several, and its hops."""
    columns = _shown(results)
    rows = []
    for path in results.paths:
        rows.append(_interval_row(path.name, path.loop, columns))
        for repeat, alone in (path.loop.by_repeat or {}).items():
            rows.append(replace(_interval_row(None, alone, columns), repeat=repeat))
        rows += [_interval_row(None, hop, columns) for hop in path.hops]
    return rows


def measured(expectation: ExpectationResult) -> str:
    """`412.3 µs ± 3.1 µs`, the number of messages, or of each of them what became of it."""
    value, err = expectation.measured, expectation.err_ns
    if value is None:
        return "not measured"
    if expectation.counts is not None:
        counts = expectation.counts
        parts = (
            f"{number(counts.met)} met, {number(counts.missed)} missed",
            f"{number(counts.undecided)} undecided" if counts.undecided else "",
            f"{number(counts.beyond)} beyond the end" if counts.beyond else "",
        )
        return ", ".join(filter(None, parts))
    if expectation.unit is not None:
        return quantity(value, expectation.unit)
    if not expectation.is_time:
        return number(int(value))
    return duration(value) + (f" {maximum_error(err)}" if err is not None else "")


SHOWN = 10
"""Largest number of cases that decided a verdict and are shown."""


def deciding(expectation: ExpectationResult) -> str:
    """Cases that decided a FAIL or UNKNOWN: `id 17 at 3.214 s: 12.31 ms ± 1.2 µs; …`; or empty."""
    if expectation.verdict is Verdict.PASS:
        return ""
    several = any(each.repeat > 1 for each in expectation.deciding)
    shown = []
    for each in expectation.deciding[:SHOWN]:
        of = f" of repeat {each.repeat}" if several else ""
        shown.append(f"id {each.id}{of} at {duration(each.at_ns)}: {_case(each)}")
    if rest := expectation.deciding_count - len(shown):
        shown.append(f"and {number(rest)} more")
    return "; ".join(shown)


def _case(case: Case) -> str:
    if case.lost:
        text = "lost"
    elif case.value_ns is None:
        text = "seen more than once"
    else:
        width = "± unknown" if case.err_ns is None else maximum_error(case.err_ns)
        text = f"{duration(case.value_ns)} {width}"
    text += " at the end" if case.at_end else ""
    return text + (" (undecided)" if case.undecided else "")


PATTERN_HEADINGS = ("type", "receiver", "n", "lost", "max", "target")
"""Headings of every pattern's columns, but for its verdict and the reason of that."""


def pattern_cells(row: PatternRow) -> tuple[Cell, ...]:
    """`t0-01 c1 100 0 1.204 ms ± 4.1 µs 40 ms`, a cell for each of `PATTERN_HEADINGS`."""
    slowest, target = row.times["max"], row.target_ns
    spread = "" if row.err_ns is None else f" {maximum_error(row.err_ns)}"
    return (
        Cell(row.message_type, None),
        Cell(row.receiver, None),
        Cell(number(row.count), row.count),
        Cell(number(row.lost), row.lost),
        Cell(ABSENT if slowest is None else duration(slowest) + spread, slowest),
        Cell(ABSENT if target is None else duration(target), target),
    )


def pattern_line(pattern: PatternResult) -> str:
    """`72 of 72 targets met`."""
    judged = [row for row in pattern.rows if row.verdict is not None]
    met = sum(row.verdict is Verdict.PASS for row in judged)
    return f"{met} of {len(judged)} targets met"


def value_rows(results: Results) -> list[tuple[ValueResult, str]]:
    """Each value with its number and unit, and those of single repeats."""
    return [
        (each, _number_of(each.value, each.unit) + _of_repeats(each)) for each in results.values
    ]


def _number_of(value: int | float | None, unit: str) -> str:
    return ABSENT if value is None else quantity(value, unit)


def _of_repeats(value: ValueResult) -> str:
    """` (of each repeat 10, 12)`, or the least and the greatest of many; else empty."""
    if value.by_repeat is None:
        return ""
    known = [each for each in value.by_repeat.values() if each is not None]
    if len(value.by_repeat) <= SEVERAL:
        each = ", ".join(_number_of(each, value.unit) for each in value.by_repeat.values())
        return f" (of each repeat {each})"
    if not known:
        return ""
    least, most = (quantity(each, value.unit) for each in (min(known), max(known)))
    return f" (of each repeat {least} to {most})"


SEVERAL = 4
"""Largest number of repeats that are shown; of more only the extremes are."""


def value_source(value: ValueResult) -> str:
    """`mean of rate of 10 pace:second of sender`."""
    of = f"{value.stat} of {value.field} of " if value.field else ""
    at = f" of {value.component}" if value.component else ""
    return f"{of}{number(value.count)} {value.entity}{at}"


def loss_line(loss: LossResult) -> str:
    """`emitted 80 000 = recorded 80 000 + dropped 0`."""
    sign = "=" if loss.balanced else "≠"
    line = f"emitted {number(loss.emitted)} {sign} recorded {number(loss.recorded)}"
    line += f" + dropped {number(loss.dropped)}"
    if loss.causes:
        line += f" ({', '.join(f'{cause} {number(n)}' for cause, n in loss.causes.items())})"
    return line


def kernel_line(results: Results) -> str:
    """`emitted 80 000 = recorded 79 000 + dropped 1 000 (sched 1 000); cost at most 2.1 µs (…)`.

    Empty where no kernel was to be recorded.
    """
    kernel = results.kernel
    if kernel is None:
        return ""
    parts = [f"{name} not recorded: {reason}" for name, reason in kernel.unrecorded.items()]
    if kernel.classes:
        parts.insert(0, _kernel_events(kernel.classes))
    if kernel.cost_unknown is not None:
        parts.append(f"the cost is unknown: {kernel.cost_unknown}")
    medians = {path.name: path.loop.times["p50"] for path in results.paths}
    medians |= {graph.name: graph.ends[0].times["p50"] for graph in results.graphs}
    for name, p50 in medians.items():
        cost = kernel.costs.get(name)
        if cost is not None and p50:
            share = f"{100 * cost.ns / p50:.2g} %"
            parts.append(f"cost at most {duration(cost.ns)} ({share}) of {name}'s p50")
    if kernel.left_out:
        parts.append(f"auto leaves out for their cost: {', '.join(kernel.left_out)}")
    if kernel.stolen_ns:
        parts.append(f"the hypervisor took {duration(kernel.stolen_ns)} of the processors")
    parts += [_added(name, each) for name, each in kernel.added.items()]
    parts += _longest(kernel.histograms)
    for drop in kernel.drops:
        why = reason_text(drop.reason, drop.function)
        counts = kernel.classes.get("drop")
        least = "at least " if counts is not None and counts.overwritten else ""
        parts.append(f"dropped {least}{number(drop.count)} datagrams to {drop.target}: {why}")
    return "; ".join(parts)


def _longest(histograms: Sequence[KernelHistogram]) -> list[str]:
    """`node of h2 waited 1 200 times for a processor, in 99 % below 35 µs, at most 4.1 ms`.

    Of the threads that waited the most, and of the soft interrupts that took the most.
    """
    waits = [each for each in histograms if each.kind != "softirq"]
    served = [each for each in histograms if each.kind == "softirq"]
    parts = []
    for each in waits[:MOST_WAITS]:
        why = "when it was woken" if each.kind == "woken" else "after it had lost one"
        times = f"{number(each.count)} times for a processor {why}"
        parts.append(f"{each.of} waited {times}, {_times(each)}")
    for each in served[:1]:
        took = f"took {duration(each.sum_ns)} in {number(each.count)} times"
        parts.append(f"soft interrupts {each.of} {took}, {_times(each)}")
    return parts


def _times(histogram: KernelHistogram) -> str:
    return f"99 % below {duration(histogram.p99_ns)}, at most {duration(histogram.largest_ns)}"


def _added(path: str, added: KernelAdded) -> str:
    """`added 4.2 µs (3.9 µs to 4.6 µs) to loop's p50 of 51.2 µs, 9.1 µs (…) to its p99 of …`."""

    def said(name: str, each: Added) -> str:
        ends = (each.low_ns, each.high_ns)
        low, high = ("?" if end is None else duration(end) for end in ends)
        of = f"{name} of {duration(each.without_ns)}"
        return f"{duration(each.added_ns)} ({low} to {high}) to its {of}"

    return f"recording {path} added {said('p50', added.p50)}, {said('p99', added.p99)}"


def watched_line(results: Results) -> str:
    """`cmd 200 sent, 199 received, up to 3 more may be missing; tick 200 fired`.

    These are events told from the kernels'. Empty where there are none.
    """
    return "; ".join(map(_watched, results.watched))


def _watched(told: ToldEvents) -> str:
    parts = [f"{number(count)} {of}" for of, count in told.events.items()]
    if told.numberless:
        parts.append(f"{number(told.numberless)} more without {told.number} after them")
    if told.missing != 0:
        parts.append(f"{_missing(told.missing)} more may be missing")
    return f"{told.name} {', '.join(parts)}"


def _missing(count: int | None) -> str:
    return "any number" if count is None else f"up to {number(count)}"


def _kernel_events(classes: Mapping[str, KernelLoss]) -> str:
    counts = classes.values()
    emitted, recorded = sum(each.emitted for each in counts), sum(each.recorded for each in counts)
    dropped = sum(each.dropped for each in counts)
    kept = f"recorded {number(recorded)}"
    if overwritten := sum(each.overwritten for each in counts):
        kept += f" + not kept by the flight recorder {number(overwritten)}"
    line = f"emitted {number(emitted)} = {kept} + dropped {number(dropped)}"
    lost = {name: each.dropped for name, each in classes.items() if each.dropped}
    texts = ", ".join(f"{name} {number(count)}" for name, count in lost.items())
    return f"{line} ({texts})" if lost else line


def _clock(clock: ClockResult) -> str:
    """`± 1.2 µs (3 messages of probes rejected)`."""
    if clock.reference:
        return "reference"
    width = "error unknown" if clock.max_err_ns is None else maximum_error(clock.max_err_ns)
    rejected = f" ({number(clock.rejected)} messages of probes rejected)" if clock.rejected else ""
    return f"{width}{rejected}"


MOST_WAITS = 3
"""Threads whose waits for a processor are listed."""
MOST_CLOCKS = 16
"""Hosts that are listed one by one."""


def clock_texts(clocks: Sequence[ClockResult]) -> list[str]:
    """`h2 ± 1.2 µs` for each host; of more than `MOST_CLOCKS`, the range and the widest."""
    if len(clocks) <= MOST_CLOCKS:
        return [f"{each.host} {_clock(each)}" for each in clocks]
    texts = [f"{each.host} reference" for each in clocks if each.reference]
    followers = [each for each in clocks if not each.reference]
    known = sorted(
        (each.max_err_ns, each.host) for each in followers if each.max_err_ns is not None
    )
    if known:
        (least, _), (most, widest) = known[0], known[-1]
        span = f"{maximum_error(least)} to {maximum_error(most)} ({widest})"
        texts.append(f"{number(len(known))} others {span}")
    if unknown := [each.host for each in followers if each.max_err_ns is None]:
        more = f" and {number(len(unknown) - 1)} more" if len(unknown) > 1 else ""
        texts.append(f"error unknown of {unknown[0]}{more}")
    if rejected := sum(each.rejected for each in followers):
        texts.append(f"{number(rejected)} messages of probes rejected")
    return texts


CLOCK_EVENT_HEADINGS = ("host", "repeat", "clock", "from", "until", "")
"""Headings of a table of clock events."""


def clock_event_cells(event: ClockEvent) -> tuple[str, ...]:
    """A text for each of `CLOCK_EVENT_HEADINGS`; times from the first knot of a clock's map on."""

    def seconds(ns: int | None) -> str:
        return "unknown" if ns is None else f"{ns / 1e9:.3f}\u00a0s"

    times = (seconds(event.from_ns), seconds(event.until_ns))
    return (event.host, number(event.repeat), event.clock, *times, event.what)


def loops_line(results: Results) -> str:
    """Agreement of followers' times with the probes between them, of the farthest pair.

    It is of all repeats; empty where none probed.
    """
    if not results.clock.loops:
        return ""
    known = [(each.p99_ns, each) for each in results.clock.loops if each.p99_ns is not None]
    parts = []
    if known:
        p99, farthest = max(known, key=lambda pair: pair[0])
        parts.append(
            f"loops close within {duration(p99)} (p99; {farthest.host} {farthest.peer} is the "
            f"farthest of {number(len(known))})"
        )
        instants = sum(each.instants - each.unknown for _, each in known)
        covered = sum(each.covered for _, each in known) / instants
        parts.append(f"{100 * covered:.0f} % of residuals inside their calibrated error bound")
    if silent := len(results.clock.loops) - len(known):
        parts.append(f"nothing known of {number(silent)}")
    if contradicted := sum(each.contradictions > 0 for each in results.clock.loops):
        parts.append(f"{number(contradicted)} CONTRADICTED: maximum errors may be wrong")
    return "; ".join(parts)


LOOP_HEADINGS = (
    "edge",
    "repeat",
    "exchanges",
    "rejected",
    "p50",
    "p99",
    "max",
    "maximum error",
    "calibrated",
    "covered",
    "unknown",
    "contradictions",
    "",
)
"""Headings of a table of loops."""


def loop_cells(loop: LoopResult) -> tuple[str, ...]:
    """A text for each of `LOOP_HEADINGS`."""
    times = (loop.p50_ns, loop.p99_ns, loop.max_ns, loop.err_ns, loop.calibrated_ns)
    known = loop.instants - loop.unknown
    return (
        f"{loop.host} {loop.peer}",
        *map(number, (loop.repeat, loop.exchanges, loop.rejected)),
        *("" if ns is None else duration(ns) for ns in times),
        f"{loop.covered / known:.0%}" if known else "",
        number(loop.unknown),
        number(loop.contradictions),
        loop.problem or "",
    )


def probes_line(results: Results) -> str:
    """Traffic of clock probes on the messages' network; empty where they had their own."""
    probes = results.clock.probes
    if probes is None or probes.network != "data":
        return ""
    rate = quantity(8 * probes.bytes / probes.seconds, "bit/s")
    return f"probes took {rate} of the data network: {number(probes.packets)} packets"


def cost_line(results: Results) -> str:
    """Time that was subtracted for each event; empty where nothing was."""
    hosts = (
        f"{each.host} {duration(each.event_ns)} {maximum_error(math.ceil(each.err_ns))}"
        for each in results.subtracted or ()
    )
    return f"of each event subtracted: {', '.join(hosts)}" if results.subtracted else ""


def _interval_row(
    name: str | None, result: IntervalResult, columns: Sequence[Column]
) -> IntervalRow:
    cells = tuple(column.cell(result) for column in columns)
    return IntervalRow(name, result.first, result.last, cells)


def _clock_error(result: IntervalResult) -> str:
    if result.err_ns is not None:
        return maximum_error(result.err_ns)
    return ABSENT if result.times["max"] is None else "unknown"


def _shown(results: Results) -> list[Column]:
    """The columns without those that would be zero in every row and need not be there."""
    parts = [part for path in results.paths for part in (path.loop, *path.hops)]
    return [
        column
        for column in COLUMNS
        if not column.optional or any(column.cell(part).value for part in parts)
    ]


@dataclass(frozen=True)
class Column:
    """A column of the table of paths and hops: on the terminal, on the page and in CSV."""

    heading: str
    name: str
    """In CSV, with its unit."""
    cell: Callable[[IntervalResult], Cell]
    optional: bool = False
    """Whether the column is left out for people where it is zero everywhere."""


def _count(heading: str, of: str, optional: bool = False) -> Column:
    def cell(result: IntervalResult) -> Cell:
        count: int = getattr(result, of)
        return Cell(number(count), count)

    return Column(heading, of, cell, optional)


def _time(statistic: str) -> Column:
    def cell(result: IntervalResult) -> Cell:
        ns = result.times[statistic]
        return Cell(ABSENT if ns is None else duration(ns), ns)

    return Column(_HEADINGS.get(statistic, statistic), f"{statistic}_ns", cell)


COLUMNS = (
    _count("count", "count"),
    _count("lost", "lost"),
    _count("dupl.", "duplicates", optional=True),
    *(_time(statistic) for statistic in TIMES),
    Column("clock error", "err_ns", lambda result: Cell(_clock_error(result), result.err_ns)),
)
