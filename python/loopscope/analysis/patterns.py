"""Message patterns: how late each type of message was at each of its consumers.

A message's latency is from its *intended* send time, the stamp of its `sent` event less the event's
`late_ns`, to its first `received` event at the consumer. The half-width is that of both stamps; of
the intended time as well `within_ns`, which lies between the stamp and the clock's reading that
`late_ns` is from, and as much of `late_ns` as the kernel may slew the clock that measured it. Where
several `sent` events have one id the last counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np

from loopscope.analysis.bounded_statistics import Bracket, Sample
from loopscope.analysis.half_width import COUNTER, NO_COUNTER, half_widths
from loopscope.analysis.messages import counters
from loopscope.analysis.missing_events import UNACCOUNTED, Missing, missing_events
from loopscope.analysis.quantity_text import duration, half_width, number
from loopscope.analysis.results import PATTERN_TIMES, PatternResult, PatternRow
from loopscope.analysis.verdict import Verdict, judge, overall
from loopscope.experiment import Expectation, MessageType, Pattern
from loopscope.timeline import Run, RunError, UnknownTableError

if TYPE_CHECKING:
    import pyarrow as pa

    from loopscope.analysis.bounded_statistics import Nanoseconds

SLEW_PPM = 500
"""The most by which Linux speeds CLOCK_MONOTONIC up or slows it down (`MAXFREQ` of adjtimex)."""

_COLUMNS = {
    "sent": {"message_type": "int64", "late_ns": "int64", "within_ns": "int64"},
    "received": {"message_type": "int64"},
}
_STAMP = {"repeat": "int32", "process": "string", "id": "int64", "ts": "int64", "err_ns": "int64"}


def measure_pattern(run: Run, pattern: Pattern) -> tuple[PatternResult, list[str]]:
    """A row for each type and consumer in the table's order, and what is wrong with the messages.

    Raises `RunError` where the events do not have the fields that this needs.
    """
    problems: list[str] = []
    sent = _sent(run, pattern, problems)
    received = _received(run, pattern, problems)
    pairs = _pairs(pattern, "consumers")
    keys = ["repeat", "message_type", "consumer", "id"]
    due = sent.join(pairs.rename(consumer="process"), "message_type")
    messages = due.left_join(received.rename(consumer="process"), keys).to_pyarrow()
    of_row = _by_row(messages, counters(run))
    count = received.group_by("message_type", "process").agg(n=received.count())
    arrived = {(r["message_type"], r["process"]): r["n"] for r in count.to_pyarrow().to_pylist()}
    dropped = _dropped(run, pattern)

    rows = []
    for index, each in enumerate(pattern.types):
        for consumer in each.consumers:
            found = of_row.get((index, consumer), _Latencies.none())
            missing = Missing(
                before=sum(dropped[producer, pattern.sent] for producer in each.producers),
                after=dropped[consumer, pattern.received],
            )
            name = f"pattern {pattern.name}, {each.name} at {consumer}"
            if strangers := arrived.get((index, consumer), 0) - len(found.length):
                problems.append(
                    f"{name}: {number(strangers)} messages were received and not sent; they are "
                    "in no statistic"
                )
            early = found.length < -found.err
            if early.any():
                worst = int(np.where(early, found.length, 0).argmin())
                problems.append(
                    f"{name}: {number(int(early.sum()))} messages arrived before they were due by "
                    f"more than the clock's error (worst: {duration(int(found.length[worst]))} "
                    f"{half_width(int(found.err[worst]))}); that error was too small"
                )
            rows.append(_row(each, consumer, found, missing))
    for (component, entity), n in dropped.items():
        if n:
            known = "an unknown number of" if n >= UNACCOUNTED else f"up to {number(n)}"
            problems.append(
                f"pattern {pattern.name}: {known} {component}/{entity} may be missing from the "
                "trace; verdicts allow for it"
            )
    verdict = overall([row.verdict for row in rows if row.verdict is not None])
    return PatternResult(pattern.name, verdict, tuple(rows)), problems


@dataclass(frozen=True)
class _Latencies:
    """One type at one consumer: what was sent to it, and the latencies of what arrived."""

    sent: int
    length: Nanoseconds
    err: Nanoseconds

    @staticmethod
    def none() -> _Latencies:
        return _Latencies(0, np.empty(0, np.int64), np.empty(0, np.int64))


def _row(each: MessageType, consumer: str, found: _Latencies, missing: Missing) -> PatternRow:
    arrived = len(found.length)
    lost = found.sent - arrived
    sample = Sample(found.length, found.err, missing.unseen_arrivals(lost))
    times = {name: sample.bracket(name) for name in PATTERN_TIMES}
    slowest = times["max"]
    verdict, reason = None, None
    if each.target_ns is not None:
        least = max(0, lost - missing.after)
        losses = Bracket(lost, least, lost + missing.before)
        verdict, reason = _judge(each.target_ns, found.sent, losses, slowest, sample.unknown)
    return PatternRow(
        message_type=each.name,
        receiver=consumer,
        transport=each.transport,
        size=each.size,
        period_ns=each.period_ns,
        sent=found.sent,
        count=arrived,
        lost=lost,
        times={name: None if b is None else int(b.value) for name, b in times.items()},
        err_ns=None if slowest is None else slowest.err,
        target_ns=each.target_ns,
        verdict=verdict,
        reason=reason,
    )


def _judge(
    target: int, sent: int, lost: Bracket, slowest: Bracket | None, unknown: int
) -> tuple[Verdict, str | None]:
    """Nothing lost and the slowest within its target: a verdict, and why it is not PASS."""
    if sent == 0:
        return Verdict.UNKNOWN, "no message was seen to be sent"
    none_lost = Expectation("", "", None, "lost", "==", 0, is_time=False)
    in_time = Expectation("", "", None, "max", "<=", target, is_time=True)
    judged = [(judge(none_lost, lost), f"{number(int(lost.value))} lost")]
    if lost.value == 0:
        judged = [(judged[0][0], "events are missing from the trace")]
    if slowest is not None:
        late = f"slower than {duration(target)}"
        if (verdict := judge(in_time, slowest)) is Verdict.UNKNOWN:
            missing = slowest.upper is None and not unknown
            late = "events are missing from the trace" if missing else "clock error"
        judged.append((verdict, late))
    worst = overall([each for each, _ in judged])
    assert worst is not None
    reasons = dict.fromkeys(reason for each, reason in judged if each is worst)
    return worst, None if worst is Verdict.PASS else ", ".join(reasons)


def _by_row(
    messages: pa.Table, counters: dict[tuple[int, str], tuple[float, float]]
) -> dict[tuple[int, str], _Latencies]:
    """Latencies by type and consumer."""
    index = messages["message_type"].to_numpy()
    consumer = np.array(messages["consumer"].to_pylist(), dtype=object)
    seen = messages["received_ts"].is_valid().to_numpy()
    columns = ("due", "ts", "late_ns", "within_ns", "err_ns", "received_ts", "received_err")
    of = {name: messages[name].fill_null(0).to_numpy() for name in columns}
    hosts = [np.array(messages[name].to_pylist(), dtype=object) for name in ("host", "host_right")]
    sent_on = zip(messages["repeat"].to_pylist(), hosts[0], strict=True)
    counter = np.array([counters.get(key, NO_COUNTER) for key in sent_on], COUNTER)
    # Between the stamps first: only they are on counters, and only there one host's wander counts.
    between = of["received_ts"] - of["ts"]
    stamps = of["err_ns"] + of["received_err"]
    err = half_widths(between, stamps, counter, hosts[0] == hosts[1])
    slew = np.ceil(np.abs(of["late_ns"]) * (SLEW_PPM / 1e6)).astype(np.int64)
    err = err + of["within_ns"] + slew
    length = of["received_ts"] - of["due"]
    found = {}
    for row in dict.fromkeys(zip(index.tolist(), consumer.tolist(), strict=True)):
        here = (index == row[0]) & (consumer == row[1])
        found[row] = _Latencies(int(here.sum()), length[here & seen], err[here & seen])
    return found


def _sent(run: Run, pattern: Pattern, problems: list[str]) -> ibis.Table:
    """`repeat`, `message_type`, `id`, `ts`, `err_ns`, `host`, `late_ns`, `within_ns`, `due`."""
    events = _events(run, pattern, "sent", problems)
    pairs = _pairs(pattern, "producers")
    message = {"group_by": ["repeat", "message_type", "id"]}
    # Where stamps tie, the least certain counts: the result must not depend on the order of rows.
    order = [ibis.desc("ts"), ibis.desc("within_ns"), ibis.desc("err_ns"), ibis.asc("host")]
    ranked = events.inner_join(pairs, ["message_type", "process"]).mutate(
        rank=ibis.row_number().over(ibis.window(**message, order_by=order))
    )
    last = ranked.filter(ranked["rank"] == 0)
    return last.mutate(due=last.ts - last.late_ns).drop("rank", "process")


def _received(run: Run, pattern: Pattern, problems: list[str]) -> ibis.Table:
    """`repeat`, `message_type`, `process`, `id`, `received_ts`, `received_err`, `host`."""
    events = _events(run, pattern, "received", problems)
    pairs = _pairs(pattern, "consumers")
    message = {"group_by": ["repeat", "message_type", "process", "id"]}
    order = [ibis.asc("ts"), ibis.desc("err_ns"), ibis.asc("host")]
    ranked = events.inner_join(pairs, ["message_type", "process"]).mutate(
        rank=ibis.row_number().over(ibis.window(**message, order_by=order))
    )
    first = ranked.filter(ranked["rank"] == 0).drop("rank")
    return first.rename(received_ts="ts", received_err="err_ns")


def _events(run: Run, pattern: Pattern, end: str, problems: list[str]) -> ibis.Table:
    entity = pattern.sent if end == "sent" else pattern.received
    fields = _COLUMNS[end]
    try:
        table = run.table(entity.replace(":", "."))
    except UnknownTableError:
        problems.append(f"pattern {pattern.name}: no {entity} was recorded at all")
        return ibis.memtable([], schema={**_STAMP, "host": "string", **fields})
    for field in fields:
        if field not in table.columns or not table[field].type().is_integer():
            raise RunError(
                f"pattern {pattern.name}: {field} is no integer field of {entity}; "
                f"its fields: {', '.join(table.columns)}"
            )
    # A number beyond all types of messages is none of theirs.
    typed = table.mutate(message_type=table.message_type.try_cast("int64"))
    known = typed.filter(*(typed[field].notnull() for field in fields))
    cast = {name: known[name].cast(kind) for name, kind in (_STAMP | fields).items()}
    return known.select(host=known.host.cast("string"), **cast)


def _pairs(pattern: Pattern, side: str) -> ibis.Table:
    """`message_type` and `process`: who may send, or receive, what."""
    rows = [
        {"message_type": index, "process": name}
        for index, each in enumerate(pattern.types)
        for name in getattr(each, side)
    ]
    return ibis.memtable(rows, schema={"message_type": "int64", "process": "string"})


def _dropped(run: Run, pattern: Pattern) -> dict[tuple[str, str], int]:
    """Largest number of events that may be missing, by component and entity."""
    ends = {(name, pattern.sent) for each in pattern.types for name in each.producers}
    ends |= {(name, pattern.received) for each in pattern.types for name in each.consumers}
    return {end: missing_events(run, *end) for end in sorted(ends)}
