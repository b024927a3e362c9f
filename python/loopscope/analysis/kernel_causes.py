"""The causes of parts that the kernels of a run tell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import computed_field

from loopscope.analysis.calls import Calls
from loopscope.analysis.cause_words import Words, text_of
from loopscope.analysis.causes import Causes
from loopscope.analysis.critical_path import during_sleep
from loopscope.analysis.document import INTERNAL, OPTIONAL, Document
from loopscope.analysis.page_faults import PageFaults
from loopscope.analysis.processor_states import ProcessorStates
from loopscope.analysis.quantity_text import duration, number
from loopscope.analysis.recorded_kernels import RecordedKernels
from loopscope.analysis.scheduling import After
from loopscope.analysis.sleeps import Sleeps
from loopscope.analysis.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loopscope.analysis.critical_path import Part
    from loopscope.analysis.hop_decomposition import Passage
    from loopscope.timeline import Run

_Read = TypeVar("_Read")
Caused = tuple["Part", Causes]
"""A part, and what its cause is named by."""


@dataclass(frozen=True)
class WhyPart(Document):
    """A part of a hop; the parts of a hop follow each other and add up to it."""

    name: str
    ns: int
    words: Annotated[Words, INTERNAL]
    after: Annotated[After | None, OPTIONAL] = None
    """Whether the thread of a part `runnable` had been preempted, or was woken. None: the events do
    not tell."""
    page_faults: Annotated[int | None, OPTIONAL] = None
    """How many the thread had while it was running. None: it was not, or they are not known."""
    stolen_ns: Annotated[int | None, OPTIONAL] = None
    """The most that a hypervisor may have taken while it was running, ns. None: nothing."""
    slowed_to_khz: Annotated[int | None, OPTIONAL] = None
    """The lowest frequency of its processor while it was running. None: the highest of the run, or
    it is not known."""
    idle_state: Annotated[int | None, OPTIONAL] = None
    """The state out of which the processor that it waited for had to come, None: not known."""
    ring_ns: Annotated[int | None, OPTIONAL] = None
    """Time in ns for which the packet of the part `link` lay in the ring of what emulates the link,
    also where the planned delay covers it. None: it is not known."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cause(self) -> str:
        """In words."""
        return text_of(self.words)

    def told(self) -> str:
        """The cause, with the number of page faults, what may have been stolen, and the like."""
        more = " (preempted)" if self.after == "preempted" else ""
        more += f" (page faults: {number(self.page_faults)})" if self.page_faults else ""
        if self.stolen_ns:
            more += f" (the hypervisor had up to {duration(self.stolen_ns)} of it)"
        if self.slowed_to_khz is not None:
            more += f" (at {self.slowed_to_khz / 1e6:.2f} GHz)"
        if self.idle_state is not None:
            more += f" (from idle state {self.idle_state})"
        return f"{self.cause}{more}"


class Kernels(RecordedKernels):
    """The kernels of a run, and all that is recorded of them, each read once."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._found: dict[tuple[object, int, str], Any] = {}

    def caused(
        self,
        repeat: int,
        host: str,
        parts: Sequence[Part],
        link: tuple[str, str],
        passage: Passage | None = None,
        protocol: str = "",
    ) -> list[Caused]:
        """The parts that threads of a host's kernel had of a hop between two hosts.

        Sleeps for a lock are cut by what its holder did, the others by system calls.
        """
        kernel = self.of(repeat, host)
        if kernel is None:
            return []
        threads, sleeps = (
            self._once(Threads, repeat, host),
            self._once(Sleeps, repeat, host),
        )
        faults = self._once(PageFaults, repeat, host)
        states = self._once(ProcessorStates, repeat, host)
        causes = Causes(kernel, threads, sleeps, faults, states, passage, protocol, *link)
        calls = self._once(Calls, repeat, host)
        return [
            (cut, causes)
            for part in parts
            for each in (during_sleep(kernel, part) if causes.is_lock(part) else [part])
            for cut in calls.cut(kernel, each)
        ]

    def syscall(self, repeat: int, host: str, tid: int, at: int) -> str | None:
        """The system call that a thread of a host was in; None where it is not known."""
        kernel = self.of(repeat, host)
        if kernel is None or kernel.lost("call", at, at):
            return None
        return self._once(Calls, repeat, host).named(tid, at)

    def _once(self, kind: Callable[[Run, int, str], _Read], repeat: int, host: str) -> _Read:
        """What a host's kernel has of a kind, which is read once."""
        key = kind, repeat, self.name_of(repeat, host)
        if key not in self._found:
            self._found[key] = kind(self._run, *key[1:])
        found: _Read = self._found[key]
        return found


def fitted(parts: Sequence[Caused], begin: int, end: int) -> tuple[WhyPart, ...]:
    """The parts as far as they are within the hop, which the clocks' error may make shorter.

    Where it makes it longer the first one has the rest. Neighbours of the same cause are one.
    """
    found: list[WhyPart] = []
    for place, (part, causes) in enumerate(parts):
        start = begin if place == 0 else max(part.start, begin)
        ns = min(part.end, end) - start
        if ns <= 0:
            continue
        told = part
        if part.start < begin or part.end > end:
            told = replace(part, start=max(part.start, begin), end=min(part.end, end))
        words, faults = causes.of(told), causes.page_faults(told)
        stolen, slowed_to = causes.stolen(told), causes.slowed_to(told)
        idle_state = causes.idle_state(told)
        key = part.name, words, part.after
        if found and (found[-1].name, found[-1].words, found[-1].after) == key:
            before = found.pop()
            ns += before.ns
            stolen += before.stolen_ns or 0
            known = faults is not None and before.page_faults is not None
            faults = (faults or 0) + (before.page_faults or 0) if known else None
            slowest = [each for each in (slowed_to, before.slowed_to_khz) if each is not None]
            slowed_to = min(slowest, default=None)
            idle_state = before.idle_state if idle_state is None else idle_state
        more = faults, stolen or None, slowed_to, idle_state, causes.ring_ns(told)
        found.append(WhyPart(part.name, ns, words, part.after, *more))
    return tuple(found)
