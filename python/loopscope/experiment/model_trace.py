"""Recording: the keys of ``trace``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from . import event_values, kernel_events, model_paths, values
from .file_section import Section, word_or_list
from .model_kernel_filters import KernelFilters
from .model_messages import MessageLength, ProgramMessages
from .model_wakeups import Wakeups
from .place import Place
from .problem import nearest
from .quantity import DURATION, SIZE
from .values import Integer, Quantity
from .yaml_tree import Mapping


class Filter(Section):
    """A filter: the hits of some entities that a stream takes. The others are counted."""

    entities: Annotated[str, event_values.Pattern()] = Field(
        description="Pattern on group:name: the entities that this is about."
    )
    where: Annotated[str, event_values.Predicate()] | None = Field(
        default=None,
        description="Condition on id, fields and, of an interval, duration, with C's operators, "
        "such as id % 100 == 0 && size > 1000 or duration > 1ms. All that apply must hold.",
    )
    every: Annotated[int, Integer(1, 2**63 - 1)] | None = Field(
        default=None,
        description="One hit in so many of each call site, its threads together; the last "
        "that applies.",
    )
    rate: Annotated[int, Integer(1, 2**63 - 1)] | None = Field(
        default=None, description="At most so many hits in each second; the last that applies."
    )


class EntityTrigger(Section):
    """A hit that a flight recorder is written for."""

    entities: Annotated[str, event_values.Pattern()] = Field(
        description="Pattern on group:name: the entities of which a hit triggers."
    )
    where: Annotated[str, event_values.Predicate()] | None = Field(
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
    """A stream of records besides the main one, with entities, buffers and output of its own."""

    kind: Literal["normal", "flight-recorder"] = Field(
        default="normal",
        description="normal: all is written; what finds the buffer full is dropped and counted. "
        "flight-recorder: the newest is kept in memory and written after a trigger.",
    )
    entities: list[Annotated[str, event_values.Pattern(excluding=True)]] = Field(
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

    kernel: Annotated[int, Quantity(DURATION, "1ms", "1min")] | None = Field(
        default=None,
        description="Has the flight recorder keep the kernel's events (trace.kernel) too: at least "
        "those of so long before its trigger, such as 1s, which are written with it; the others "
        "are counted. Without a trigger, on_death writes those of the run's end. Default: all of "
        "them are written, whatever is triggered.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        kernel = at.get("kernel")
        if kernel is not None and at.whole.get("hosts") is None:
            kernel.report("the kernel's events are recorded in experiments alone", at_key=True)
        if at.get("kind") is None or at.text_at("kind") == "normal":
            for key in ("triggers", "post", "on_death", "kernel"):
                if given := at.get(key):
                    given.report(f"only a flight recorder has {key}: give it kind: flight-recorder")
        for item in at.elements("filters"):
            if isinstance(item.tree, Mapping) and not item.keys & {"where", "every", "rate"}:
                item.report("this filter lets everything through: give it where, every or rate")
        for item in at.elements("triggers"):
            path = item.get("path")
            wrong = None if path is None else model_paths.not_watched(at.root, path.text)
            if path is not None and wrong is not None:
                path.report(wrong)


class Trace(Section):
    """Selection of events that are recorded, and their streams."""

    user: list[Annotated[str, event_values.Pattern(excluding=True)]] = Field(
        default=["*"],
        description="Patterns on group:name of the events to record in programs, with * and ?; ! "
        "before one leaves out what it matches. The last that matches decides.",
    )
    streams: dict[Annotated[str, event_values.StreamName()], Stream] = Field(
        default={},
        max_length=event_values.MOST_STREAMS,
        description="Streams besides the main one, by name; each is written to a trace of its own.",
    )
    kernel: Annotated[
        Annotated[Literal["auto", "full", "off"], Tag("<word>")]
        | Annotated[
            list[Annotated[str, event_values.Pattern(excluding=True)]],
            Tag("<list>"),
        ],
        word_or_list("kernel should be auto, full, off or a list of patterns such as [sched:*]"),
    ] = Field(
        default="auto",
        description="The kernel's events to record: patterns on class:name, as in trace.user. "
        f"Classes: {', '.join(kernel_events.CLASSES)}; the names are those of the kernel's "
        "tracepoints. full: all of them. auto: few enough to cost little "
        f"({', '.join(kernel_events.AUTO)}), on a local testbed without synthetic clocks, where "
        "the machine allows it; where it does not, and over SSH, counts of threads. Recorded "
        "through tracefs for the whole machine, and sleep, call, tcp, udp and drop "
        "by programs in the kernel for the run's hosts, which takes root.",
    )

    alternate: Annotated[int, Quantity(DURATION, "50ms", "1min")] | None = Field(
        default=None,
        description="Measures what recording the kernel adds: while a phase is measured, its "
        "events are recorded in every other time of about this length alone, such as 500ms, and "
        "the results say how much longer messages took with that than without. Default: they are "
        "recorded all the time.",
    )
    kernel_histograms: bool = Field(
        default=False,
        description="Has the kernel keep histograms, with no record of an event: for how long each "
        "thread of the run's hosts waited for a processor, and for how long each processor served "
        "soft interrupts. Programs in the kernel do, which takes root; with kernel: off too.",
    )
    kernel_filters: KernelFilters | None = Field(
        default=None,
        description="What is recorded alone of the kernel's classes tcp, udp, drop and call.",
    )
    messages: dict[Annotated[str, event_values.ToldName()], ProgramMessages] = Field(
        default={},
        max_length=64,
        examples=[{"frame": {"protocol": "udp", "to": 5004}}],
        description="Messages of programs that record nothing themselves, by name. Each component "
        "has events NAME:sent and NAME:received of those that it sent and read, which paths take "
        "as they take others, with the key id. They are told from events of class udp or tcp, "
        "which takes root.",
    )

    wakeups: dict[Annotated[str, event_values.ToldName()], Wakeups] = Field(
        default={},
        max_length=64,
        examples=[{"tick": {"by": "timer"}}],
        description="Timers and interrupts that wake threads of programs that record nothing "
        "themselves, by name. Each component has the event NAME:fired of those that woke its "
        "threads, with the key id. A path may begin with it. They are told from events of the "
        "scheduler and of interrupts, which takes root.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        known = kernel_events.named()
        patterns = at.elements("kernel")
        for item in patterns:
            pattern = (item.text or "").removeprefix("!")
            if not event_values.is_pattern(pattern):
                continue
            if not any(event_values.chosen(event, [pattern]) for event in known):
                whole = [f"{name}:*" for name in kernel_events.CLASSES]
                item.report(
                    f"there is no kernel event {pattern!r}", nearest(pattern, [*known, *whole])
                )
        file = at.whole
        hidden = file.text_at("clocks") == "synthetic" or file.get("clocks", "synthetic")
        asked = at.get("kernel")
        _check_numbers(at)
        for key in event_values.TOLD:
            if (told := at.get(key)) is None:
                continue
            if at.text_at("kernel") == "off":
                told.report(
                    "they are told from the kernel's events: remove 'kernel: off'", at_key=True
                )
            if hidden:
                told.report(
                    "they are told from the kernel's events, which are stamped by the machine's "
                    "own clock, and hosts with synthetic clocks do not have it: remove the clocks",
                    at_key=True,
                )
        _check_parts(at, told=any(at.get(key) is not None for key in event_values.TOLD))
        both = {name for name, _ in at.entries("messages")}
        for name, each in at.entries("wakeups"):
            if name in both:
                each.report(f"messages are called {name!r} too: their events need another group")
        if hidden and (patterns or at.text_at("kernel") == "full") and asked is not None:
            (patterns or [asked])[0].report(
                "kernel events are stamped by the machine's own clock, which hosts with synthetic "
                "clocks do not have: remove 'kernel' or the clocks"
            )


def _check_parts(at: Place, told: bool) -> None:
    """Reports what asks for parts of the kernel's events, but cannot have them."""
    alternate = at.get("alternate")
    if alternate is not None:
        phases = at.whole.elements("phases")
        others = [each.get("kernel") for _, each in at.entries("streams")]
        others += [phase.get("kernel") for phase in phases]
        why = None
        if told:
            why = "messages and wakeups are told from all of the kernel's events"
        elif any(each is not None for each in others):
            why = "a flight recorder or a phase has the kernel's events of some times"
        elif at.text_at("kernel") == "off":
            why = "nothing is recorded of the kernel"
        if why is not None:
            alternate.report(f"{why}: remove this, or that", at_key=True)
    given = [each.get("kernel") for _, each in at.entries("streams")]
    kept = [each for each in given if each is not None]
    for place in kept[1:]:
        place.report("another flight recorder has the kernel's events: one can", at_key=True)
    if kept and told:
        kept[0].report(
            "messages and wakeups are told from all of the kernel's events: remove this, or them",
            at_key=True,
        )
    if kept and at.text_at("kernel") == "off":
        kept[0].report("nothing is recorded of the kernel: remove 'kernel: off'", at_key=True)
    hidden = at.whole.text_at("clocks") == "synthetic" or at.whole.get("clocks", "synthetic")
    if kept and hidden and at.get("kernel") is None:
        kept[0].report(
            "kernel events are stamped by the machine's own clock, which hosts with synthetic "
            "clocks do not have: remove this or the clocks",
            at_key=True,
        )


def _check_numbers(at: Place) -> None:
    """Reports messages of one port whose numbers are at different places."""
    places: dict[tuple[object, ...], object] = {}
    for _, each in at.entries("messages"):
        number = each.get("number")
        if number is not None and number.text == "order" and each.get("length") is None:
            continue
        keys = [("number", "offset"), *(("length", key) for key in MessageLength.model_fields)]
        values = [each.get(*key) for key in keys]
        given = [None if value is None else value.scalar for value in values]
        ports = (way for way in ("to", "from") if each.get(way) is not None)
        for way in ports:
            port = each.get(way)
            assert port is not None
            key = each.text_at("protocol"), way, port.scalar
            if places.setdefault(key, given) != given:
                (number or each).report(
                    f"other messages {way} port {port.scalar} have their number or length at "
                    "another place: of a port there can be one"
                )
