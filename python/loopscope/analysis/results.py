"""Results of a run: the one source of the terminal, the JSON and the page.

Times are whole nanoseconds; a mean is rounded to a tenth. What was not measured is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainSerializer, SerializerFunctionWrapHandler, model_serializer

from loopscope.analysis.channel_result import ChannelsResult
from loopscope.analysis.deciding_cases import Case, CaseCounts
from loopscope.analysis.document import INTERNAL, OPTIONAL, UNLESS_EMPTY, Document, keyed_by
from loopscope.analysis.hop_decomposition_result import SplitResult
from loopscope.analysis.kernel_result import KernelResult, ToldEvents
from loopscope.analysis.path_result import GraphResult
from loopscope.analysis.verdict import Verdict
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.messages import Messages
else:
    MeasuredDag = Messages = Any  # which would import this file; they are not in the JSON

TIMES = ("min", "mean", "p50", "p99", "p999", "max")
"""The statistics of every interval, in order; `<name>_ns` in the JSON."""

PATTERN_TIMES = ("min", "p50", "p99", "max")
"""The statistics of a pattern's rows, likewise."""


@dataclass(frozen=True)
class IntervalResult(Document):
    """Interval from one event to another: a whole path, or one of its hops."""

    first: Annotated[str, INTERNAL]
    last: Annotated[str, INTERNAL]
    count: int
    """Path: `sent`. Hop: `received`."""
    sent: int
    """Messages seen at the first end."""
    received: int
    """Messages seen at both ends."""
    lost: int
    """Messages seen at the first end and not at the last."""
    duplicates: int
    """Occurrences at the last end beyond each message's first."""
    times: Mapping[str, int | float | None]
    """Times by the names in `TIMES`, ns, over the messages seen at both ends."""
    err_ns: int | None
    """The largest maximum error among them.

    No statistic is farther from its true value, as long as the trace dropped nothing.
    """
    splits: Annotated[tuple[SplitResult, ...], INTERNAL] = ()
    """Parts of a hop where links' events were recorded, for each emulated link that it goes over.
    """
    by_repeat: Annotated[Mapping[int, IntervalResult] | None, OPTIONAL] = None
    """Results of each repeat alone, where there are several.

    Those of all together hide how they differ.
    """


def _hops(hops: Sequence[IntervalResult]) -> list[dict[str, Any]]:
    return [
        {
            "from": hop.first,
            "to": hop.last,
            **hop.to_dict(),
            "splits": [split.to_dict() for split in hop.splits],
        }
        for hop in hops
    ]


@dataclass(frozen=True)
class PathResult(Document):
    name: Annotated[str, INTERNAL]
    loop: IntervalResult
    hops: Annotated[tuple[IntervalResult, ...], PlainSerializer(_hops)]
    unsplit: Annotated[str | None, OPTIONAL] = None
    """Why its hops are not split at the emulated links that they go over.

    None where they are, or go over none.
    """

    @model_serializer(mode="wrap")
    def _with_loop(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The loop's entries are the path's own."""
        document: dict[str, Any] = serialise(self)
        return {**document.pop("loop"), **document}


@dataclass(frozen=True)
class PatternRow(Document):
    """One type of message at one consumer, which several of a multicast group are."""

    message_type: Annotated[str, Field(serialization_alias="type")]
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
    """Maximum error of `max`, ns; None where nothing bounds it."""
    target_ns: int | None
    verdict: Verdict | None
    """None where there is no target."""
    reason: str | None
    """Why it is not PASS."""


@dataclass(frozen=True)
class PatternResult(Document):
    name: Annotated[str, INTERNAL]
    verdict: Verdict | None
    """Verdict on all rows; None where no row has a target."""
    rows: tuple[PatternRow, ...]


@dataclass(frozen=True)
class ExpectationResult(Document):
    text: str
    verdict: Verdict
    measured: int | float | None
    """ns, a number of messages or, of a value, in `unit`; None where nothing was measured."""
    err_ns: int | None
    """Maximum error of `measured`.

    None for numbers of messages, where nothing was measured and where nothing bounds it.
    """
    is_time: Annotated[bool, INTERNAL]
    reason: str | None
    """Why it is UNKNOWN; which of several hosts, or what held most of the messages that were late,
    made it FAIL.
    """
    unit: Annotated[str | None, OPTIONAL] = None
    """Unit of a value, "" for a count; None where this is about a path."""
    counts: CaseCounts | None = None
    """Numbers of the cases where each message, update or interval has to meet something.

    `measured` is the number of those that were missed.
    """
    deciding: tuple[Case, ...] = ()
    """Cases that decided the verdict, most telling first, at most `deadline.LISTED`."""
    deciding_count: int = 0
    """Number of all cases that decided."""

    @model_serializer(mode="wrap")
    def _with_cases(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        cases = () if self.counts else ("counts", "deciding", "deciding_count")
        return {key: each for key, each in serialise(self).items() if key not in cases}


@dataclass(frozen=True)
class ValueResult(Document):
    """A value of `measure.values`."""

    name: Annotated[str, INTERNAL]
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
    not_finite: Annotated[int, UNLESS_EMPTY] = 0
    """Numbers among them that are NaN or infinite; `value` is of the others."""
    by_repeat: Annotated[Mapping[int, int | float | None] | None, OPTIONAL] = None
    """The value of each repeat alone, where there are several."""
    unknown: Annotated[int, UNLESS_EMPTY] = 0
    """Threads of which a layer's time is not known; if there are any, there is no value."""


@dataclass(frozen=True)
class StatisticResult(Document):
    """A statistic that a table's column or a figure asked for."""

    text: Annotated[str, INTERNAL]
    value: int | float | None
    err: int | None
    """Maximum error; None where nothing bounds it or it is a value's."""
    unit: str


@dataclass(frozen=True)
class Offset(Document):
    """Largest offset of a host's CLOCK_REALTIME from the reference's, ns."""

    offset_ns: int
    err_ns: int | None
    """None where nothing bounds it."""


@dataclass(frozen=True)
class ClockResult(Document):
    host: Annotated[str, INTERNAL]
    max_err_ns: int | None
    """None where nothing bounds it: the clock was disturbed."""
    reference: bool
    exchanges: int
    """Exchanges of probes that the clock's map rests on."""
    rejected: int
    """Messages of the probes that contradicted the others."""
    realtime: Offset | None
    """None where nothing is known of it."""


@dataclass(frozen=True)
class ClockEvent(Document):
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
    """Least size of the step, ns, positive where it is forward; None where that is not known."""
    most_ns: int | None
    what: str
    """In words."""


@dataclass(frozen=True)
class LoopResult(Document):
    """Agreement of two followers' times with the probes between the two, in a repeat.

    The residuals are of the loop over the reference. Times are None where no instant has a
    residual.
    """

    repeat: int
    host: str
    """Host that probed."""
    peer: str
    exchanges: int
    rejected: int
    """Messages that contradicted the others."""
    instants: int
    """That were looked at."""
    unknown: int
    """Number of those without a residual."""
    covered: int
    """Those inside their calibrated error bound."""
    contradictions: int
    """Those outside their hard one."""
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    err_ns: int | None
    """Median of the hard maximum errors."""
    calibrated_ns: int | None
    """Median of the calibrated error bounds, ns."""
    problem: str | None
    """Why nothing is known."""


@dataclass(frozen=True)
class ProbesResult(Document):
    """Traffic of the clock probes of all hosts and repeats."""

    network: str
    packets: int
    bytes: int
    """With the headers of IP and UDP."""
    seconds: float


@dataclass(frozen=True)
class ClockResults(Document):
    """Results about the clocks."""

    hosts: Annotated[tuple[ClockResult, ...], keyed_by("host")]
    events: tuple[ClockEvent, ...]
    loops: tuple[LoopResult, ...]
    """Empty with fewer than three hosts."""
    probes: ProbesResult | None
    """None where no repeat says it."""


@dataclass(frozen=True)
class CostResult(Document):
    """Cost of an event on a host, ns: the largest of all repeats."""

    host: Annotated[str, INTERNAL]
    event_ns: float
    err_ns: float


@dataclass(frozen=True)
class Drop(Document):
    """Events of one call site of one process that one cause took."""

    host: str
    process: str
    entity: str
    cause: str
    count: int


@dataclass(frozen=True)
class LossResult(Document):
    emitted: int
    recorded: int
    dropped: int
    balanced: bool
    """`emitted == recorded + dropped` for every process."""
    causes: Mapping[str, int]
    drops: tuple[Drop, ...]


@dataclass(frozen=True)
class Share(Document):
    """A number of packets of all that might have been concerned."""

    found: int
    of: int
    low: float | None
    high: float | None
    """Ends of the 99 % interval of the share; None of nothing."""
    asked: int | float | None
    """None where a file of the experiment's says it."""
    inside: bool | None
    """Whether what was asked lies in the interval."""


@dataclass(frozen=True)
class LinkResult(Document):
    """One link while its settings stayed the same."""

    repeat: int
    sender: Annotated[str, Field(serialization_alias="from")]
    receiver: Annotated[str, Field(serialization_alias="to")]
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
    delay: Annotated[Mapping[str, int | float | None], Field(serialization_alias="delay_ns")]
    """Time from arrival to departure, ns: mean, deviation and percentiles."""
    late: Annotated[Mapping[str, int | float | None], Field(serialization_alias="late_ns")]
    """Time from the instant due to departure, ns: what the mover added."""
    asked_delay_ns: int | None
    """The mean; None where a queue or a file of delays adds to what was asked."""
    delay_error_ns: float | None
    """Difference of the mean delay to the delay asked for, ns; None where one of them is."""
    asked_deviation_ns: float | None
    lost: Share
    duplicated: Share
    corrupted: Share
    reordered: int
    rate_bps: float | None
    """Rate from the first departure to the last, bit/s."""
    asked_rate_bps: int | None


def _by_host(costs: tuple[CostResult, ...] | None) -> dict[str, Any] | None:
    return None if costs is None else {"hosts": {each.host: each.to_dict() for each in costs}}


@dataclass(frozen=True, kw_only=True)
class Results(Document):
    run: str
    experiment: Annotated[str, INTERNAL]
    verdict: Verdict | None
    """None where nothing was expected."""
    expectations: tuple[ExpectationResult, ...]
    paths: Annotated[tuple[PathResult, ...], keyed_by("name")]
    graphs: Annotated[tuple[GraphResult, ...], keyed_by("name"), UNLESS_EMPTY] = ()
    """Branching paths; `paths` are the others."""
    patterns: Annotated[tuple[PatternResult, ...], keyed_by("name")] = ()
    values: Annotated[tuple[ValueResult, ...], keyed_by("name"), UNLESS_EMPTY] = ()
    clock: ClockResults
    loss: LossResult
    kernel: Annotated[KernelResult | None, UNLESS_EMPTY] = None
    """What was recorded of kernels; None where nothing was asked for."""
    watched: Annotated[tuple[ToldEvents, ...], keyed_by("name"), UNLESS_EMPTY] = ()
    """Messages of programs that record nothing, told from the kernels' events."""
    subtracted: Annotated[tuple[CostResult, ...] | None, PlainSerializer(_by_host)]
    """The cost of recording, where it was subtracted from the times."""
    links: tuple[LinkResult, ...]
    """Empty where none are emulated."""
    channels: Annotated[ChannelsResult | None, UNLESS_EMPTY] = None
    """What its channels of space-time memory did; None where the experiment has none."""
    repeats: int
    problems: tuple[str, ...]
    messages: Annotated[Mapping[str, Messages], INTERNAL] = field(repr=False, compare=False)
    """Name to the messages of each path that is a list, for the figures."""
    graph_messages: Annotated[Mapping[str, MeasuredDag], INTERNAL] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Messages of the branching paths, by name."""
    statistics: Annotated[Mapping[str, StatisticResult], INTERNAL] = field(default_factory=dict)
    """Statistics that tables and figures asked for, by text; in the JSON of a sweep only."""

    def to_json(self) -> str:
        """The content of `results.json`, which is what `loopscope run --json` prints."""
        return to_json(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
