"""The causes of parts of a hop, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopscope.analysis.cause_words import Named, Words, cause_words
from loopscope.analysis.critical_path import RECEIVED, serves_interrupts
from loopscope.analysis.network_path import SENT
from loopscope.analysis.scheduling import IDLE

if TYPE_CHECKING:
    from loopscope.analysis.critical_path import Part
    from loopscope.analysis.hop_decomposition import Passage
    from loopscope.analysis.page_faults import PageFaults
    from loopscope.analysis.processor_states import ProcessorStates
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.analysis.sleeps import Sleeps
    from loopscope.analysis.threads import Threads

UNKNOWN = "unknown"
"""The name of parts whose cause the events do not tell."""
_OFTEN_NS = 20_000
"""Page faults that come so often, or more often, are said to be a part's cause."""
_STOLEN_NS = 1_000_000
"""What a hypervisor takes is counted in ticks of 10 ms: of shorter parts nothing is said."""
_LOCKS = "in futex"
_OF_ONE = re.compile(r"/u?\d+(:\w+)?$")
"""What tells a thread of the kernel from those like it: `ksoftirqd/1`, `kworker/0:2`."""


@dataclass(frozen=True)
class Causes:
    """What causes are named by."""

    scheduling: Scheduling
    threads: Threads
    sleeps: Sleeps
    faults: PageFaults
    states: ProcessorStates
    passage: Passage | None
    protocol: str
    """That which carried it, empty where its packets are not known."""
    sender: str
    receiver: str
    """The hosts of the hop's ends."""

    def of(self, part: Part) -> Words:
        of, on = self._named(part.tid, part.end), _on(part.cpu)
        match part.name:
            case "runnable":
                return cause_words(of, " waited", on, " behind ", self._named(part.by, part.end))
            case "wake-up":
                idle = Named(f"idle cpu{part.cpu}", "an idle processor", f"cpu{part.cpu}")
                untold = f"; {part.what}" if part.what else ""
                return cause_words(of, " waited for ", idle, f" to wake up{untold}")
            case "throttled":
                waited = " had to wait: its cgroup had used up its processor time"
                return cause_words(of, waited)
            case "blocked":
                assert part.tid is not None
                in_what = self.sleeps.on(self.scheduling, part.tid, part.end)
                has_waker = part.by not in (None, IDLE)
                woken = (", woken by ", *self._named(part.by, part.end)) if has_waker else ()
                slept = f" slept{_after_blank(in_what)}", self._held_by(part)
                did = self._meanwhile(part, ", which", ", whose")
                return cause_words(of, *slept, _after_blank(part.what), woken, did)
            case "pending":
                on = _on(part.cpu, " on its processor")
                by = self._named(part.by, part.end)
                return cause_words(part.what, on, " waited while ", by, " was on it")
            case "interrupt" | "softirq" if part.by is not None:
                cpu = Named(f"cpu{part.cpu}", "its processor", f"cpu{part.cpu}")
                within = self._serving(part.by, part.end)
                return cause_words(of, " waited while ", cpu, f" served {part.what}", within)
            case "interrupt" | "softirq":
                return cause_words(part.what, on, ", in ", of)
            case "network":
                in_thread = () if part.tid is None else (", in ", *of)
                return cause_words(f"{self.sender} → {self.receiver}", in_thread)
            case "held" | "wire" | "link":
                return cause_words(self._of_network(part))
            case "ring" | "late" | "send":
                return self._of_emulator(part)
            case name if name == UNKNOWN:
                told = cause_words(of, on, ": ") if of else ()
                return cause_words(told, part.what)
            case _:
                faults = self.page_faults(part) or 0
                often = 0 < part.end - part.start <= faults * _OFTEN_NS
                call = f", {part.what}" if part.what else ""
                return cause_words(of, on, f"{call}, with page faults" if often else call)

    def stolen(self, part: Part) -> int:
        """The most of a part that a hypervisor may have taken, ns, of long ones that ran."""
        ran = part.name == "running" and part.end - part.start >= _STOLEN_NS
        if part.cpu is None or not ran:
            return 0
        return self.scheduling.stolen(part.cpu, part.start, part.end)

    def slowed_to(self, part: Part) -> int | None:
        """The lowest frequency of the processor of a part that ran, kHz, see `ProcessorStates`."""
        if part.cpu is None or part.name != "running":
            return None
        if self.scheduling.lost("idle", part.start, part.end):
            return None
        return self.states.slowed_to(part.cpu, part.start, part.end)

    def idle_state(self, part: Part) -> int | None:
        """The idle state out of which a processor had to come for a part."""
        if part.cpu is None or part.name != "wake-up":
            return None
        if self.scheduling.lost("idle", part.start, part.end):
            return None
        return self.states.idle_state(part.cpu, part.start)

    def is_lock(self, part: Part) -> bool:
        """Whether a part is a sleep, for what another thread held or was to make ready."""
        if part.name != "blocked" or part.tid is None or part.by in (None, IDLE):
            return False
        return self.sleeps.on(self.scheduling, part.tid, part.end).startswith(_LOCKS)

    def _held_by(self, part: Part) -> Words:
        """` held by t2`, of a sleep in a lock whose words say it."""
        if part.tid is None or not self.is_lock(part):
            return ()
        holder = self.sleeps.holder(self.scheduling, part.tid, part.end)
        if holder is None or not self.threads.are_of_one(part.tid, holder, part.end):
            return ()
        return cause_words(" held by ", self._named(holder, part.end))

    def page_faults(self, part: Part) -> int | None:
        """How many page faults a thread had that was running; None where that is not known."""
        if part.name != "running" or part.tid is None or not self.faults.recorded:
            return None
        if self.scheduling.lost("fault", part.start, part.end):
            return None
        return self.faults.count(part.tid, part.start, part.end)

    def _serving(self, tid: int, at: int) -> Words:
        """The thread in which an interrupt was served, if it does nothing else."""
        serves = serves_interrupts(self.scheduling.name(tid))
        return cause_words(", in ", self._named(tid, at)) if serves else ()

    def _meanwhile(self, part: Part, thread: str, processor: str) -> Words:
        """What another thread did, or its processor, in the time of a part; empty: not known.

        ``thread`` and ``processor`` are what is before that, without a blank at the end.
        """
        other = part.meanwhile
        if other is None or other.name == UNKNOWN:
            return ()
        if other.name in ("interrupt", "softirq") and other.by is None:
            cpu = Named(f" cpu{other.cpu}", " processor", f"cpu{other.cpu}")
            return cause_words(processor, cpu, f" served {other.what}")
        _, *did = self.of(other)
        return cause_words(f"{thread} ran" if other.name == "running" else thread, *did)

    def _of_network(self, part: Part) -> str:
        if part.name == "wire":
            return f"{self.sender} → {self.receiver}, between their devices"
        if part.what not in ("", SENT, RECEIVED):
            text = f"by {self.protocol} of {self.sender}: {part.what}"
            is_again = part.what.startswith("sent again") and "dropped" not in part.what
            if is_again and self.passage is not None and self.passage.losses:
                text += f"; the emulated link {' → '.join(self.passage.link)} lost it"
            return text
        assert self.passage is not None
        link = " → ".join(self.passage.link)
        if part.name == "link":
            return self.passage.described(part.name)
        if part.what != SENT:
            return f"by the network's code of {self.receiver}, until a later packet came"
        if self.passage.losses:
            return f"by the network's code of {self.sender}: sent again, the link {link} lost it"
        return f"by the network's code of {self.sender}"

    def _of_emulator(self, part: Part) -> Words:
        assert self.passage is not None
        link, of = " → ".join(self.passage.link), self._named(part.tid, part.end)
        if not of:
            return (self.passage.described(part.name),)
        verb = {"ring": "left it in its ring", "late": "was late", "send": "sent it on"}[part.name]
        did = self._meanwhile(part, ": it", ": its")
        return cause_words(of, f", which emulates {link}, {verb}", did)

    def ring_ns(self, part: Part) -> int | None:
        """For how long the packet of a link's part lay in the ring, ns; None: it is not known."""
        return self.passage.ring_ns if part.name == "link" and self.passage else None

    def _named(self, tid: int | None, at: int) -> Words:
        if tid is None:
            return ()
        name = self.scheduling.name(tid)
        general = self.threads.component(tid, at) or _OF_ONE.sub("", name)
        return (Named(self.threads.named(tid, name, at=at), general, name),)


def _on(cpu: int | None, general: str = "") -> Named:
    """` on cpu0`, which is empty where the processor is not known."""
    return Named("" if cpu is None else f" on cpu{cpu}", general, f"cpu{cpu}")


def _after_blank(text: str) -> str:
    return f" {text}" if text else ""
