"""Measurements of an experiment's events, and expectations of these: part of the plan.

Times are whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Scalar = str | int | float | bool
Stat = Literal[
    "count",
    "sent",
    "received",
    "lost",
    "duplicates",
    "min",
    "mean",
    "p50",
    "p90",
    "p99",
    "p999",
    "max",
    "deviation",
    "asymmetry",
    "superseded",
    "rate",
    "jitter",
]
RATE: Final = "rate"
# What figures and tables show besides. Nothing bounds the error of settling, so nothing is expected
# of it; an age is expected of each use.
FigureStat = Literal[Stat, "settling", "age"]
Operator = Literal["<", "<=", ">", ">=", "==", "!="]


@dataclass(frozen=True)
class PathEvent:
    """An entity at a component; ``host`` is the component's."""

    component: str
    host: str
    group: str
    name: str

    @property
    def entity(self) -> str:
        """``group:name``."""
        return f"{self.group}:{self.name}"

    @property
    def table(self) -> str:
        """``group.name``: the entity's table."""
        return f"{self.group}.{self.name}"

    def __str__(self) -> str:
        """``component/group:name``, as in the file."""
        return f"{self.component}/{self.entity}"


Use = Literal["key", "every", "latest", "window"]
# Those that take some messages and leave others.
SAMPLING: Final[frozenset[Use]] = frozenset(("latest", "window"))


@dataclass(frozen=True)
class PathEdge:
    """Between two events of a branching path, as indexes into its events: ``start < end``.

    ``use`` says which messages of the first a message of the second is made of: the one with its
    number (``key``), the one of every input with its number, the latest that had arrived, or all of
    the last ``window_ns``. ``field`` of the second holds the number; None: what had arrived is told
    by time.
    """

    start: int
    end: int
    use: Use
    field: str | None
    window_ns: int | None = None


_BETWEEN: Final = ", "


def key_of(fields: Iterable[str]) -> str:
    """A key of some fields as the plan has it, ``id`` or ``sensor, number``."""
    return _BETWEEN.join(fields)


def fields_of(key: str) -> tuple[str, ...]:
    """The fields of such a key."""
    return tuple(key.split(_BETWEEN))


@dataclass(frozen=True)
class Path:
    """The events that a message goes through. ``key`` is what ties them together (``fields_of``).

    Messages of the first ``trim_ns`` of each repeat are left out. A branching path has
    ``edges``, and for each event the key that numbers its messages (None: they have no numbers);
    its events are in an order in which each comes after what it is made of.
    """

    name: str
    key: str
    events: tuple[PathEvent, ...]
    trim_ns: int = 0
    keys: tuple[str | None, ...] = ()
    edges: tuple[PathEdge, ...] = ()

    @property
    def loop(self) -> tuple[int, int]:
        """Indexes of the first and the last event.

        Of a branching path, of the first that it begins with and an end of that.
        """
        return self.ends[0] if self.edges else (0, len(self.events) - 1)

    @property
    def hops(self) -> list[tuple[int, int]]:
        """Indexes of neighbouring events."""
        if self.edges:
            return [(edge.start, edge.end) for edge in self.edges]
        return [(i, i + 1) for i in range(len(self.events) - 1)]

    @property
    def sinks(self) -> list[int]:
        """Indexes of the events that nothing comes after."""
        starts = {start for start, _ in self.hops}
        return [i for i in range(len(self.events)) if i not in starts]

    def before(self, end: int) -> set[int]:
        """Indexes of the events that an event's messages are made of, directly or not."""
        found: set[int] = set()
        for start, last in reversed(self.hops):
            if last == end or last in found:
                found.add(start)
        return found

    def between(self, first: int, last: int) -> set[int]:
        """Indexes of the events from one to another that it leads to, both included."""
        on_the_way = {each for each in self.before(last) if first in self.before(each)}
        return on_the_way | {first, last}

    def uses(self, first: int, last: int) -> set[Use]:
        """Ways in which the events between two use earlier ones."""
        way = self.between(first, last)
        found = {edge.use for edge in self.edges if edge.start in way and edge.end in way}
        return found if self.edges else {"key"}

    @property
    def sources(self) -> list[int]:
        """Indexes of the events at which messages set out."""
        ends = {end for _, end in self.hops}
        return [i for i in range(len(self.events)) if i not in ends]

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Indexes of each source with each sink that it leads to."""
        return [
            (source, sink)
            for sink in self.sinks
            for source in self.sources
            if source in self.before(sink)
        ]


@dataclass(frozen=True)
class MessageType:
    """A row of a message table. ``target_ns`` None: no latency is expected of it."""

    name: str
    transport: str
    size: int
    period_ns: int
    target_ns: int | None
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """Messages by type; ``sent`` and ``received`` are entities, ``table`` is the file."""

    name: str
    table: str
    sent: str
    received: str
    types: tuple[MessageType, ...]


@dataclass(frozen=True)
class Hop:
    """A part of a path, as indexes into its events: ``start < end``."""

    start: int
    end: int


@dataclass(frozen=True)
class TimeWindow:
    """Window from ``after_ns`` on and before ``until_ns`` (None: to the end).

    Time counts from the first occurrence in the repeat of any event that a path begins with or that
    is expected something of.
    """

    after_ns: int
    until_ns: int | None = None


@dataclass(frozen=True)
class Expectation:
    """``SUBJECT.STAT OP VALUE``: of one number. ``value`` is in ns where ``is_time``, else a count.

    ``hop`` is the part of the path that is judged, None: from the first event to the last.
    ``stat`` None: ``path`` is the name of a value, ``value`` in that value's unit. ``clock``: this
    is about how far that clock of the host ``path`` (``hosts``: of any) is from the reference's.
    ``event``: this is about when that occurs, and ``path`` is its name; a rate is in Hz. ``window``
    None: of the whole run.
    """

    text: str
    path: str
    hop: Hop | None
    stat: Stat | None
    op: Operator
    value: int | float
    is_time: bool
    clock: Literal["realtime"] | None = None
    event: PathEvent | None = None
    window: TimeWindow | None = None


@dataclass(frozen=True)
class MissesIn:
    """At most ``most`` misses among any ``of`` in succession; ``0 < most < of``."""

    most: int
    of: int


@dataclass(frozen=True)
class Allowed:
    """The misses that are allowed; none by default.

    At least ``met_ppb`` of 10⁹ cases are met, and every one of ``rows`` holds.
    """

    met_ppb: int | None = None
    rows: tuple[MissesIn, ...] = ()


@dataclass(frozen=True)
class Requirement:
    """Requirement on each message of a path, or each interval between occurrences of ``event``.

    | kind | each | is met where |
    |---|---|---|
    | ``time`` | message | its time compares by ``op`` with ``limit_ns`` |
    | ``age`` | update at the last event | the data's age just before compares so |
    | ``before`` | message | its time compares by ``op`` with 0: ``<`` if it was at the end first |
    | ``order`` | message that arrived | none that was sent later arrived earlier |
    | ``complete`` | message | it was seen at every event, once |
    | ``symmetric`` | message that arrived | its first and last hop differ by ``limit_ns`` at most |
    | ``every`` | interval | it differs from ``period_ns`` by ``limit_ns`` at most |

    ``hop`` is the part of the path that is judged, None: all of it.
    """

    text: str
    kind: Literal["time", "age", "before", "order", "complete", "symmetric", "every"]
    path: str | None
    hop: Hop | None
    event: PathEvent | None
    op: Operator | None
    limit_ns: int | None
    period_ns: int | None
    allowed: Allowed
    window: TimeWindow | None


@dataclass(frozen=True)
class Value:
    """A number in ``unit`` ("": a count): ``stat`` of ``field`` over an entity's events.

    The field's values are multiplied by ``scale``. ``component`` None: the events of all. Events
    with the same value of the field ``per`` count as one, with their sum; of each repeat's, the
    first and the last so many are left out.

    With ``layer``, one of ``LAYERS``, it is that layer's share in % or sum in ns instead.
    """

    name: str
    component: str | None
    group: str
    event: str
    field: str | None
    stat: str
    unit: str
    scale: float
    per: str | None = None
    skip_first: int = 0
    skip_last: int = 0
    layer: str | None = None

    @property
    def entity(self) -> str:
        """``group:name``, or what else the number is of."""
        return f"{self.group}:{self.event}" if self.layer is None else "threads at channels"

    @property
    def table(self) -> str:
        """``group.name``: the entity's table."""
        return f"{self.group}.{self.event}"


@dataclass(frozen=True)
class Statistic:
    """A statistic of a path's part ``hop`` (None: all of it).

    ``stat`` None: ``path`` is the name of a value or, over time, the messages are meant; ``age``
    over time: those of every use.
    """

    text: str
    path: str
    hop: Hop | None
    stat: FigureStat | None


@dataclass(frozen=True)
class Figure:
    """A figure of ``y`` against a swept parameter ``x``, a line for each value of ``series``.

    Where ``x`` is ``time``, y over the run, a panel for each point. Of the points whose parameters
    are ``only``'s.
    """

    name: str
    title: str | None
    x: str
    y: tuple[Statistic, ...]
    error: Statistic | None
    series: str | None
    only: dict[str, Scalar]
    log: tuple[Literal["x", "y"], ...]
    compare: Literal["identity", "linear"] | None
    x_label: str | None
    y_label: str | None
    until_ns: int | None
    labels: tuple[str, ...] = ()

    def label(self, text: str) -> str:
        """Name of one of several y; empty where there is one."""
        texts = [y.text for y in self.y]
        if len(texts) == 1:
            return ""
        return self.labels[texts.index(text)] if self.labels else text
