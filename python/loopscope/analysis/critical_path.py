"""Splits the time between two events of a message into parts, each with its cause.

The way goes backward from the later event: what its thread did before it, until that was woken;
then what the waking thread did; and so on until the earlier event. Whatever else happened meanwhile
did not keep the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loopscope.analysis.interrupts import CLASSES
from loopscope.analysis.scheduling import IDLE, LOST, UNTOLD

if TYPE_CHECKING:
    from loopscope.analysis.interrupts import Happening
    from loopscope.analysis.scheduling import After, Scheduling, Stretch

PARTS = {
    "running": "the thread had a processor",
    "runnable": "another thread had the processor",
    "wake-up": "the processor was idle",
    "throttled": "the thread's cgroup had used up its processor time",
    "blocked": "the thread slept",
    "interrupt": "the processor served an interrupt",
    "softirq": "the processor served a soft interrupt",
    "pending": "a soft interrupt was asked for, and not served yet",
    "held": "the network's code had it while no thread worked on it",
    "network": "the network's code carried it from the sender's to the receiver's socket",
    "wire": "it was between the devices of two hosts",
    "link": "an emulated link had it",
    "ring": "what emulates the link had not taken it out of its ring when it was due",
    "late": "what emulates the link had it for longer than it was to",
    "send": "what emulates the link sent it on",
    "unknown": "the events do not tell",
}
"""Names of parts, and what they say."""


@dataclass(frozen=True)
class Part:
    """A part of a hop. ``start`` and ``end`` are ns on the kernel's time line."""

    name: str
    """One of `PARTS`."""
    start: int
    end: int
    tid: int | None
    """The thread that the message was with; None: it is not known."""
    cpu: int | None
    by: int | None = None
    """The thread that was on the processor instead, interrupted or not, or that ended the sleep."""
    what: str = ""
    """The interrupt, that which is pending, the system call, or why it is not known."""
    after: After | None = None
    """What a thread that was runnable waited after."""
    meanwhile: Part | None = None
    """What another thread did then, where that is looked at: the one that ended this sleep, or the
    one that emulates the link."""


WITHOUT_STATE = "the scheduler's events do not tell what the thread did"
UNTOLD_INTERRUPT = "until an interrupt that is not told"
UNRECORDED = {
    "interrupt": "until an interrupt; `irq:*` was not recorded",
    "softirq": "until a soft interrupt; `softirq:*` was not recorded",
}
RECEIVED = "on the receiver's side"
# The names of threads.
_SERVE_INTERRUPTS = ("ksoftirqd/", "napi/", "irq/")


def mostly_unknown(parts: Sequence[Part]) -> bool:
    """Whether more of a hop is not known than may be."""
    unknown = sum(part.end - part.start for part in parts if part.name == "unknown")
    whole = sum(part.end - part.start for part in parts)
    return unknown > max(whole // 20, 2_000)


def prefixed(parts: Sequence[Part], text: str) -> list[Part]:
    """The parts; the first one with a text before its cause, where it is of no known thread."""
    first, *others = parts
    if first.name == "unknown" and first.tid is None:
        return [replace(first, what=f"{text}; {first.what}"), *others]
    return [*parts]


def split(
    scheduling: Scheduling,
    sender: int | None,
    begin: int,
    receiver: int,
    end: int,
    *,
    handed_on: bool = False,
) -> list[Part]:
    """The parts from ``begin``, in thread ``sender``, to ``end``, in thread ``receiver``.

    They follow each other without a gap. ``sender`` is None where it is a thread of another kernel.
    ``handed_on``: at ``begin`` it had given the message to the network's code.
    """
    parts: list[Part] = []  # backward
    tid, at = receiver, end
    while at > begin:
        state = scheduling.before(tid, at)
        if state is None:
            what = LOST if scheduling.lost("sched", begin, at) else WITHOUT_STATE
            parts.append(Part("unknown", begin, at, tid, None, what=what))
            break
        if handed_on and tid == sender != receiver and state.start > begin:
            # What it did since then was about other messages.
            parts.append(Part("held", begin, at, None, None, what=RECEIVED))
            break
        if scheduling.lost("sched", state.start, max(at, state.told_at)):
            parts.append(Part("unknown", begin, at, tid, None, what=LOST))
            break
        since = max(state.start, begin)
        if tid == sender and state.state == "unknown" and state.start < begin:
            # It was on a processor at its own event, and has not left that since.
            state = state._replace(state="running", waking=None)
        parts += reversed([*_of_stretch(scheduling, tid, state, since, at)])
        at = since
        if at <= begin or state.waking is None:
            continue
        waking = scheduling.waking(state.waking)
        if state.state == "running" and sender == receiver:
            # It was woken before it slept.
            continue
        if sender == receiver:
            # Nothing but its own sleep was between the thread's two events.
            slept = scheduling.slept_since(tid, at)
            since = begin if slept is None else max(slept, begin)
            what = "until an interrupt" if waking.within else ""
            by = None if waking.within else waking.by
            if (ended := _interrupt_of(scheduling, waking, since)) is not None:
                parts.append(ended)
                at = ended.start
            if since < at:
                parts.append(Part("blocked", since, at, tid, None, by, what))
            at = since
            continue
        before, came_from = _to_thread(scheduling, waking, sender, begin)
        parts += reversed(before)
        at = before[0].start if before else at
        if came_from is None:
            break
        tid = came_from
    parts.reverse()
    return parts


def during_sleep(scheduling: Scheduling, sleep: Part) -> list[Part]:
    """A sleep that a thread ended, in parts by what that thread did meanwhile."""
    assert sleep.by is not None
    did = split(scheduling, sleep.by, sleep.start, sleep.by, sleep.end)
    return [replace(sleep, start=each.start, end=each.end, meanwhile=each) for each in did]


def _to_thread(
    scheduling: Scheduling, waking: Happening, sender: int | None, begin: int
) -> tuple[list[Part], int | None]:
    """The parts of the interrupts that led to a waking, and the thread that they came from.

    That is None where the parts go back to ``begin``.
    """
    parts: list[Part] = []
    happening, at = waking, waking.at
    while not _is_of_thread(scheduling, happening, sender):
        assert happening.within is not None
        kind, cpu = happening.within, happening.cpu
        served = scheduling.interrupts.at(kind, cpu, at)
        if served is None:
            told = scheduling.interrupts.recorded(kind)
            what = UNTOLD_INTERRUPT if told else UNRECORDED[kind]
            return [Part("unknown", begin, at, None, cpu, what=what), *parts], None
        start = max(served.start, begin)
        if scheduling.lost(CLASSES[kind], served.start, at):
            return [Part("unknown", begin, at, None, cpu, what=LOST), *parts], None
        if start < at:
            parts.insert(0, Part(kind, start, at, happening.by, cpu, what=served.name))
        asked = scheduling.interrupts.raised(cpu, served) if kind == "softirq" else None
        if start == begin:
            return parts, None
        if asked is None:
            what = f"before {served.name}"
            return [Part("unknown", begin, start, None, cpu, what=what), *parts], None
        raised, since = asked
        at = max(raised.at, begin)
        if scheduling.lost("softirq", since, start) or scheduling.lost("sched", raised.at, start):
            return [Part("unknown", begin, start, None, cpu, what=LOST), *parts], None
        parts[:0] = _on(scheduling, cpu, at, start, lambda _: "pending", None, served.name)
        if at == begin:
            return parts, None
        happening = raised
    return parts, happening.by


def _interrupt_of(scheduling: Scheduling, waking: Happening, since: int) -> Part | None:
    """The part of the interrupt in which a waking was, from an instant on; None: it is not told."""
    kind = waking.within
    served = scheduling.interrupts.at(kind, waking.cpu, waking.at) if kind else None
    if kind is None or served is None or scheduling.lost(CLASSES[kind], served.start, waking.at):
        return None
    start = max(served.start, since)
    if start >= waking.at:
        return None
    return Part(kind, start, waking.at, waking.by, waking.cpu, what=served.name)


def _is_of_thread(scheduling: Scheduling, happening: Happening, sender: int | None) -> bool:
    """Whether what its thread did before tells how something came to happen.

    The sender runs the network's code itself, also where that is a soft interrupt, and some threads
    do nothing but serve interrupts.
    """
    serves = serves_interrupts(scheduling.name(happening.by))
    return happening.within is None or happening.by == sender or serves


def serves_interrupts(name: str) -> bool:
    """Whether a thread of this name does nothing but serve interrupts."""
    return name.startswith(_SERVE_INTERRUPTS)


def _on(
    scheduling: Scheduling,
    cpu: int,
    start: int,
    end: int,
    name: Callable[[int], str],
    tid: int | None,
    what: str = "",
) -> Iterator[Part]:
    """A time in which a processor did other things: a part, of a name, for each thread on it."""
    at = start
    for other, since, until in scheduling.on(cpu, start, end):
        if since > at:
            yield Part("unknown", at, since, tid, cpu, what=WITHOUT_STATE)
        yield Part(name(other), since, until, tid, cpu, other, what)
        at = until
    if at < end:
        yield Part("unknown", at, end, tid, cpu, what=WITHOUT_STATE)


def _of_stretch(
    scheduling: Scheduling, tid: int, state: Stretch, start: int, end: int
) -> Iterator[Part]:
    if state.state == "running" and state.cpu is None:
        yield Part("running", start, end, tid, None)
    elif state.state == "running":
        yield from _interrupted(scheduling, Part("running", start, end, tid, state.cpu))
    elif state.state == "runnable":
        assert state.cpu is not None

        def name(other: int) -> str:
            return "wake-up" if other == IDLE else "runnable"

        for part in _on(scheduling, state.cpu, start, end, name, tid):
            if part.name == "unknown":
                yield part
            else:
                after = state.after if part.name == "runnable" else None
                yield from _interrupted(scheduling, replace(part, after=after))
    elif state.state in ("blocked", "throttled"):
        yield Part(state.state, start, end, tid, None)
    elif state.cpu is not None and scheduling.is_idle(state.cpu, start, tid):
        waits = Part("wake-up", start, end, tid, state.cpu, IDLE, UNTOLD)
        yield from _interrupted(scheduling, waits)
    else:
        yield Part("unknown", start, end, tid, state.cpu, what=state.why)


def _interrupted(scheduling: Scheduling, whole: Part) -> Iterator[Part]:
    """A time on a processor, or waiting for one, without the interrupts in it, and these."""
    tid, cpu = whole.tid, whole.cpu
    assert cpu is not None
    if any(scheduling.lost(each, whole.start, whole.end) for each in CLASSES.values()):
        yield Part("unknown", whole.start, whole.end, tid, cpu, what=LOST)
        return

    def cut(
        kind: str, rest: Callable[[int, int], Iterator[Part]], since: int, until: int
    ) -> Iterator[Part]:
        at = since
        for name, begun, ended in scheduling.interrupts.between(kind, cpu, since, until):
            yield from rest(at, begun)
            yield Part(kind, begun, ended, tid, cpu, whole.by, name)
            at = ended
        yield from rest(at, until)

    def others(since: int, until: int) -> Iterator[Part]:
        if until > since:
            yield replace(whole, start=since, end=until)

    def soft(since: int, until: int) -> Iterator[Part]:
        yield from cut("softirq", others, since, until)

    yield from cut("interrupt", soft, whole.start, whole.end)
