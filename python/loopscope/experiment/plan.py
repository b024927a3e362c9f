"""An experiment as resolved: what the controller runs and the manifest keeps.

Nothing here is optional that the file leaves open: defaults are filled in, parameters replaced,
phases in order, names known to exist. Times are whole nanoseconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from . import seeds
from .acceleration import Acceleration
from .channel import Channel
from .machine_settings import MachineSettings
from .measures import Expectation, Figure, Path, Pattern, Requirement, Scalar, Statistic, Value
from .problem import Problem

MANIFEST_VERSION: Final = 1

# The stream of `trace.user`; an experiment's tables and verdicts are made from it.
MAIN: Final = "main"


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
class ForeignTrace:
    """Recording of another tool in a component's working directory.

    ``clock`` None: the one that it names.
    """

    path: str
    clock: str | None


@dataclass(frozen=True)
class Component:
    """A program in a role.

    ``start`` is the phase at whose beginning it starts, None: before the first phase. Its
    readiness belongs to the barrier of that phase (None: to the one before the first phase).
    ``phases`` are the phases it must take part in and no others, None: those its hello names;
    it is None for a program that does not speak the phase protocol. ``environment`` names the
    variables that it inherits, with ``*`` behind the beginning of several; ``user`` None is who
    runs loopscope; ``output_bytes`` are kept of its stdout and of its stderr. ``after`` are the
    components that come before it, by phase, before the first one under the empty name.
    ``commands`` are the command lines by phase of which ``argv`` is the wrapper, where it is one.
    ``fetch`` are patterns of the files that it leaves, of which the manifest has the hashes.
    Without ``accelerate`` the kernel transfers its connections.
    """

    name: str
    host: str
    argv: tuple[str, ...]
    config: dict[str, Any]
    env: dict[str, str]
    ready: Readiness
    start: str | None
    phases: tuple[str, ...] | None
    traces: tuple[ForeignTrace, ...] = ()
    user: str | None = None
    environment: tuple[str, ...] = ("*",)
    output_bytes: int = 16 << 20
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    background: bool = False
    allow_failure: bool = False
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fetch: tuple[str, ...] = ()
    accelerate: Acceleration | None = None


@dataclass(frozen=True)
class Phase:
    """A stage between two barriers. Where the file marks no phase as measured, all are.

    ``common_start_ns``: how long after they are told all components begin it together, None: each
    begins when it is told. ``kernel``: the classes of the kernel's events that are recorded in it,
    None: all that are recorded.
    """

    name: str
    timeout_ns: int
    measured: bool
    after: tuple[str, ...]
    common_start_ns: int | None = None
    kernel: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RealtimeStep:
    """A step of CLOCK_REALTIME forward by ``by_ns``, so long after the start of the probes."""

    at_ns: int
    by_ns: int


@dataclass(frozen=True)
class Clocks:
    """The hosts' clocks: as they are, or (``synthetic``) hidden behind ones made from ``seed``.

    ``realtime``: steps of CLOCK_REALTIME, by host.
    """

    mode: Literal["plain", "synthetic"]
    seed: int | None
    realtime: Mapping[str, RealtimeStep] = field(default_factory=dict)


@dataclass(frozen=True)
class ClockExchange:
    """Settings of the probes between the hosts.

    Over which network, exchanges a second, exchanges in the first and the last burst, the maximum
    error that is waited for and how long, the assumed bound on an oscillator's wander, the paths
    whose messages bound the clocks too, whether followers probe each other, the UDP port of those
    that answer (None: any), and the counters of hosts that are not to choose theirs: cycles or
    monotonic-raw.
    """

    network: Literal["clock", "data"]
    rate_hz: float
    burst: int
    within_ns: int | None
    patience_ns: int
    wander_ppm: float
    mesh: bool = True
    messages: tuple[str, ...] = ()
    port: int | None = None
    counters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """How the machine of a host is reached over SSH; None: as ssh has it.

    ``data`` and ``clock`` are its IP addresses on the networks of messages and of clock probes, the
    preferred one first; empty: where the SSH connection arrives, and those of ``data``. ``become``:
    ``sudo``, which gives its agent rights, or None. At most ``quota_bytes`` are taken from it.
    """

    address: str
    user: str | None = None
    port: int | None = None
    jump: str | None = None
    key: str | None = None
    data: tuple[str, ...] = ()
    clock: tuple[str, ...] = ()
    become: str | None = None
    quota_bytes: int = 16 * 10**9
    settings: MachineSettings = MachineSettings()


@dataclass(frozen=True)
class LinkStep:
    """A change of some of a link's settings (None: to the default).

    It comes so long after the beginning of the first measured phase.
    """

    at_ns: int
    set: dict[str, Any]


@dataclass(frozen=True)
class Link:
    """One direction between two hosts. ``settings`` are as in ``schema/links.md``."""

    source: str
    target: str
    settings: dict[str, Any]
    steps: tuple[LinkStep, ...]


@dataclass(frozen=True)
class Emulation:
    """Emulation by the router between the hosts. ``links`` are those that differ from a plain wire.

    ``router`` is the host that is the router, None: the testbed has one, or each host impairs what
    it sends.
    ``message`` says where packets carry their message's number: ``offset`` and ``width`` in bytes,
    ``order`` of them; None: in the first eight bytes, little-endian. ``trace`` says whether the
    events of group ``link`` are recorded.
    """

    mover: Literal["auto", "xdp", "tap", "netem"]
    wait: Literal["sleep", "spin"]
    seed: int
    trace: bool
    links: tuple[Link, ...]
    message: dict[str, Any] | None = None
    router: str | None = None


@dataclass(frozen=True)
class Network:
    """IPv4 networks in CIDR notation; ``mtu`` of the data links in bytes, None: the kernel's.

    ``emulation`` is None where the data links are a plain bridge. ``channels_port`` is the TCP port
    of the homes of channels, ``channels_congestion`` TCP's congestion control for their items.
    """

    data: str
    clock: str
    mtu: int | None
    emulation: Emulation | None = None
    channels_port: int = 7421
    channels_congestion: str | None = None


@dataclass(frozen=True)
class StreamFilter:
    """The hits that a stream takes of the entities that match a pattern; None means no limit."""

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
    """A stream of records; sizes in bytes, of each thread's ring. Patterns with ``!`` leave out.

    ``kernel_ns``: the kernel's events of so long before a trigger are written with it.
    """

    name: str
    kind: Literal["normal", "flight-recorder"]
    entities: tuple[str, ...]
    subbuffer: int
    subbuffers: int
    filters: tuple[StreamFilter, ...]
    triggers: tuple[EntityTrigger | PathTrigger, ...]
    post_ns: int
    on_death: bool
    kernel_ns: int | None = None


@dataclass(frozen=True)
class ProgramMessages:
    """Messages that programs send to a port, or ``from_port`` from it, at an address or at any.

    ``number`` is where they have their number, in bytes: ``offset``, ``width`` and ``order`` of
    them; None: it is their place on their connection. ``length``: where they have their length,
    with ``uncounted`` bytes that it does not count; None: what a call writes is a message.
    """

    name: str
    protocol: Literal["udp", "tcp"]
    port: int
    from_port: bool
    number: dict[str, Any] | None
    length: dict[str, Any] | None = None
    address: str | None = None


@dataclass(frozen=True)
class ProgramWakeups:
    """Timers or interrupts that wake threads of the run's programs.

    ``interrupt`` and ``thread`` are patterns on names. ``number``: the event that has their
    numbers; None: these are their places in order.
    """

    name: str
    by: Literal["timer", "interrupt"]
    interrupt: str
    thread: str
    number: str | None


@dataclass(frozen=True)
class AnalysisStep:
    """A step of a pipeline and its options, as ``steps.py`` names them, defaults filled in."""

    kind: str
    options: dict[str, Any]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The pipelines and tables that it takes besides the one before it."""
        given = self.options.get("with")
        return () if given is None else (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True)
class Pipeline:
    """Steps one after the other; the first takes the pipeline or table ``source``, None: none."""

    name: str
    source: str | None
    steps: tuple[AnalysisStep, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every pipeline and table that it takes."""
        first = () if self.source is None else (self.source,)
        return (*first, *(name for step in self.steps for name in step.inputs))


@dataclass(frozen=True)
class Graph:
    """Pipelines in an order in which each comes after those that it takes.

    ``modules`` are the texts of the Python files that their steps call, by name.
    """

    pipelines: tuple[Pipeline, ...] = ()
    modules: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelFilters:
    """Events of the kernel that are recorded alone; empty: all.

    Those of sockets with one of some ``ports``, packets at some ``devices``, and system calls that
    took ``shortest_call_ns`` or longer.
    """

    ports: tuple[int, ...]
    devices: tuple[str, ...]
    shortest_call_ns: int


@dataclass(frozen=True)
class Experiment:
    """One experiment, ready to run.

    ``phases`` are in the order in which they run, and components go on for ``drain_ns`` after the
    last one; components, paths and expectations are in the file's order. ``trace`` are patterns on
    ``group:name``: what the main stream records; ``streams`` are the others, and ``kernel`` are
    patterns on ``class:name`` of the kernel's events, ``kernel_asked`` whether the file asks for
    them or they are recorded where it is possible; ``messages`` are told from them.
    ``kernel_histograms``: whether kernels keep histograms too. ``kernel_filters``: what of their
    events is recorded alone, None: all. ``channels`` are in the file's order.
    ``points`` are those of the sweep, in order, none where nothing is swept; the experiment itself
    is then the file with its parameters as they stand. ``folder`` is that of the file, absolute,
    where relative paths of commands begin; empty: the current one. ``machines`` are those of
    testbed ssh, by host; ``send`` are patterns of the files that they get.
    """

    name: str
    description: str
    testbed: Literal["local", "ssh"]
    hosts: tuple[str, ...]
    clocks: Clocks
    clock: ClockExchange
    network: Network
    params: dict[str, Scalar]
    components: tuple[Component, ...]
    phases: tuple[Phase, ...]
    trace: tuple[str, ...]
    paths: tuple[Path, ...]
    expectations: tuple[Expectation | Requirement, ...]
    repeat: int
    streams: tuple[Stream, ...] = ()
    subtract_cost: bool = False
    patterns: tuple[Pattern, ...] = ()
    values: tuple[Value, ...] = ()
    table: tuple[Statistic, ...] = ()
    figures: tuple[Figure, ...] = ()
    analyse: Graph = field(default_factory=Graph)
    points: tuple[Point, ...] = ()
    warnings: tuple[Problem, ...] = ()
    folder: str = ""
    machines: Mapping[str, Machine] = field(default_factory=dict)
    settings: MachineSettings = MachineSettings()
    send: tuple[str, ...] = ()
    drain_ns: int = 0
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kernel: tuple[str, ...] = ()
    kernel_asked: bool = True
    messages: tuple[ProgramMessages, ...] = ()
    wakeups: tuple[ProgramWakeups, ...] = ()
    alternate_ns: int | None = None
    kernel_histograms: bool = False
    kernel_filters: KernelFilters | None = None
    channels: tuple[Channel, ...] = ()
    version: Literal[1] = MANIFEST_VERSION

    @property
    def seeds(self) -> dict[str, Any]:
        """Seeds of all that is drawn by chance and can be drawn again.

        Those of hidden clocks, links, and the components whose configuration has one.
        """
        found: dict[str, Any] = {}
        if self.clocks.seed is not None:
            found["clocks"] = self.clocks.seed
        if self.network.emulation is not None and self.network.emulation.mover != "netem":
            found["links"] = self.network.emulation.seed
        given = {c.name: c.config["seed"] for c in self.components if seeds.is_given(c.config)}
        return {**found, "components": given} if given else found

    def of_repeat(self, number: int) -> Experiment:
        """The experiment as its repeat of this number (from 1) runs it.

        It has seeds of its own, so that repeats are samples of their own. The first one has those
        of the file.
        """
        clocks, network = self.clocks, self.network
        if clocks.seed is not None:
            clocks = dataclasses.replace(clocks, seed=seeds.of_repeat(clocks.seed, number))
        if network.emulation is not None:
            seed = seeds.of_repeat(network.emulation.seed, number)
            emulation = dataclasses.replace(network.emulation, seed=seed)
            network = dataclasses.replace(network, emulation=emulation)
        components = tuple(
            dataclasses.replace(
                c, config={**c.config, "seed": seeds.of_repeat(c.config["seed"], number)}
            )
            if seeds.is_given(c.config)
            else c
            for c in self.components
        )
        return dataclasses.replace(self, clocks=clocks, network=network, components=components)

    def to_manifest(self) -> dict[str, Any]:
        """The experiment in JSON's types, as manifest.schema.json describes it."""
        return {key: _json(value) for key, value in dataclasses.asdict(self).items()}


@dataclass(frozen=True)
class Point:
    """One combination of swept parameters, and the experiment with them.

    Its table, figures and points are left to the whole. ``name`` is fit for a folder.
    """

    name: str
    params: dict[str, Scalar]
    experiment: Experiment


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return value
