"""The causes of parts of a hop, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    def of(self, part: Part) -> str:
        of, on = self._named(part.tid), "" if part.cpu is None else f" on cpu{part.cpu}"
        match part.name:
            case "runnable":
                return f"{of} waited{on} behind {self._named(part.by)}"
            case "wake-up":
                untold = f"; {part.what}" if part.what else ""
                return f"{of} waited for idle cpu{part.cpu} to wake up{untold}"
            case "throttled":
                return f"{of} had to wait: its cgroup had used up its processor time"
            case "blocked":
                assert part.tid is not None
                on = self.sleeps.on(self.scheduling, part.tid, part.end)
                woken = f", woken by {self._named(part.by)}" if part.by not in (None, IDLE) else ""
                texts = (f" {text}" for text in (on, self._held_by(part), part.what) if text)
                return f"{of} slept{''.join(texts)}{woken}{self._of_waker(part)}"
            case "pending":
                return f"{part.what}{on} waited while {self._named(part.by)} was on it"
            case "interrupt" | "softirq" if part.by is not None:
                return f"{of} waited while cpu{part.cpu} served {part.what}{self._serving(part.by)}"
            case "interrupt" | "softirq":
                return f"{part.what}{on}, in {of}"
            case "held" | "network" | "wire" | "link":
                return self._of_network(part)
            case "ring" | "late" | "send":
                return self._of_emulator(part)
            case name if name == UNKNOWN:
                return f"{of}{on}: {part.what}" if of else part.what
            case _:
                faults = self.page_faults(part) or 0
                often = 0 < part.end - part.start <= faults * _OFTEN_NS
                call = f", {part.what}" if part.what else ""
                return f"{of}{on}{call}, with page faults" if often else f"{of}{on}{call}"

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

    def _held_by(self, part: Part) -> str:
        """`held by t2`, of a sleep in a lock whose words say it."""
        if part.tid is None or not self.is_lock(part):
            return ""
        holder = self.sleeps.holder(self.scheduling, part.tid, part.end)
        if holder is None or not self.threads.are_of_one(part.tid, holder):
            return ""
        return f"held by {self._named(holder)}"

    def page_faults(self, part: Part) -> int | None:
        """How many page faults a thread had that was running; None where that is not known."""
        if part.name != "running" or part.tid is None or not self.faults.recorded:
            return None
        if self.scheduling.lost("fault", part.start, part.end):
            return None
        return self.faults.count(part.tid, part.start, part.end)

    def _of_waker(self, part: Part) -> str:
        """What the thread that ended a sleep did meanwhile, as a clause."""
        did = self._meanwhile(part)
        return f", whose {did}" if did.startswith("cpu") else f", which {did}" if did else ""

    def _serving(self, tid: int) -> str:
        """The thread in which an interrupt was served, if it does nothing else."""
        serves = serves_interrupts(self.scheduling.name(tid))
        return f", in {self._named(tid)}" if serves else ""

    def _meanwhile(self, part: Part) -> str:
        """What another thread did, or its processor, in the time of a part; empty: not known."""
        other = part.meanwhile
        if other is None or other.name == UNKNOWN:
            return ""
        if other.name in ("interrupt", "softirq") and other.by is None:
            return f"cpu{other.cpu} served {other.what}"
        did = self.of(other).removeprefix(self._named(other.tid))
        return f"ran{did}" if other.name == "running" else did.lstrip()

    def _of_network(self, part: Part) -> str:
        if part.name == "network":
            within = "" if part.tid is None else f", in {self._named(part.tid)}"
            return f"{self.sender} → {self.receiver}{within}"
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

    def _of_emulator(self, part: Part) -> str:
        assert self.passage is not None
        link, of = " → ".join(self.passage.link), self._named(part.tid)
        if not of:
            return self.passage.described(part.name)
        verb = {"ring": "left it in its ring", "late": "was late", "send": "sent it on"}[part.name]
        did = self._meanwhile(part)
        why = f": {'its' if did.startswith('cpu') else 'it'} {did}" if did else ""
        return f"{of}, which emulates {link}, {verb}{why}"

    def ring_ns(self, part: Part) -> int | None:
        """For how long the packet of a link's part lay in the ring, ns; None: it is not known."""
        return self.passage.ring_ns if part.name == "link" and self.passage else None

    def _named(self, tid: int | None) -> str:
        return "" if tid is None else self.threads.named(tid, self.scheduling.name(tid))
