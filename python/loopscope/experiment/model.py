"""The experiment file's keys: one model per section, each key described.

The published JSON Schema is made from these. They see the file after the replacement of
parameters, and check single values and names; what concerns several values is in ``rules``.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from . import statement_values, steps, study, values
from .expect_lines import MessageLine, NumberLine
from .link import WIRE, Link
from .quantity import DURATION, FREQUENCY, RATIO, SIZE
from .section import Section
from .sweep import Sweep

Integer = values.Integer
Quantity = values.Quantity
Text = Annotated[str, values.Text()]
Scalar = str | int | float | bool


class RealtimeStep(Section):
    """A step of a host's CLOCK_REALTIME."""

    at: Annotated[int, Quantity(DURATION, "0s", "1h")] = Field(
        description="When, after the start of the clocks' probes, such as 2s."
    )
    by: Annotated[int, Quantity(DURATION, "1ns", "1h")] = Field(
        description="How far forward it is set, such as 22ms."
    )


class SyntheticSettings(Section):
    """Settings of synthetic clocks."""

    seed: Annotated[int, Integer(0, 2**63 - 1)] = Field(
        default=1, description="Seed of the hidden offsets, rates and wander."
    )
    realtime: dict[Annotated[str, values.Reference("host")], RealtimeStep] = Field(
        default={},
        description="Hosts whose CLOCK_REALTIME is set in mid-run, as far as loopscope sees it.",
    )


class SyntheticClocks(Section):
    """Synthetic clocks with settings."""

    synthetic: SyntheticSettings = Field(description="Settings of synthetic clocks.")


def _word_or_mapping(value: object) -> str | None:
    return "<word>" if isinstance(value, str) else "<mapping>" if isinstance(value, dict) else None


class ClockExchange(Section):
    """How the hosts' clocks are compared."""

    network: Literal["clock", "data"] = Field(
        default="clock",
        description="clock: the probes have a network of their own. data: they share that of the "
        "messages, for hosts that have one only; emulated links delay them too, half-widths are "
        "those of such links, and the report says what they cost.",
    )
    rate: Annotated[float, Quantity(FREQUENCY, "0.1Hz", "1kHz")] = Field(
        default="100Hz",
        validate_default=True,
        description="Exchanges a second between the bursts, such as 100Hz. Of more than twenty "
        "hosts fewer: the first host answers 2000 a second of all together.",
    )
    burst: Annotated[int, Integer(2, 10_000)] = Field(
        default=100,
        description="Exchanges of a burst: the first, the last, and those when load is seen.",
    )
    within: Annotated[int | None, Quantity(DURATION, "1ns", "1h")] = Field(
        default=None,
        description="The first measured phase begins only when the time of every host is known "
        "within this half-width, such as 2us. Default: whatever it is.",
    )
    patience: Annotated[int, Quantity(DURATION, "0s", "1h")] = Field(
        default="30s",
        validate_default=True,
        description="How long to wait for that before the run is given up.",
    )
    wander: Annotated[float, Quantity(RATIO, "0.001ppm", "1000ppm")] = Field(
        default="1ppm",
        validate_default=True,
        description="Assumed bound on the wander of an oscillator's rate during the run, such as "
        "1ppm. The half-widths of times are true under this assumption.",
    )
    messages: list[Annotated[str, values.Reference("path")]] = Field(
        default=[],
        description="Paths whose messages to and from the first host bound the others' clocks too, "
        "beside the probes. Each event must be recorded before its message is sent, or after it "
        "came.",
    )
    mesh: bool = Field(
        default=True,
        description="Whether, of more than two hosts, each also checks its time against at most "
        "six others, up to ten times a second: the report then says how well times agree.",
    )


class MessageNumber(Section):
    """Where packets carry the number of their message, in the payload of UDP and TCP."""

    offset: Annotated[int, Quantity(SIZE, "0B", "65535B")] = Field(
        default=0, description="Bytes before it, such as 4B. Default: 0B."
    )
    width: Annotated[int, Quantity(SIZE, "1B", "8B")] = Field(
        default=8, description="Bytes of the number, 1B to 8B. Default: 8B."
    )
    order: Literal["little", "big"] = Field(
        default="little",
        description="Whether its least significant byte comes first (little) or its most "
        "significant one (big, network order).",
    )


class Network(Section):
    """The data links; the clock network is left alone. Other keys are links: `A -> B` for one
    direction, `A <-> B` for both."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Link]

    default: Link = Field(
        default=WIRE, description="What holds for every data link that does not say otherwise."
    )
    emulate: Annotated[bool, values.Boolean()] = Field(
        default=False,
        description="Whether packets go through the link emulator even where no link is impaired, "
        "so that `loopscope net set` can do it. Default: only where one is.",
    )
    mover: Literal["auto", "xdp", "tap", "netem"] = Field(
        default="auto",
        description="What moves emulated packets: xdp (AF_XDP), tap (AF_PACKET), netem (the "
        "kernel's). auto: xdp where the kernel allows it, else tap.",
    )
    wait: Literal["sleep", "spin"] = Field(
        default="sleep",
        description="How the mover waits for a packet's time: sleep, or spin, which takes a core.",
    )
    seed: Annotated[int, Integer(0, 2**63 - 1)] = Field(
        default=1, description="Seed of the links' random choices."
    )
    message: MessageNumber | None = Field(
        default=None,
        description="Where packets carry their message's number, by which the report splits hops "
        "at emulated links: the key of a path, if that is one whole number. Default: the first "
        "eight bytes, little-endian.",
    )
    trace: Annotated[bool, values.Boolean()] = Field(
        default=True,
        description="Whether what happens to emulated packets is recorded, as events link:*. "
        "Changes of links always are.",
    )
    data: Annotated[IPv4Network, values.Subnet()] = Field(
        default="10.77.0.0/24",
        validate_default=True,
        description="IPv4 network of the data links; host number i of `hosts` has its address i.",
    )
    clock: Annotated[IPv4Network, values.Subnet()] = Field(
        default="10.78.0.0/24",
        validate_default=True,
        description="IPv4 network of the clock probes; addresses as in `data`.",
    )

    @property
    def links(self) -> dict[str, Link]:
        """What is given under each other key."""
        return self.__pydantic_extra__ or {}


class LineReady(Section):
    """Ready when it has written a line."""

    line: Text = Field(description="Text within a line of stdout.")


class PortReady(Section):
    """Ready when it listens."""

    port: Annotated[int, Integer(1, 65535)] = Field(
        description="TCP port that it listens on, or UDP port that it has bound."
    )


class ExitReady(Section):
    """Ready when it has ended."""

    exit: Annotated[int, Integer(0, 255)] = Field(description="Exit status.")


def _kind_of_readiness(value: object) -> str | None:
    if isinstance(value, str):
        return "<word>"
    if isinstance(value, dict) and len(value) == 1:
        rule = next(iter(value))
        return f"<{rule}>" if rule in ("line", "port", "exit") else None
    return None


Ready = Annotated[
    Annotated[Literal["phases", "started"], Tag("<word>")]
    | Annotated[LineReady, Tag("<line>")]
    | Annotated[PortReady, Tag("<port>")]
    | Annotated[ExitReady, Tag("<exit>")],
    Discriminator(
        _kind_of_readiness,
        custom_error_type="wrong",
        custom_error_message="ready should be phases, started, {line: TEXT}, {port: N} or "
        "{exit: 0}",
    ),
]


class ForeignTrace(Section):
    """What a component records of its host with another tool."""

    path: Annotated[str, values.LeftBehind()] = Field(
        description="A directory of CTF traces (LTTng's, ros2 trace's), or a pcap or pcapng file, "
        "in the component's working directory."
    )
    clock: Annotated[str, values.HostClock()] | None = Field(
        default=None,
        description="The clock of its stamps: realtime, monotonic, ptp0, ptp1, … Default: the one "
        "that a CTF trace names, realtime for packets.",
    )


class Component(Section):
    """A program in a role."""

    host: Annotated[str, values.Reference("host")] = Field(description="Host that it runs on.")
    run: Annotated[list[str], values.Command()] = Field(
        description="Command: a line that is split into words as a shell splits them, or a list "
        "of words. No shell runs it. Words are split before parameters are put in. Words that "
        "begin with ./ or ../ are paths from this file's folder; it runs in a folder of its own, "
        "what it leaves there is kept."
    )
    with_: dict[str, Any] = Field(
        default={},
        alias="with",
        description="Configuration for a program of the phase protocol, as it wants it; quantities "
        "keep their spelling. {file: NAME} stands for a text file beside this one: the program "
        "gets its name and its text.",
    )
    env: dict[
        Annotated[str, values.Identifier("an environment variable", reserved="LOOPSCOPE_")],
        Annotated[Scalar, values.Single("an environment variable")],
    ] = Field(
        default={}, description="Environment variables to set, besides those of `environment`."
    )
    environment: list[Annotated[str, values.Variables()]] | None = Field(
        default=None,
        description="Names of the variables that it inherits from the environment of `loopscope "
        'run`, such as [PATH, ROS_*]. Default: ["*"], all of them; with `user` [PATH, LANG, '
        "LANGUAGE, LC_*, TZ]. PATH is always set, and what begins with LOOPSCOPE_ is loopscope's.",
    )
    user: Annotated[str, values.User()] | None = Field(
        default=None,
        description="User of the host that it runs as, by name or number, with that user's groups, "
        "HOME, USER, LOGNAME and SHELL. Default: who runs loopscope, which is root on the local "
        "testbed.",
    )
    output: Annotated[int, Quantity(SIZE, "128KiB", "1024GiB")] = Field(
        default="16MiB",
        validate_default=True,
        description="How much is kept of its stdout, and of its stderr: of more than that the "
        "beginning and the last 64KiB. What is left out is counted and reported.",
    )
    ready: Ready | None = Field(
        default=None,
        description="When the component counts as ready: `phases` (speaks the phase protocol), "
        "`started`, a line on stdout, an open port, its exit. Default: `phases` where `with` is "
        "given or the program is loopscope-host, else `started`.",
    )
    start: Annotated[str, values.Reference("phase")] | None = Field(
        default=None,
        description="Phase at whose beginning it starts; that phase does not end before it is "
        "ready. Default: before the first phase, which begins when all such are ready.",
    )
    phases: list[Annotated[str, values.Reference("phase")]] | None = Field(
        default=None,
        min_length=1,
        description="For a program of the phase protocol: the phases it must take part in, and no "
        "others. Default: those that it names itself.",
    )
    traces: list[
        Annotated[
            Annotated[Annotated[str, values.LeftBehind()], Tag("<word>")]
            | Annotated[ForeignTrace, Tag("<mapping>")],
            Discriminator(
                _word_or_mapping,
                custom_error_type="wrong",
                custom_error_message="a trace should be a path or {path: PATH, clock: CLOCK}",
            ),
        ]
    ] = Field(
        default=[],
        description="What it records of its host with another tool, such as lttng, ros2 trace or "
        "tcpdump: paths in its working directory, or {path: PATH, clock: CLOCK}. The events get "
        "tables on the run's time line.",
    )


class Phase(Section):
    """A stage of the run, between two barriers."""

    name: Annotated[str, values.Name("a phase", 40)] = Field(
        description="Name, as the programs know it."
    )
    timeout: Annotated[int, Quantity(DURATION, "1ms")] = Field(
        description="The run fails when the phase takes longer than this, such as 5s."
    )
    measured: Annotated[bool, values.Boolean()] = Field(
        default=False,
        description="Whether results are taken from this phase. Where no phase is marked, all are.",
    )
    after: list[Text] | None = Field(
        default=None,
        description="Phases that come before this one. Default: the one before it in the list.",
    )


class Filter(Section):
    """Which hits of some entities a stream takes; what it keeps out is counted."""

    entities: Annotated[str, values.Pattern()] = Field(
        description="Pattern on group:name: the entities that this is about."
    )
    where: Annotated[str, values.Predicate()] | None = Field(
        default=None,
        description="Condition on id, fields and, of an interval, duration, with C's operators, "
        "such as id % 100 == 0 && size > 1000 or duration > 1ms. All that apply must hold.",
    )
    every: Annotated[int, Integer(1, 2**63 - 1)] | None = Field(
        default=None, description="One hit in so many, in each thread; the last that applies."
    )
    rate: Annotated[int, Integer(1, 2**63 - 1)] | None = Field(
        default=None, description="At most so many hits in each second; the last that applies."
    )


class EntityTrigger(Section):
    """A hit that a flight recorder is written for."""

    entities: Annotated[str, values.Pattern()] = Field(
        description="Pattern on group:name: the entities of which a hit triggers."
    )
    where: Annotated[str, values.Predicate()] | None = Field(
        default=None, description="Condition on the hit, as in filters. Default: any hit."
    )


class PathTrigger(Section):
    """A message that was too slow, which a flight recorder is written for."""

    path: Annotated[str, values.Reference("path")] = Field(
        description="Path of measure.paths, with the key id."
    )
    over: Annotated[int, Quantity(DURATION, "1ns")] = Field(
        description="Triggers when a message took longer than this from the path's first event to "
        "its last, such as 5ms. Between hosts when it surely did: beyond what their clocks are "
        "known to while the run goes on, some 0.1 ms."
    )


def _kind_of_trigger(value: object) -> str | None:
    return ("<path>" if "path" in value else "<entities>") if isinstance(value, dict) else None


class Stream(Section):
    """A stream of records beside the main one, with entities, buffers and output of its own."""

    kind: Literal["normal", "flight-recorder"] = Field(
        default="normal",
        description="normal: all is written; what finds the buffer full is dropped and counted. "
        "flight-recorder: the newest is kept in memory and written after a trigger.",
    )
    entities: list[Annotated[str, values.Pattern(excluding=True)]] = Field(
        default=["*"],
        description="Patterns on group:name, with * and ?, of what to record; ! before one leaves "
        "out what it matches. The last that matches decides.",
    )
    buffer: Annotated[int, Quantity(SIZE, "4KiB", "16GiB")] = Field(
        default="4MiB",
        validate_default=True,
        description="Memory of each thread that records, 4KiB to 16GiB, such as 4MiB.",
    )
    filters: list[Filter] = Field(default=[], description="Which hits of the entities.")
    triggers: list[
        Annotated[
            Annotated[PathTrigger, Tag("<path>")] | Annotated[EntityTrigger, Tag("<entities>")],
            Discriminator(
                _kind_of_trigger,
                custom_error_type="wrong",
                custom_error_message="a trigger should be {entities: PATTERN, where: CONDITION} or "
                "{path: NAME, over: DURATION}",
            ),
        ]
    ] = Field(
        default=[],
        description="What writes a flight recorder, on all hosts, besides `loopscope trigger`.",
    )
    post: Annotated[int, Quantity(DURATION, "0ms")] = Field(
        default="0ms",
        validate_default=True,
        description="How long a flight recorder goes on after its trigger, such as 100ms.",
    )
    on_death: Annotated[bool, values.Boolean()] = Field(
        default=True,
        description="Whether a flight recorder is written when a program or the run ends.",
    )


class Trace(Section):
    """What is recorded."""

    user: list[Annotated[str, values.Pattern(excluding=True)]] = Field(
        default=["*"],
        description="Patterns on group:name of the events to record in programs, with * and ?; ! "
        "before one leaves out what it matches. The last that matches decides.",
    )
    streams: dict[Annotated[str, values.StreamName()], Stream] = Field(
        default={},
        max_length=values.MOST_STREAMS,
        description="Streams beside the main one, by name; each is written to a trace of its own.",
    )
    kernel: Annotated[None, values.NoKernel()] = Field(
        default=None, description="Kernel events; not in this version."
    )


class Join(Section):
    """How an event uses the messages of another."""

    use: Literal["every", "latest"] | None = Field(
        default=None,
        description="every: the message with the same number, of every such input. latest: the "
        "newest that had arrived.",
    )
    window: Annotated[int | None, Quantity(DURATION, "1ns", "1h")] = Field(
        default=None, description="All that had arrived in the time before, such as 100ms."
    )
    from_: Annotated[str, values.Key()] | None = Field(
        default=None,
        alias="from",
        description="Field of the event that holds the number of the message that was used (a list "
        "where it is several). "
        "Default: of every, the field that numbers the input; of latest, the stamps tell.",
    )


def _kind_of_join(value: object) -> str | None:
    return "<word>" if isinstance(value, str) else "<mapping>" if isinstance(value, dict) else None


class Step(Section):
    """An event of a path that is a graph."""

    event: Annotated[str, values.Event()] = Field(description="component/group:name.")
    key: Annotated[str, values.Key()] | None = Field(
        default=None,
        description="id, the name of a field, or a list of several: what numbers this event's "
        "messages from here on. Default: as at the event before; of every, as at its inputs. What "
        "joins by latest or window needs none.",
    )
    from_: Annotated[str, values.Key()] | None = Field(
        default=None,
        alias="from",
        description="Where the number is another than at the event before: the field that holds "
        "the number of the message there, which this one was made of; a list where it is several.",
    )
    after: Annotated[str, values.Event()] | None = Field(
        default=None,
        description="The event that this one follows, in which the path branches. Default: the "
        "one before it in the list.",
    )
    join: (
        dict[
            Annotated[str, values.Event()],
            Annotated[
                Annotated[Literal["every", "latest"], Tag("<word>")]
                | Annotated[Join, Tag("<mapping>")],
                Discriminator(
                    _kind_of_join,
                    custom_error_type="wrong",
                    custom_error_message="an input is joined by every, latest, {window: DURATION} "
                    "or {use: latest, from: FIELD}",
                ),
            ],
        ]
        | None
    ) = Field(
        default=None,
        description="Events of its own host whose messages this one uses, each with how: every "
        "(the one with the same number, of each input), latest (the newest that had arrived: "
        "sample and hold), or {window: 100ms} (all that had arrived in the last 100 ms).",
    )
    source: Annotated[bool, values.Boolean()] = Field(
        default=False, description="Whether its messages begin here and it comes after nothing."
    )


def _kind_of_step(value: object) -> str | None:
    return "<event>" if isinstance(value, str) else "<step>" if isinstance(value, dict) else None


class Path(Section):
    """The events that a message goes through."""

    key: Annotated[str, values.Key()] = Field(
        default="id",
        description="What ties a message's events together: id, or the name of a field that every "
        "event of the path has (whole numbers, text or bytes), or a list of several such fields.",
    )
    events: list[
        Annotated[
            Annotated[str, values.Event(), Tag("<event>")] | Annotated[Step, Tag("<step>")],
            Discriminator(
                _kind_of_step,
                custom_error_type="wrong",
                custom_error_message="an event is written component/group:name, or as a mapping "
                "{event: component/group:name, …}",
            ),
        ]
    ] = Field(
        min_length=2,
        examples=[["sensor/loop:sent", "controller/loop:received"]],
        description="component/group:name of each event, in order. A mapping says that the path "
        "branches, joins or goes on with another number there.",
    )
    trim: Annotated[int, Quantity(DURATION, "0s")] = Field(
        default="0s",
        validate_default=True,
        description="How long after the first message of each repeat messages are left out of all "
        "statistics, counts among them, such as 2s: the warm-up.",
    )


class Pattern(Section):
    """Types of messages, each with a target for its latency at every consumer."""

    table: Text = Field(
        description="Message table, CSV or YAML, beside this file; its producers and consumers "
        "are components."
    )
    sent: Annotated[str, values.Entity()] = Field(
        default="pattern:sent",
        validate_default=True,
        description="group:name of the event of a message that is sent, with the fields "
        "message_type (the row of the table, from 0), late_ns and within_ns.",
    )
    received: Annotated[str, values.Entity()] = Field(
        default="pattern:received",
        validate_default=True,
        description="group:name of the event of a message that has arrived, with the field "
        "message_type.",
    )


class Measure(Section):
    """What is computed from the recorded events."""

    paths: dict[Annotated[str, values.Name("a path", 64)], Path] = Field(
        default={}, description="Paths by name."
    )
    patterns: dict[Annotated[str, values.Name("a pattern", 64)], Pattern] = Field(
        default={},
        description="Message patterns by name. Every target in a table is an expectation, and so "
        "is that no message with a target is lost.",
    )
    values_: dict[Annotated[str, values.Name("a value", 64)], study.Value] = Field(
        default={}, alias="values", description="Numbers made of single entities, by name."
    )
    subtract_cost: Annotated[bool, values.Boolean()] = Field(
        default=False,
        description="Whether the time that recording itself takes is subtracted from every "
        "interval: one event's cost, as measured on its host, for each event of the path from the "
        "interval's first to the one before its last. Widens the half-widths.",
    )


class ExperimentFile(Section):
    """An experiment: hosts, programs, network, load and deadlines.

    $name and ${name} stand for a parameter in every value but name, description, hosts and
    params; $$ is a dollar sign.
    """

    name: Annotated[str, values.Name("an experiment", 64)] = Field(
        description="Name; also of the folder of its runs."
    )
    description: Text = Field(default="", description="What it is for, in a sentence.")
    testbed: Literal["local"] = Field(
        default="local",
        description="Where the hosts come from: local makes each a network namespace.",
    )
    hosts: list[Annotated[str, values.Name("a host", 20)]] = Field(
        min_length=1, description="Names of the hosts. The first is the reference of time."
    )
    clocks: Annotated[
        Annotated[Literal["plain", "synthetic"], Tag("<word>")]
        | Annotated[SyntheticClocks, Tag("<mapping>")],
        Discriminator(
            _word_or_mapping,
            custom_error_type="wrong",
            custom_error_message="clocks should be plain, synthetic or {synthetic: {seed: N}}",
        ),
    ] = Field(
        default="plain",
        description="plain: the hosts' clocks as they are. synthetic: each host's hidden behind "
        "one with an offset, rate and wander of its own.",
    )
    clock: ClockExchange = Field(
        default=ClockExchange(), description="How the hosts' clocks are compared."
    )
    network: Network = Field(
        default_factory=lambda: Network.model_validate({}), description="The data links."
    )
    params: dict[
        Annotated[str, values.Identifier("a parameter")],
        Annotated[Scalar, values.Single("a parameter")],
    ] = Field(
        default={},
        description="Values to use as $name elsewhere; `run -p name=value` replaces them.",
    )
    components: dict[Annotated[str, values.Name("a component", 40)], Component] = Field(
        min_length=1, description="Programs by role."
    )
    phases: list[Phase] = Field(
        min_length=1,
        description="Stages of the run. Every component ends a phase before the next begins.",
    )
    drain: Annotated[int, Quantity(DURATION, "0s", "1h")] | None = Field(
        default=None,
        description="How long the components go on after the last phase, so that messages on their "
        "way still arrive, such as 1s. Default: as long as the emulated links can hold a message "
        "of any path (delay, jitter and queue, by their slowest settings), and 200ms more.",
    )
    trace: Trace = Field(default=Trace(), description="What is recorded.")
    measure: Measure = Field(
        default=Measure(), description="What is computed from the recorded events."
    )
    expect: list[Annotated[NumberLine | MessageLine, statement_values.Expectation()]] = Field(
        default=[],
        description="Deadlines. Of each message: PATH OP TIME or PATH[EVENT -> EVENT] OP TIME, "
        "such as loop < 10ms; PATH.age OP TIME; PATH[EVENT before EVENT]; PATH in order; PATH "
        "complete; PATH symmetric within TIME; COMPONENT/GROUP:NAME every TIME within TIME. These "
        "may be followed by 'for SHARE%' and, each after a comma, 'no N misses in a row' and 'at "
        "most M misses in any N'. Of one number: PATH.STAT OP VALUE or PATH[EVENT -> EVENT].STAT "
        "OP VALUE, such as loop.p99 < 5ms, COMPONENT/GROUP:NAME.rate OP FREQUENCY, .jitter OP "
        "TIME, or NAME OP VALUE of a value, such as sent_rate >= 90Mbit. All but a value's may be "
        "about a time: 'after TIME' or 'between TIME and TIME', before 'for'. STAT is count "
        "(messages seen at every event), lost (messages seen at the first event and missing at a "
        "later one), duplicates, or of the time from the first event to the last: min, mean, p50, "
        "p90, p99, p999 (also p99.9), max, deviation (standard deviation). Of the messages at the "
        "last event rate (a second, such as 90Hz) and jitter (the longest time between two less "
        "the shortest). Of a path that is a graph also superseded (messages instead of which a "
        "newer one was used); there the times are to the first use, and age is that of the data "
        "at each use, where an event joins. OP is < <= > >= == !=. "
        "HOST.realtime.offset, or hosts.realtime.offset for every host, is how far the host's "
        "CLOCK_REALTIME was from the first host's at most.",
    )
    repeat: Annotated[int, Integer(1, 100_000)] = Field(
        default=1, description="How often the experiment, or each point of its sweep, is run."
    )
    sweep: Annotated[object, Sweep()] | None = Field(
        default=None,
        description="Values that parameters take, one run each: a mapping of parameters to lists "
        "is a grid, run in all combinations, the last parameter's values fastest. A list of "
        "mappings of parameters to values or lists of them puts points and grids together; a point "
        "that comes twice is run once. Each point is judged by itself.",
    )
    table: (
        Annotated[tuple[statement_values.StatisticName, ...], statement_values.Statistics()] | None
    ) = Field(
        default=None,
        description="The statistics that the table of a sweep's points shows, written as in "
        "figures. Default: each path's p50, p99 and lost, and each value.",
    )
    figures: dict[Annotated[str, values.Name("a figure", 64)], study.Figure] = Field(
        default={}, description="Figures by name; files of that name are made of each."
    )
    analyse: dict[Annotated[str, values.Name("a pipeline", 64)], steps.Pipeline] = Field(
        default={},
        description="Pipelines by name: tables and figures made of the run's, or of all points' of "
        "a sweep, after the others.",
    )
