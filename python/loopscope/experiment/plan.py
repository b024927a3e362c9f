"""An experiment as resolved: what the controller runs and the manifest keeps.

Nothing here is optional that the file leaves open: defaults are filled in, parameters replaced,
phases in order, names known to exist. Times are whole nanoseconds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Literal

from .problem import Problem

MANIFEST_VERSION: Final = 1

# The stream of `trace.user`; an experiment's tables and verdicts are made from it.
MAIN: Final = "main"

Scalar = str | int | float | bool
Stat = Literal["count", "lost", "duplicates", "min", "mean", "p50", "p90", "p99", "p999", "max"]
Operator = Literal["<", "<=", ">", ">=", "==", "!="]


@dataclass(frozen=True)
class PhasesReady:
    """Speaks the phase protocol: ready is its hello."""

    rule: Literal["phases"] = "phases"


@dataclass(frozen=True)
class StartedReady:
    """Ready as soon as it runs."""

    rule: Literal["started"] = "started"


@dataclass(frozen=True)
class LineReady:
    """Ready when a line of its stdout contains ``text``."""

    text: str
    rule: Literal["line"] = "line"


@dataclass(frozen=True)
class PortReady:
    """Ready when it listens on a TCP port or has bound a UDP port."""

    port: int
    rule: Literal["port"] = "port"


@dataclass(frozen=True)
class ExitReady:
    """Ready when it has ended with exit status ``code``."""

    code: int
    rule: Literal["exit"] = "exit"


Readiness = PhasesReady | StartedReady | LineReady | PortReady | ExitReady


@dataclass(frozen=True)
class Component:
    """A program in a role.

    ``start`` is the phase at whose beginning it starts, None: before the first phase. Its
    readiness belongs to the barrier of that phase (None: to the one before the first phase).
    ``phases`` are the phases it must take part in and no others, None: those its hello names;
    it is None for a program that does not speak the phase protocol.
    """

    name: str
    host: str
    argv: tuple[str, ...]
    config: dict[str, Any]
    env: dict[str, str]
    ready: Readiness
    start: str | None
    phases: tuple[str, ...] | None


@dataclass(frozen=True)
class Phase:
    """A stage between two barriers. Where the file marks no phase as measured, all are."""

    name: str
    timeout_ns: int
    measured: bool
    after: tuple[str, ...]


@dataclass(frozen=True)
class Clocks:
    """The hosts' clocks: as they are, or (``synthetic``) hidden behind ones made from ``seed``."""

    mode: Literal["plain", "synthetic"]
    seed: int | None


@dataclass(frozen=True)
class ClockExchange:
    """Probes between the hosts: exchanges a second, exchanges in the first and the last burst,
    and the assumed bound on an oscillator's wander."""

    rate_hz: float
    burst: int
    wander_ppm: float


@dataclass(frozen=True)
class Network:
    """IPv4 networks in CIDR notation; ``mtu`` of the data links in bytes, None: the kernel's."""

    data: str
    clock: str
    mtu: int | None


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


@dataclass(frozen=True)
class Path:
    """The events that a message goes through. ``key`` is the column that ties them together."""

    name: str
    key: str
    events: tuple[PathEvent, ...]

    @property
    def loop(self) -> tuple[int, int]:
        """Indexes of the first and the last event."""
        return 0, len(self.events) - 1

    @property
    def hops(self) -> list[tuple[int, int]]:
        """Indexes of neighbouring events."""
        return [(i, i + 1) for i in range(len(self.events) - 1)]


@dataclass(frozen=True)
class StreamFilter:
    """Which hits of the entities that a pattern matches a stream takes. None: no such limit."""

    entities: str
    where: str | None
    every: int | None
    rate: int | None


@dataclass(frozen=True)
class EntityTrigger:
    """A hit, of which ``where`` holds, writes a flight recorder. None: any hit."""

    entities: str
    where: str | None


@dataclass(frozen=True)
class PathTrigger:
    """A message that took longer than ``over_ns`` writes a flight recorder."""

    path: str
    over_ns: int


@dataclass(frozen=True)
class Stream:
    """A stream of records; sizes in bytes, of each thread's ring. Patterns with ``!`` leave out."""

    name: str
    kind: Literal["normal", "flight-recorder"]
    entities: tuple[str, ...]
    subbuffer: int
    subbuffers: int
    filters: tuple[StreamFilter, ...]
    triggers: tuple[EntityTrigger | PathTrigger, ...]
    post_ns: int
    on_death: bool


@dataclass(frozen=True)
class Hop:
    """A part of a path, as indexes into its events: ``start < end``."""

    start: int
    end: int


@dataclass(frozen=True)
class Expectation:
    """``PATH.STAT OP VALUE``. ``value`` is in ns where ``is_time``, else a count.

    ``hop`` is the part of the path that is judged, None: from the first event to the last.
    """

    text: str
    path: str
    hop: Hop | None
    stat: Stat
    op: Operator
    value: int
    is_time: bool


@dataclass(frozen=True)
class Experiment:
    """One experiment, ready to run.

    ``phases`` are in the order in which they run; components, paths and expectations in the
    file's order. ``trace`` are patterns on ``group:name``: what the main stream records;
    ``streams`` are the others.
    """

    name: str
    description: str
    testbed: Literal["local"]
    hosts: tuple[str, ...]
    clocks: Clocks
    clock: ClockExchange
    network: Network
    params: dict[str, Scalar]
    components: tuple[Component, ...]
    phases: tuple[Phase, ...]
    trace: tuple[str, ...]
    paths: tuple[Path, ...]
    expectations: tuple[Expectation, ...]
    repeat: int
    streams: tuple[Stream, ...] = ()
    subtract_cost: bool = False
    warnings: tuple[Problem, ...] = ()
    version: Literal[1] = MANIFEST_VERSION

    def to_manifest(self) -> dict[str, Any]:
        """The experiment in JSON's types, as manifest.schema.json describes it."""
        return {key: _json(value) for key, value in dataclasses.asdict(self).items()}


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return value
