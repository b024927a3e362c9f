"""Message patterns: how late each type of message was at each of its consumers.

A message's latency is from its *intended* send time, the stamp of its `sent` event less the event's
`late_ns`, to its first `received` event at the consumer. The maximum error is that of both stamps;
of the intended time as well `within_ns`, which lies between the stamp and the clock's reading that
`late_ns` is from, and as much of `late_ns` as the kernel may slew the clock that measured it. Where
several `sent` events have one id the last counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from loopscope.analysis.bounded_statistics import Bracket, Sample
from loopscope.analysis.maximum_error import COUNTER, NO_COUNTER, maximum_errors
from loopscope.analysis.messages import counters
from loopscope.analysis.missing_events import UNACCOUNTED, Missing, missing_events
from loopscope.analysis.quantity_text import duration, maximum_error, number
from loopscope.analysis.results import PATTERN_TIMES, PatternResult, PatternRow
from loopscope.analysis.verdict import Verdict, judge, overall
from loopscope.experiment import Expectation, MessageType, Pattern
from loopscope.timeline import Run, RunError, UnknownTableError
from loopscope.timeline.relation import INTEGERS, column_types

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.timeline.relation import Relation

SLEW_PPM = 500
"""The most by which Linux speeds CLOCK_MONOTONIC up or slows it down (`MAXFREQ` of adjtimex)."""

_COLUMNS = {"sent": ("message_type", "late_ns", "within_ns"), "received": ("message_type",)}
_STAMP = {
    "repeat": pa.int32(),
    "process": pa.string(),
    "id": pa.int64(),
    "ts": pa.int64(),
    "err_ns": pa.int64(),
    "host": pa.string(),
}


def measure_pattern(run: Run, pattern: Pattern) -> tuple[PatternResult, list[str]]:
    """A row for each type and consumer in the table's order, and what is wrong with the messages.

    Raises `RunError` where the events do not have the fields that this needs.
    """
    problems: list[str] = []
    sent = _sent(run, pattern, problems)
    received = _received(run, pattern, problems)
    due = _joined(sent, _pairs(run, pattern, "consumers"), "message_type").project(
        "* RENAME (process AS consumer)"
    )
    messages = due.set_alias("due").join(
        received.set_alias("received"),
        "due.repeat = received.repeat AND due.message_type = received.message_type "
        "AND due.consumer = received.process AND due.id = received.id",
        how="left",
    )
    chosen = "due.*, received_ts, received_err, received.host AS received_on"
    of_row = _by_row(messages.project(chosen).to_arrow_table(), counters(run))
    count = received.aggregate("message_type, process, count(*)").fetchall()
    arrived = {(index, consumer): n for index, consumer, n in count}
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
                    f"{maximum_error(int(found.err[worst]))}); that error was too small"
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
    hosts = [np.array(messages[name].to_pylist(), dtype=object) for name in ("host", "received_on")]
    sent_on = zip(messages["repeat"].to_pylist(), hosts[0], strict=True)
    counter = np.array([counters.get(key, NO_COUNTER) for key in sent_on], COUNTER)
    # Between the stamps first: only they are on counters, and only there one host's wander counts.
    between = of["received_ts"] - of["ts"]
    stamps = of["err_ns"] + of["received_err"]
    err = maximum_errors(between, stamps, counter, hosts[0] == hosts[1])
    slew = np.ceil(np.abs(of["late_ns"]) * (SLEW_PPM / 1e6)).astype(np.int64)
    err = err + of["within_ns"] + slew
    length = of["received_ts"] - of["due"]
    found = {}
    for row in dict.fromkeys(zip(index.tolist(), consumer.tolist(), strict=True)):
        here = (index == row[0]) & (consumer == row[1])
        found[row] = _Latencies(int(here.sum()), length[here & seen], err[here & seen])
    return found


def _sent(run: Run, pattern: Pattern, problems: list[str]) -> Relation:
    """`repeat`, `message_type`, `id`, `ts`, `err_ns`, `host`, `late_ns`, `within_ns`, `due`."""
    last = _one_of_each(
        _events(run, pattern, "sent", problems),
        _pairs(run, pattern, "producers"),
        "repeat, message_type, id",
        # Where stamps tie, the least certain counts: the result must not depend on the order of
        # rows.
        "ts DESC, within_ns DESC, err_ns DESC, host",
    )
    return last.project("* EXCLUDE (process), ts - late_ns AS due")


def _received(run: Run, pattern: Pattern, problems: list[str]) -> Relation:
    """`repeat`, `message_type`, `process`, `id`, `received_ts`, `received_err`, `host`."""
    first = _one_of_each(
        _events(run, pattern, "received", problems),
        _pairs(run, pattern, "consumers"),
        "repeat, message_type, process, id",
        "ts, err_ns DESC, host",
    )
    return first.project("* RENAME (ts AS received_ts, err_ns AS received_err)")


def _one_of_each(events: Relation, pairs: Relation, message: str, order: str) -> Relation:
    """The first of each message in an order.

    Only those of `events` that are of a type and a process of `pairs`.
    """
    ranked = _joined(events, pairs, "message_type", "process").project(
        f"*, row_number() OVER (PARTITION BY {message} ORDER BY {order}) AS place"
    )
    return ranked.filter("place = 1").project("* EXCLUDE (place)")


def _joined(left: Relation, right: Relation, *columns: str) -> Relation:
    """The rows of both that are equal in some columns, which occur once in the result."""
    equal = " AND ".join(f"l.{each} = r.{each}" for each in columns)
    joined = left.set_alias("l").join(right.set_alias("r"), equal)
    rest = [f"r.{each}" for each in right.columns if each not in columns]
    return joined.project(", ".join(["l.*", *rest]))


def _events(run: Run, pattern: Pattern, end: str, problems: list[str]) -> Relation:
    entity = pattern.sent if end == "sent" else pattern.received
    fields = _COLUMNS[end]
    try:
        table = run.relation(entity.replace(":", "."))
    except UnknownTableError:
        problems.append(f"pattern {pattern.name}: no {entity} was recorded at all")
        types = {**_STAMP, **dict.fromkeys(fields, pa.int64())}
        return run.relation_of(pa.schema(types).empty_table())
    types_here = column_types(table)
    for field in fields:
        if types_here.get(field) not in INTEGERS:
            raise RunError(
                f"pattern {pattern.name}: {field} is no integer field of {entity}; "
                f"its fields: {', '.join(table.columns)}"
            )
    # A number beyond all types of messages is none of theirs.
    typed = table.project("* REPLACE (try_cast(message_type AS BIGINT) AS message_type)")
    known = typed.filter(" AND ".join(f"{field} IS NOT NULL" for field in fields))
    cast = (f"{name}::BIGINT AS {name}" for name in ("id", "ts", "err_ns", *fields))
    return known.project(", ".join(["repeat", "process", "host", *cast]))


def _pairs(run: Run, pattern: Pattern, side: str) -> Relation:
    """`message_type` and `process`: who may send, or receive, what."""
    rows = [
        (index, name) for index, each in enumerate(pattern.types) for name in getattr(each, side)
    ]
    return run.relation_of(
        pa.table(
            {
                "message_type": pa.array([index for index, _ in rows], pa.int64()),
                "process": pa.array([name for _, name in rows], pa.string()),
            }
        )
    )


def _dropped(run: Run, pattern: Pattern) -> dict[tuple[str, str], int]:
    """Largest number of events that may be missing, by component and entity."""
    ends = {(name, pattern.sent) for each in pattern.types for name in each.producers}
    ends |= {(name, pattern.received) for each in pattern.types for name in each.consumers}
    return {end: missing_events(run, *end) for end in sorted(ends)}
