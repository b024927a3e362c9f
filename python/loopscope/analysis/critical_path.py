"""Splits the time between two events of a message into parts, each with its cause.

The way goes backward from the later event: what its thread did before it, until that was woken;
then what the waking thread did; and so on until the earlier event. Whatever else happened meanwhile
did not keep the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopscope.analysis.scheduling import IDLE

if TYPE_CHECKING:
    from loopscope.analysis.scheduling import Scheduling, Stretch


@dataclass(frozen=True)
class Part:
    """A part of a hop. ``start`` and ``end`` are ns on the kernel's time line."""

    name: str
    """``running``, ``runnable`` (something else had the processor), ``wake-up`` (the processor was
    idle), ``blocked``, ``interrupt``, ``softirq``, ``unknown``."""
    start: int
    end: int
    tid: int | None
    """The thread that the message was with; None: it is not known."""
    cpu: int | None
    by: int | None = None
    """The thread that was on the processor instead, or that ended the sleep."""
    what: str = ""
    """The interrupt, or why it is not known."""


WITHOUT_STATE = "the scheduler's events do not tell what the thread did"
UNTOLD = "when it came onto it is not told"
BY_INTERRUPT = "until an interrupt woke the receiver"


def split(scheduling: Scheduling, sender: int, begin: int, receiver: int, end: int) -> list[Part]:
    """The parts from ``begin``, in thread ``sender``, to ``end``, in thread ``receiver``.

    They follow each other without a gap.
    """
    parts: list[Part] = []
    tid, at = receiver, end
    while at > begin:
        state = scheduling.before(tid, at)
        if state is None:
            parts.append(Part("unknown", begin, at, tid, None, what=WITHOUT_STATE))
            break
        since = max(state.start, begin)
        if tid == sender and state.state == "unknown" and state.start < begin:
            # It was on a processor at its own event, and has not left that since.
            state = state._replace(state="running", waking=None)
        # Backward, like all.
        parts += reversed([*_of_stretch(scheduling, tid, state, since, at)])
        at = since
        if at <= begin or state.waking is None:
            continue
        waking = scheduling.waking(state.waking)
        if sender == receiver:
            # Nothing but its own sleep was between the thread's two events.
            slept = scheduling.slept_since(tid, at)
            since = begin if slept is None else max(slept, begin)
            what = "until an interrupt" if waking.in_interrupt else ""
            by = None if waking.in_interrupt else waking.by
            parts.append(Part("blocked", since, at, tid, None, by, what))
            at = since
        elif waking.by == sender or not waking.in_interrupt:
            # The sender runs the network's code itself, also where that is a soft interrupt.
            tid = waking.by
        else:
            parts.append(Part("unknown", begin, at, None, None, what=BY_INTERRUPT))
            break
    parts.reverse()
    return parts


def _of_stretch(
    scheduling: Scheduling, tid: int, state: Stretch, start: int, end: int
) -> Iterator[Part]:
    if state.state == "running" and state.cpu is None:
        yield Part("running", start, end, tid, None)
    elif state.state == "running":
        assert state.cpu is not None
        yield from _interrupted(scheduling, tid, state.cpu, start, end)
    elif state.state == "runnable":
        assert state.cpu is not None
        at = start
        for other, since, until in scheduling.on(state.cpu, start, end):
            if since > at:
                yield Part("unknown", at, since, tid, state.cpu, what=WITHOUT_STATE)
            name = "wake-up" if other == IDLE else "runnable"
            yield Part(name, since, until, tid, state.cpu, other)
            at = until
        if at < end:
            yield Part("unknown", at, end, tid, state.cpu, what=WITHOUT_STATE)
    elif state.state == "blocked":
        yield Part("blocked", start, end, tid, None)
    elif state.cpu is not None and scheduling.is_idle(state.cpu, start, tid):
        yield Part("wake-up", start, end, tid, state.cpu, IDLE, UNTOLD)
    else:
        yield Part("unknown", start, end, tid, state.cpu, what=UNTOLD)


def _interrupted(
    scheduling: Scheduling, tid: int, cpu: int, start: int, end: int
) -> Iterator[Part]:
    """A time on a processor, without the interrupts in it, and these."""

    def cut(
        kind: str, rest: Callable[[int, int], Iterator[Part]], since: int, until: int
    ) -> Iterator[Part]:
        at = since
        for name, begun, ended in scheduling.interrupted(kind, cpu, since, until):
            yield from rest(at, begun)
            yield Part(kind, begun, ended, tid, cpu, what=name)
            at = ended
        yield from rest(at, until)

    def running(since: int, until: int) -> Iterator[Part]:
        if until > since:
            yield Part("running", since, until, tid, cpu)

    def soft(since: int, until: int) -> Iterator[Part]:
        yield from cut("softirq", running, since, until)

    yield from cut("interrupt", soft, start, end)
