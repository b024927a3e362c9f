"""Phases of the experiment file: their keys, and the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from . import kernel_events, order, quantity, values
from .file_section import Section
from .place import Place
from .problem import nearest
from .quantity import DURATION
from .values import Quantity
from .yaml_tree import Scalar, Tree, child, elements, text_of


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
    after: list[Annotated[str, values.Text()]] | None = Field(
        default=None,
        description="Phases that come before this one. Default: the one before it in the list.",
    )
    common_start: Annotated[int, Quantity(DURATION, "1ms", "10s")] | None = Field(
        default=None,
        description="Has all components that take part begin the phase at the same instant of the "
        "global clock, so long after it is chosen, such as 50ms: they have to be told until then. "
        "How far apart they began is in the manifest. Default: each begins when it is told.",
    )
    warmup: Annotated[int, Quantity(DURATION, "1ms")] | None = Field(
        default=None,
        description="How long the warm-up is, for the first measured phase: the default of `trim` "
        "of every path, such as 2s.",
    )

    kernel: list[Annotated[str, kernel_events.KernelClass()]] | None = Field(
        default=None,
        description="Classes of the kernel's events that are recorded in this phase, such as "
        "[sched, irq], of those that trace.kernel records at all; []: none. Default: all of them.",
    )


def phases(root: Tree) -> list[tuple[Tree, str | None]]:
    """The phases in the order of the file, each with its name, None where that is not readable."""
    return [(phase, text_of(child(phase, "name"))) for phase in elements(child(root, "phases"))]


def phase_order(root: Tree) -> list[str]:
    """The phases' names in the order in which they run."""
    return order.in_order(_after(root))


def longest_ns(root: Tree) -> int | None:
    """The longest time that the run takes from the beginning of its first measured phase."""
    by_name = {name: phase for phase, name in phases(root)}
    in_order = [by_name[name] for name in phase_order(root)]
    given = [child(phase, "measured") for phase in in_order]
    measured = [isinstance(each, Scalar) and each.value is True for each in given]
    try:
        timeouts = [
            quantity.parse_whole(text_of(child(phase, "timeout")), DURATION)
            for phase in in_order[measured.index(True) if True in measured else 0 :]
        ]
    except quantity.QuantityError:
        return None
    return sum(timeouts) or None


def check_phases(at: Place) -> None:
    """Phases have names of their own, and each comes after phases that there are."""
    places = at.elements("phases")
    at.report_repeated("phase", [(each.text, each) for p in places if (each := p.get("name"))])
    for place in places:
        _check_common_start(place)
        _check_kernel(at, place)
    _check_warmup(at, places)
    known = at.names.phases
    if known is None:
        return
    for place in places:
        for item in place.elements("after"):
            if item.text and item.text not in known:
                message = f"there is no phase {item.text!r} to come after"
                item.report(message, nearest(item.text, known))
    after = _after(at.root)
    circle = order.cycle(after)
    if circle is None:
        return
    message = f"the phases wait for each other: {' after '.join([*circle, circle[0]])}"
    never = [name for name in after if name not in [*order.in_order(after), *circle]]
    if never:
        message += f"; so {', '.join(never)} can never begin"
    place = next(each for each in places if each.text_at("name") == circle[0])
    (place.get("after") or place).report(message)


def _check_kernel(at: Place, phase: Place) -> None:
    """A phase records classes that are recorded at all, and those that messages are told from."""
    given = phase.get("kernel")
    if given is None:
        return
    told = [
        pattern
        for key, by, patterns in (
            ("messages", "protocol", kernel_events.OF_MESSAGES),
            ("wakeups", "by", kernel_events.OF_WAKEUPS),
        )
        for _, entry in at.entries("trace", key)
        for pattern in patterns.get(entry.text_at(by) or "", ())
    ]
    words: dict[str | None, tuple[str, ...]] = {"full": ("*",), "off": ()}
    asked = [each.text or "" for each in at.elements("trace", "kernel")]
    asked += words.get(at.text_at("trace", "kernel"), () if asked else kernel_events.AUTO)
    recorded = kernel_events.selected((*asked, *told))
    chosen = phase.elements("kernel")
    for item in chosen:
        if item.text in kernel_events.CLASSES and item.text not in recorded:
            item.report(f"trace.kernel records nothing of it: add {item.text}:* there")
    if missing := kernel_events.selected(told).keys() - {each.text for each in chosen}:
        classes = " and ".join(sorted(missing))
        message = f"trace.messages and trace.wakeups are told from {classes}: add that"
        given.report(message, at_key=True)


def _check_common_start(phase: Place) -> None:
    """The common start is within the phase's timeout."""
    begin = phase.get("common_start")
    try:
        begin_ns = quantity.parse_whole(phase.text_at("common_start"), DURATION)
        timeout_ns = quantity.parse_whole(phase.text_at("timeout"), DURATION)
    except quantity.QuantityError:
        return
    if begin is not None and begin_ns >= timeout_ns:
        begin.report("the phase is over before it begins: `timeout` has to be longer than this")


def _check_warmup(at: Place, places: Sequence[Place]) -> None:
    """Only the first measured phase has a warm-up."""
    by_name = {place.text_at("name"): place for place in places}
    in_order = [by_name[name] for name in phase_order(at.root) if name in by_name]
    measured = [place for place in in_order if (m := place.get("measured")) and m.is_true]
    first = next(iter(measured or in_order), None)
    for place in places:
        warmup = place.get("warmup")
        if warmup is not None and place is not first:
            warmup.report("a warm-up belongs to the first phase that is measured")


def _after(root: Tree) -> dict[str, list[str]]:
    """Phases that each phase waits for; unreadable ones are left out."""
    after: dict[str, list[str]] = {}
    previous: str | None = None
    for phase, name in phases(root):
        if name is not None and name not in after:
            given = child(phase, "after")
            if given is None:
                after[name] = [previous] if previous else []
            else:
                after[name] = [wanted for wanted in map(text_of, elements(given)) if wanted]
        previous = name
    return after
