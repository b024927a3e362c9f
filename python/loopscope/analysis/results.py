"""What was found out about a run: the one source of the terminal, the JSON and the page.

Times are whole nanoseconds; a mean is rounded to a tenth. What was not measured is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loopscope.analysis.case import Case, CaseCounts
from loopscope.analysis.expectation import Verdict
from loopscope.analysis.path_result import GraphResult
from loopscope.analysis.split_result import SplitResult
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.analysis.measured_graph import MeasuredGraph
    from loopscope.analysis.messages import Messages

TIMES = ("min", "mean", "p50", "p99", "p999", "max")
"""The statistics of every interval, in order; `<name>_ns` in the JSON."""

PATTERN_TIMES = ("min", "p50", "p99", "max")
"""The statistics of a pattern's rows, likewise."""


@dataclass(frozen=True)
class IntervalResult:
    """From one event to another: a whole path, or one of its hops."""

    first: str
    last: str
    count: int
    """Path: `sent`. Hop: `received`."""
    sent: int
    """Messages seen at the first end."""
    lost: int
    """Messages seen at the first end and not at the last."""
    duplicates: int
    """Occurrences at the last end beyond each message's first."""
    times: Mapping[str, int | float | None]
    """By the names in `TIMES`, ns, over the messages seen at both ends."""
    err_ns: int | None
    """The largest half-width among them. No statistic is farther from its true value, as long as
    the trace dropped nothing."""
    splits: tuple[SplitResult, ...] = ()
    """Of a hop, where links' events were recorded: one for each emulated link that it goes over."""
    by_repeat: Mapping[int, IntervalResult] | None = None
    """The same of each repeat alone, where there are several: what is of all together hides how
    they differ."""

    @property
    def received(self) -> int:
        """Messages seen at both ends."""
        return self.sent - self.lost

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "sent": self.sent,
            "received": self.received,
            "lost": self.lost,
            "duplicates": self.duplicates,
            **{f"{name}_ns": self.times[name] for name in TIMES},
            "err_ns": self.err_ns,
            **({} if self.by_repeat is None else {"by_repeat": _each(self.by_repeat)}),
        }


def _each(by_repeat: Mapping[int, IntervalResult]) -> dict[str, Any]:
    return {str(repeat): each.to_dict() for repeat, each in by_repeat.items()}


@dataclass(frozen=True)
class PathResult:
    name: str
    loop: IntervalResult
    hops: tuple[IntervalResult, ...]
    unsplit: str | None = None
    """Why its hops are not split at the emulated links that they go over; None where they are, or
    go over none."""

    def to_dict(self) -> dict[str, Any]:
        hops = [
            {
                "from": hop.first,
                "to": hop.last,
                **hop.to_dict(),
                "splits": [split.to_dict() for split in hop.splits],
            }
            for hop in self.hops
        ]
        why = {} if self.unsplit is None else {"unsplit": self.unsplit}
        return {**self.loop.to_dict(), "hops": hops, **why}


@dataclass(frozen=True)
class PatternRow:
    """One type of message at one consumer, which several of a multicast group are."""

    message_type: str
    receiver: str
    transport: str
    size: int
    period_ns: int
    sent: int
    """Distinct messages."""
    count: int
    """Those of them that arrived."""
    lost: int
    times: Mapping[str, int | None]
    """Latency from the intended send time, ns, by the names in `PATTERN_TIMES`."""
    err_ns: int | None
    """How far the true maximum may be from `max`; None where nothing bounds it."""
    target_ns: int | None
    verdict: Verdict | None
    """None where there is no target."""
    reason: str | None
    """Why it is not PASS."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "type": self.message_type,
            "receiver": self.receiver,
            "transport": self.transport,
            "size": self.size,
            "period_ns": self.period_ns,
            "sent": self.sent,
            "count": self.count,
            "lost": self.lost,
            **{f"{name}_ns": self.times[name] for name in PATTERN_TIMES},
            "err_ns": self.err_ns,
            "target_ns": self.target_ns,
            "verdict": None if self.verdict is None else str(self.verdict),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class PatternResult:
    name: str
    verdict: Verdict | None
    """Of all its rows; None where no row has a target."""
    rows: tuple[PatternRow, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": None if self.verdict is None else str(self.verdict),
            "rows": [row.to_dict() for row in self.rows],
        }


@dataclass(frozen=True)
class ExpectationResult:
    text: str
    verdict: Verdict
    measured: int | float | None
    """ns, a number of messages or, of a value, in `unit`; None where nothing was measured."""
    err_ns: int | None
    """How far the true value may be from `measured`; None for numbers of messages, where nothing
    was measured and where nothing bounds it."""
    is_time: bool
    reason: str | None
    """Why it is UNKNOWN; which of several hosts made it FAIL."""
    unit: str | None = None
    """Of a value, "" where it counts; None where this is about a path."""
    counts: CaseCounts | None = None
    """Where each message, update or interval has to meet something; `measured` is the number of
    those that were missed."""
    deciding: tuple[Case, ...] = ()
    """What decided, most telling first, at most `deadline.LISTED`."""
    deciding_count: int = 0
    """Of them all."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "verdict": str(self.verdict),
            "measured": self.measured,
            "err_ns": self.err_ns,
            "reason": self.reason,
            **({} if self.unit is None else {"unit": self.unit}),
            **({} if self.counts is None else self._cases(self.counts)),
        }

    def _cases(self, counts: CaseCounts) -> dict[str, Any]:
        return {
            "counts": counts.to_dict(),
            "deciding": [each.to_dict() for each in self.deciding],
            "deciding_count": self.deciding_count,
        }


@dataclass(frozen=True)
class ValueResult:
    """A value of `measure.values`."""

    name: str
    entity: str
    component: str | None
    field: str | None
    stat: str
    value: int | float | None
    """None where no event was seen."""
    unit: str
    """Empty where it counts events."""
    count: int
    """Events that it is made of."""
    missing: int
    """The most events that may be missing from the trace."""
    not_finite: int = 0
    """Numbers among them that are NaN or infinite; `value` is of the others."""
    by_repeat: Mapping[int, int | float | None] | None = None
    """The value of each repeat alone, where there are several."""

    def to_dict(self) -> dict[str, Any]:
        document = {key: each for key, each in vars(self).items() if key != "name"}
        if not self.not_finite:
            del document["not_finite"]
        del document["by_repeat"]
        if self.by_repeat is not None:
            document["by_repeat"] = {str(repeat): each for repeat, each in self.by_repeat.items()}
        return document


@dataclass(frozen=True)
class StatisticResult:
    """What a table's column or a figure asked for."""

    text: str
    value: int | float | None
    err: int | None
    """How far the true one may be from it; None where nothing bounds it or it is a value's."""
    unit: str

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "err": self.err, "unit": self.unit}


@dataclass(frozen=True)
class Offset:
    """How far a host's CLOCK_REALTIME was from the reference's at most, ns."""

    offset_ns: int
    err_ns: int | None
    """None where nothing bounds it."""

    def to_dict(self) -> dict[str, Any]:
        return {"offset_ns": self.offset_ns, "err_ns": self.err_ns}


@dataclass(frozen=True)
class ClockResult:
    host: str
    reference: bool
    max_err_ns: int | None
    """None where nothing bounds it: the clock was disturbed."""
    exchanges: int
    """Of probes, that the clock's map rests on."""
    rejected: int
    """Messages of the probes that contradicted the others."""
    realtime: Offset | None
    """None where nothing is known of it."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "max_err_ns": self.max_err_ns,
            "reference": self.reference,
            "exchanges": self.exchanges,
            "rejected": self.rejected,
            "realtime": None if self.realtime is None else self.realtime.to_dict(),
        }


@dataclass(frozen=True)
class ClockEvent:
    """Something happened to a clock: `counter`, or one that is not loopscope's."""

    repeat: int
    host: str
    clock: str
    kind: str
    from_ns: int | None
    """Not before this, after the first knot of the repeat's clock maps; None where unknown."""
    until_ns: int | None
    """Not after this, likewise."""
    least_ns: int | None
    """By so much forward at least, where it can be said."""
    most_ns: int | None
    what: str
    """In words."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class LoopResult:
    """How well the times of two followers agree with the probes between the two, in a repeat: the
    residuals of the loop over the reference. Times are None where no instant has a residual."""

    repeat: int
    host: str
    """Who probed."""
    peer: str
    exchanges: int
    rejected: int
    """Messages that contradicted the others."""
    instants: int
    """That were looked at."""
    unknown: int
    """Of them, those without a residual."""
    covered: int
    """Those inside their calibrated half-width."""
    contradictions: int
    """Those outside their hard one."""
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    err_ns: int | None
    """Median of the hard half-widths."""
    calibrated_ns: int | None
    """And of the calibrated ones."""
    problem: str | None
    """Why nothing is known."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class ProbesResult:
    """What the clock probes of all hosts and repeats put on their network."""

    network: str
    packets: int
    bytes: int
    """With the headers of IP and UDP."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "packets": self.packets,
            "bytes": self.bytes,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class CostResult:
    """What an event costs on a host, ns: the most of all repeats."""

    host: str
    event_ns: float
    err_ns: float

    def to_dict(self) -> dict[str, Any]:
        return {"event_ns": self.event_ns, "err_ns": self.err_ns}


@dataclass(frozen=True)
class Drop:
    """Events of one call site of one process that one cause took."""

    host: str
    process: str
    entity: str
    cause: str
    count: int

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class LossResult:
    emitted: int
    recorded: int
    dropped: int
    balanced: bool
    """`emitted == recorded + dropped` for every process."""
    causes: Mapping[str, int]
    drops: tuple[Drop, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "emitted": self.emitted,
            "recorded": self.recorded,
            "dropped": self.dropped,
            "balanced": self.balanced,
            "causes": dict(self.causes),
            "drops": [drop.to_dict() for drop in self.drops],
        }


@dataclass(frozen=True)
class Share:
    """A number of packets of all that might have been concerned."""

    found: int
    of: int
    low: float | None
    high: float | None
    """Ends of the 99 % interval of the share; None of nothing."""
    asked: float | None
    """None where a file of the experiment's says it."""
    inside: bool | None
    """Whether what was asked lies in the interval."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class LinkResult:
    """One link while its settings stayed the same."""

    repeat: int
    sender: str
    receiver: str
    """Hosts."""
    since_ns: int
    """When the settings came into force, after the first measured phase began."""
    mover: str
    wait: str
    asked: Mapping[str, Any]
    """The settings, as in `schema/links.md`."""
    packets: int
    """That came."""
    departed: int
    """That left, duplicates among them."""
    queued: int
    dropped: Mapping[str, int]
    delay: Mapping[str, float | None]
    """From arrival to departure, ns: mean, deviation and percentiles."""
    late: Mapping[str, float | None]
    """From the time due to departure: what the mover added."""
    asked_delay_ns: int | None
    """The mean; None where a queue or a file of delays adds to what was asked."""
    asked_deviation_ns: float | None
    lost: Share
    duplicated: Share
    corrupted: Share
    reordered: int
    rate_bps: float | None
    """From the first departure to the last."""
    asked_rate_bps: int | None

    @property
    def delay_error_ns(self) -> float | None:
        mean = self.delay["mean"]
        return None if mean is None or self.asked_delay_ns is None else mean - self.asked_delay_ns

    def to_dict(self) -> dict[str, Any]:
        return {
            "repeat": self.repeat,
            "from": self.sender,
            "to": self.receiver,
            "since_ns": self.since_ns,
            "mover": self.mover,
            "wait": self.wait,
            "asked": dict(self.asked),
            "packets": self.packets,
            "departed": self.departed,
            "queued": self.queued,
            "dropped": dict(self.dropped),
            "delay_ns": dict(self.delay),
            "late_ns": dict(self.late),
            "asked_delay_ns": self.asked_delay_ns,
            "delay_error_ns": self.delay_error_ns,
            "asked_deviation_ns": self.asked_deviation_ns,
            "lost": self.lost.to_dict(),
            "duplicated": self.duplicated.to_dict(),
            "corrupted": self.corrupted.to_dict(),
            "reordered": self.reordered,
            "rate_bps": self.rate_bps,
            "asked_rate_bps": self.asked_rate_bps,
        }


@dataclass(frozen=True)
class Results:
    run: str
    experiment: str
    repeats: int
    verdict: Verdict | None
    """None where nothing was expected."""
    expectations: tuple[ExpectationResult, ...]
    paths: tuple[PathResult, ...]
    clock: tuple[ClockResult, ...]
    probes: ProbesResult | None
    """None where no repeat says it."""
    loss: LossResult
    subtracted: tuple[CostResult, ...] | None
    """The cost of recording, where it was subtracted from the times."""
    links: tuple[LinkResult, ...]
    """Empty where none are emulated."""
    problems: tuple[str, ...]
    messages: Mapping[str, Messages] = field(repr=False, compare=False)
    """Name to the messages of each path that is a list, for the figures; not in the JSON."""
    clock_events: tuple[ClockEvent, ...] = ()
    loops: tuple[LoopResult, ...] = ()
    """Empty with fewer than three hosts."""
    patterns: tuple[PatternResult, ...] = ()
    values: tuple[ValueResult, ...] = ()
    graphs: tuple[GraphResult, ...] = ()
    """Paths that are graphs; `paths` are the others."""
    graph_messages: Mapping[str, MeasuredGraph] = field(
        default_factory=dict, repr=False, compare=False
    )
    """As `messages`, of those."""
    statistics: Mapping[str, StatisticResult] = field(default_factory=dict)
    """By text, those that were asked for besides; in the JSON of a sweep only."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "verdict": None if self.verdict is None else str(self.verdict),
            "expectations": [each.to_dict() for each in self.expectations],
            "paths": {path.name: path.to_dict() for path in self.paths},
            **(
                {"graphs": {graph.name: graph.to_dict() for graph in self.graphs}}
                if self.graphs
                else {}
            ),
            "patterns": {pattern.name: pattern.to_dict() for pattern in self.patterns},
            **(
                {"values": {each.name: each.to_dict() for each in self.values}}
                if self.values
                else {}
            ),
            "clock": {
                "hosts": {each.host: each.to_dict() for each in self.clock},
                "events": [each.to_dict() for each in self.clock_events],
                "loops": [each.to_dict() for each in self.loops],
                "probes": None if self.probes is None else self.probes.to_dict(),
            },
            "loss": self.loss.to_dict(),
            "subtracted": None
            if self.subtracted is None
            else {"hosts": {each.host: each.to_dict() for each in self.subtracted}},
            "links": [each.to_dict() for each in self.links],
            "repeats": self.repeats,
            "problems": list(self.problems),
        }

    def to_json(self) -> str:
        """The content of `results.json`, which is what `loopscope run --json` prints."""
        return to_json(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
