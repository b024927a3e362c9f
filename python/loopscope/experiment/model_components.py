"""Programs and when they count as ready: the keys of a component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from loopscope import port_ranges

from . import event_values, values
from .component_order import EVERY, START_UP, After, Part
from .file_section import Section, word_or_mapping
from .place import Place
from .quantity import DURATION, SIZE
from .values import Integer, JsonSchema, Names, Quantity, Rule, or_reference, text, wrong

Scalar = str | int | float | bool


CONFIGURE = "configure"
"""Stands for a component's configuration among the phases of its commands."""


@dataclass(frozen=True)
class PhaseOrConfigure(Rule):
    """Name of a phase, or `configure`."""

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if name != CONFIGURE:
            names.refer("phase", name)
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string"}

    @property
    def example(self) -> str:
        return "run"


class LineReady(Section):
    """Ready when it has written a line."""

    line: Annotated[str, values.Text()] = Field(description="Text within a line of stdout.")


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
    """Recording of another tool that a component runs on its host."""

    path: Annotated[str, event_values.LeftBehind()] = Field(
        description="A directory of CTF traces (LTTng's, ros2 trace's), or a pcap or pcapng file, "
        "in the component's working directory."
    )
    clock: Annotated[str, event_values.HostClock()] | None = Field(
        default=None,
        description="The clock of its stamps: realtime, monotonic, ptp0, ptp1, … Default: the one "
        "that a CTF trace names, realtime for packets.",
    )


@dataclass(frozen=True)
class Ports(Rule):
    """A port or several, as in 80,8000-8010."""

    def read(self, value: object, names: Names) -> str:
        written = value if isinstance(value, str) else str(Integer(1, 65535).read(value, names))
        try:
            return port_ranges.read(written)
        except ValueError as error:
            wrong(str(error))

    def schema(self) -> JsonSchema:
        return or_reference(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": 65535},
                    {"type": "string", "pattern": r"^[0-9 ,-]+$"},
                ]
            }
        )

    @property
    def example(self) -> str:
        return "80,8000-8010"


RTO_MIN = Quantity(DURATION, "100us", "120s")
"""The least retransmission time-out, as crates/preload/src/timeout.rs reads it, too."""


class Acceleration(Section):
    """TCP connections that are transferred in the component's own processes."""

    only: Annotated[str, Ports()] | None = Field(
        default=None, description="Only those with one of these ports at either end. Default: all."
    )
    receive: Literal["adaptive", "spin", "block"] = Field(
        default="adaptive",
        description="How threads wait: they look until something is there (`spin`), sleep at once "
        "(`block`), or look for some 50 µs where that has helped before (`adaptive`).",
    )
    rto_min: Annotated[int, RTO_MIN] | None = Field(
        default=None,
        description="The least time after which what was not acknowledged is sent again "
        "(RFC 6298); 1ms is above the round trips of a local network. Default: the kernel's, which "
        "is 200ms where nobody has changed `net.ipv4.tcp_rto_min_us`.",
    )


class Component(Section):
    """A program in a role."""

    host: Annotated[str, values.Reference("host")] = Field(description="Host that it runs on.")
    run: Annotated[list[str], values.Command()] | None = Field(
        default=None,
        description="Command, which has to be given unless `commands` is: a line that is split "
        "into words as a shell splits them, or a list of words. No shell runs it. Words are split "
        "before parameters are put in. Words that begin with ./ or ../ are paths from this file's "
        "folder; it runs in a folder of its own, what it leaves there is kept.",
    )
    commands: dict[
        Annotated[str, PhaseOrConfigure()],
        Annotated[list[str], values.Command("a command")],
    ] = Field(
        default={},
        examples=[{"connect": "./warm-up", "run": "./load 100"}],
        description="Instead of `run`, for programs that know nothing of phases: a command for "
        "each phase that the component takes part in, written like `run`. A phase is done when its "
        "command has ended with exit status 0; another one fails the run. `configure` is run when "
        "the component starts. All of them run in the component's one folder, with the phase's "
        "name in LOOPSCOPE_PHASE.",
    )
    with_: dict[str, Any] = Field(
        default={},
        alias="with",
        examples=[{"period": "1ms"}],
        description="Configuration for a program of the phase protocol, as it wants it; quantities "
        "keep their spelling. {file: NAME} stands for a text file in this one's folder: the "
        "program gets its name and its text.",
    )
    env: dict[
        Annotated[str, values.Identifier("an environment variable", reserved="LOOPSCOPE_")],
        Annotated[Scalar, values.Single("an environment variable")],
    ] = Field(
        default={},
        examples=[{"HOME": "/tmp"}],
        description="Environment variables to set, besides those of `environment`.",
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
        "HOME, USER, LOGNAME and SHELL. Default: who runs loopscope.",
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
    after: Annotated[dict[str, list[str]], After()] = Field(
        default={},
        description="Components and groups that come before it within a phase. It starts and "
        "enters the phase when they have done their part: are ready where they start in it, and "
        "are done with it where they take part. A list holds before the first phase and in every "
        "phase in which both have a part; {PHASE: [COMPONENT]} only in that one.",
    )
    background: Annotated[bool, values.Boolean()] = Field(
        default=False,
        description="Whether the run needs it to the end: it fails when the component ends by "
        "itself, also with exit status 0.",
    )
    allow_failure: Annotated[bool, values.Boolean()] = Field(
        default=False,
        description="Whether the run goes on without it when it fails. The manifest has how it "
        "failed.",
    )
    fetch: list[Annotated[str, event_values.LeftBehind()]] = Field(
        default=[],
        examples=[["map", "*.csv"]],
        description="Files and folders that it leaves in its working directory, or patterns with "
        "`*`. The manifest has their sizes and SHA-256 hashes as `fetched`, and a pattern that "
        "matches nothing is noted. Other files of the working directory are kept too.",
    )
    traces: list[
        Annotated[
            Annotated[Annotated[str, event_values.LeftBehind()], Tag("<word>")]
            | Annotated[ForeignTrace, Tag("<mapping>")],
            word_or_mapping("a trace should be a path or {path: PATH, clock: CLOCK}"),
        ]
    ] = Field(
        default=[],
        description="What it records of its host with another tool, such as lttng, ros2 trace or "
        "tcpdump: paths in its working directory, or {path: PATH, clock: CLOCK}. The events get "
        "tables on the run's time line.",
    )

    accelerate: Annotated[
        Annotated[Annotated[bool, values.Boolean()], Tag("<word>")]
        | Annotated[Acceleration, Tag("<mapping>")],
        Discriminator(lambda value: "<mapping>" if isinstance(value, dict) else "<word>"),
    ] = Field(
        default=False,
        description="Whether the user-mode stack transfers its TCP connections to other hosts, in "
        "its own processes, or {only: PORTS, receive: spin} for some of them. Its programs need no "
        "change; its host needs root. The manifest has what became of each socket as "
        "`accelerated`, and tcp:* of `trace.kernel` has nothing of those connections.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        _check_commands(at)
        rule = _rule(at)
        if rule == "exit":
            background = at.get("background")
            if background is not None and background.is_true:
                background.report("one that is ready when it ends cannot be needed to the end")
        if rule in ("started", "line", "port", "exit"):
            if config := at.get("with"):
                config.report(
                    "with is handed over by the phase protocol, which ready: phases stands for"
                )
            if phases := at.get("phases"):
                phases.report(
                    "only a program of the phase protocol (ready: phases) takes part in phases"
                )
        traces = [item if item.text else item.get("path") for item in at.elements("traces")]
        at.report_repeated("trace", [(place.text, place) for place in traces if place])

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of the program that is started: its own, or those of the wrapper."""
        if self.run is not None:
            return tuple(self.run)
        words = ["loopscope-host", "commands"]
        for phase, (program, *rest) in self.commands.items():
            # As the agent looks up a component's program.
            relative = "/" in program and not program.startswith(("/", "./", "../"))
            words += [phase, str(len(rest) + 1), f"./{program}" if relative else program, *rest]
        return tuple(words)


def _check_commands(at: Place) -> None:
    """A component has a command, or one for each phase."""
    commands, run = at.get("commands"), at.get("run")
    if commands is None:
        # A key that does not exist may be meant for it.
        if run is None and at.keys <= set(Component.keys()):
            at.report("the key 'run' is missing (or commands, one for each phase)")
        return
    if run is not None:
        commands.report("commands are run instead of run: give one of them", at_key=True)
    if not commands.entries():
        commands.report("commands has no phase", at_key=True)
    for key in ("with", "phases", "ready"):
        if given := at.get(key):
            given.report(f"{key} is not for commands, which take part in their own phases")


def _rule(at: Place) -> str | None:
    """The readiness rule of a component of the file; None where it is not readable."""
    given = at.get("ready")
    if at.get("commands") is not None:
        return "phases"
    if given is not None:
        return given.text or next(iter(given.keys), None)
    program = next((word.text for word in at.elements("run")), None)
    return default_ready(program, at.get("with") is not None) if program else None


def part_of(at: Place) -> Part:
    """The part of a component of the file in the run, as far as it can be read."""
    phases: frozenset[str] | None = frozenset()
    if at.get("commands") is not None:
        phases = frozenset(name for name, _ in at.entries("commands") if name != CONFIGURE)
    elif at.get("phases") is not None:
        phases = frozenset(each.text for each in at.elements("phases") if each.text)
    elif _rule(at) in ("phases", None):
        phases = None
    place = at.get("after")
    after: dict[str, list[str]] = {}
    if place is not None:
        lists = {EVERY: place.elements(), **{key: at.elements("after", key) for key in place.keys}}
        after = {key: [each.text for each in found if each.text] for key, found in lists.items()}
    return Part(at.text_at("start") or START_UP, phases, after)


def default_ready(program: str, configured: bool) -> str:
    """The readiness rule of a component that gives none."""
    speaks = configured or program.rsplit("/", 1)[-1] == "loopscope-host"
    return "phases" if speaks else "started"
