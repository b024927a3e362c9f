"""Programs and when they count as ready: the keys of a component."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from . import event_values, values
from .file_section import Section, word_or_mapping
from .place import Place
from .quantity import SIZE
from .values import Integer, Quantity

Scalar = str | int | float | bool


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

    @classmethod
    def check(cls, at: Place) -> None:
        given = at.get("ready")
        if given is not None:
            rule = given.text or next(iter(given.keys), None)
        else:
            program = next((word.text for word in at.elements("run")), None)
            rule = default_ready(program, at.get("with") is not None) if program else None
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


def default_ready(program: str, configured: bool) -> str:
    """The readiness rule of a component that gives none."""
    speaks = configured or program.rsplit("/", 1)[-1] == "loopscope-host"
    return "phases" if speaks else "started"
