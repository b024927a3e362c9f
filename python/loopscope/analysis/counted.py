"""For how long threads ran and waited for a processor, by the kernel's counts of each thread.

They are looked at every few ms where the scheduler's events are not recorded
(`crates/kernel/src/samples.rs`), so an interval has bounds only. All times are global ns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.kernels import rows_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.counted_tcp import Connections, Kept
    from loopscope.analysis.hop_decomposition import Passage
    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

TABLE = "kernel.schedstat"
# The kernel counts how long a thread runs no later than at its next tick, of which it has 100 in a
# second at least.
_TICK_NS = 10_000_000


@dataclass(frozen=True)
class Growth:
    """By how much a thread's counts grew in an interval, ns: at least and at most."""

    ran: tuple[int, int]
    waited: tuple[int, int]


@dataclass(frozen=True)
class _Thread:
    root: int
    """The first process of its program."""
    name: str
    begun: Integers
    ended: Integers
    """When each look began and ended."""
    ran: Integers
    waited: Integers


class Counts:
    """The counts of the threads of a host's components in one repeat."""

    def __init__(self, run: Run, repeat: int, host: str) -> None:
        """Raises `RunError` where the table cannot be read."""
        columns = "ts, tid, took_ns, root, run_ns, wait_ns, comm::VARCHAR AS comm"
        rows = rows_of(run, TABLE, repeat, host, columns)
        tids = rows["tid"].to_numpy()
        names = ("ts", "took_ns", "run_ns", "wait_ns")
        ts, took, ran, waited = (rows[name].to_numpy().astype(np.int64) for name in names)
        self._components = {
            each.pid: f"{each.component} of {host}"
            for each in run.exits
            if (each.repeat, each.host) == (repeat, host) and each.pid is not None
        }
        self._threads: dict[int, _Thread] = {}
        for tid in np.unique(tids).tolist():
            of = np.flatnonzero(tids == tid)
            root, name = rows["root"][int(of[0])].as_py(), rows["comm"][int(of[-1])].as_py()
            begun = ts[of]
            self._threads[tid] = _Thread(
                root, str(name), begun, begun + took[of], ran[of], waited[of]
            )

    def root(self, tid: int) -> int | None:
        """The first process of a thread's program; None if the thread was not looked at."""
        thread = self._threads.get(tid)
        return None if thread is None else thread.root

    def growth(self, tid: int, begin: int, end: int) -> Growth | None:
        """By how much a thread's counts grew; None if it was not looked at before and after."""
        thread = self._threads.get(tid)
        if thread is None:
            return None
        # The last look that was over at the begin, the first one that had not begun then.
        before = int(thread.ended.searchsorted(begin, side="right")) - 1
        after = int(thread.begun.searchsorted(begin))
        last = int(thread.ended.searchsorted(end, side="right")) - 1
        following = int(thread.begun.searchsorted(end))
        if before < 0 or after >= len(thread.begun):
            return None
        length = end - begin

        def bounds(values: Integers, late: int) -> tuple[int, int]:
            least, most = int(values[last]), int(values[before]) + length
            if following < len(values):
                # What came after the interval is no longer than the time until the look.
                since = int(thread.ended[following]) - end
                least = max(least, int(values[following]) - since)
                most = int(values[following])
            least -= int(values[after]) + late
            most += late - int(values[before])
            return max(min(least, length), 0), max(min(most, length), 0)

        return Growth(bounds(thread.ran, _TICK_NS), bounds(thread.waited, 0))

    def busiest(self, but: int, begin: int, end: int) -> tuple[int, str] | None:
        """For how long about the program ran that ran longest in an interval, ns, and its name.

        Thread `but` is left out. None where no other thread was looked at.
        """
        ran: Counter[int] = Counter()
        for tid, thread in self._threads.items():
            if tid != but:
                at_begin, at_end = np.interp([begin, end], thread.begun, thread.ran)
                ran[thread.root] += round(at_end - at_begin)
        if not ran:
            return None
        ((root, ns),) = ran.most_common(1)
        own = but in self._threads and self._threads[but].root == root
        return ns, f"another thread of {self.named(root)}" if own else self.named(root)

    def named(self, tid: int) -> str:
        """A thread for people: its component, with the kernel's name where it is not its first."""
        thread = self._threads.get(tid)
        if thread is None:
            return self._components.get(tid, f"thread {tid}")
        component = self._components.get(thread.root)
        if component is None or tid == thread.root:
            return component or thread.name
        return f"{component} ({thread.name})"


@dataclass(frozen=True)
class End:
    """A thread at an end of a hop, and what is known of its host's threads."""

    counts: Counts
    connections: Connections
    host: str
    tid: int


Said = tuple[str, int, str]
"""Name, ns and cause of a part."""
_UNTOLD = "the scheduler's counts do not tell; its events do"


def held(
    sender: End | None,
    receiver: End,
    begin: int,
    end: int,
    came: int | None = None,
    passage: Passage | None = None,
    left: tuple[int, int] | None = None,
    unknown_link: str = "",
) -> list[Said]:
    """What the counts say of a hop: parts that add up to it.

    What one of the two threads surely did is a part, the rest is unknown. The counts do not tell in
    which order the parts were. But they lie between the instants that are known: when the message
    ``left`` its host (at the first of two instants at the earliest, at the second at the latest),
    those of its ``passage`` of an emulated link, and when it ``came`` to its socket.
    ``unknown_link``: why its passage of one is not known.
    """
    of = sender.host if sender else "its host"
    stops = []
    if left is not None:
        # Its stamp may be too late, by as much as its program was kept while it recorded the event.
        # What came to the link had left before.
        first, last = left if passage is None else (min(each, passage.came) for each in left)
        stops.append((first, "unknown", f"until it left {of}"))
        stops.append((last, "unknown", "until it had left for its other receivers"))
    if passage is not None:
        link = " → ".join(passage.link)
        stops.append((passage.came, "wire", f"until it came to the link {link}"))
        of_link = [("link", passage.due), ("ring", passage.in_hand), ("late", passage.left)]
        if came is not None:
            # Else the receiver may have had it before the call returned.
            of_link.append(("send", min(passage.returned, came)))
        stops += [(until, name, passage.described(name)) for name, until in of_link]
        of = f"the link {link}"
    if came is not None:
        text = f"until it came to {receiver.host}"
        name, before = ("unknown", f"{unknown_link}; ") if unknown_link else ("wire", "")
        stops.append((came, name, f"{before}{text}"))
    if not stops:
        return _of_both(sender, receiver, begin, end)
    parts: list[Said] = []
    at = begin
    for number, (until, name, cause) in enumerate(stops):
        until = min(max(until, at), end)
        if number == 0:
            parts += _until(sender, receiver, (at, until), end, cause)
        elif until > at:
            parts.append((name, until - at, cause))
        at = until
    untold = f"since it {f'left {of}' if came is None else f'came to {receiver.host}'}"
    return [*parts, *_since(receiver, at, end, untold, came is not None)]


def _of_both(sender: End | None, receiver: End, begin: int, end: int) -> list[Said]:
    """The parts of a hop of which no instant between its ends is known."""
    length = end - begin
    growth = receiver.counts.growth(receiver.tid, begin, end)
    if growth is None:
        return [("unknown", length, "the scheduler's counts of its thread are not there")]
    parts = _of_receiver(receiver, growth, begin, end)
    busy = growth.ran[1] + growth.waited[1]
    if sender is not None and (sender.tid, sender.counts) == (receiver.tid, receiver.counts):
        slept = f"{receiver.counts.named(receiver.tid)} slept"
        parts.append(("blocked", max(length - busy, 0), slept))
    elif sender is not None:
        # The sender may have waited while the receiver was busy: that is not counted twice.
        kept = _kept(sender, receiver, begin, end)
        parts = [*_of_sender(sender, kept, begin, end, busy), *parts]
    return _filled(parts, length, _UNTOLD)


def _until(
    sender: End | None, receiver: End, within: tuple[int, int], end: int, untold: str
) -> list[Said]:
    """The parts of the first interval of a hop that goes on until ``end``, before its receiver."""
    begin, at = within
    parts: list[Said] = []
    if sender is not None:
        # TCP may have kept what came later for as long as the rest of the hop.
        kept = _kept(sender, receiver, begin, end)
        before = None if kept is None else kept._replace(ns=max(kept.ns - (end - at), 0))
        parts = _of_sender(sender, before, begin, at, 0)
    return _filled(parts, at - begin, untold)


def _since(receiver: End, at: int, end: int, untold: str, is_there: bool) -> list[Said]:
    """The parts from an instant until a message was read.

    ``is_there``: it was in the receiver's socket, which slept nevertheless where it did.
    """
    name = receiver.counts.named(receiver.tid)
    growth = receiver.counts.growth(receiver.tid, at, end)
    parts: list[Said] = []
    if growth is not None:
        parts = _of_receiver(receiver, growth, at, end)
        if is_there:
            slept = end - at - growth.ran[1] - growth.waited[1]
            parts.append(("blocked", max(slept, 0), f"{name} slept while it was in its socket"))
    return _filled(parts, end - at, f"{untold}, until {name} had read it")


def _of_receiver(receiver: End, growth: Growth, begin: int, end: int) -> list[Said]:
    """What the receiver surely did."""
    name = receiver.counts.named(receiver.tid)
    ran = growth.ran[0]
    waited = min(growth.waited[0], end - begin - ran)
    cause = f"{name} waited for a processor{_while(receiver, begin, end, waited)}"
    return [("runnable", waited, cause), ("running", ran, name)]


def _of_sender(sender: End, kept: Kept | None, begin: int, end: int, busy: int) -> list[Said]:
    """What the sender and its TCP surely did besides what took ``busy`` at most."""
    before = sender.counts.growth(sender.tid, begin, end)
    own = max((before.waited[0] if before else 0) - busy, 0)
    of = sender.counts.named(sender.tid)
    parts = [("runnable", own, f"{of} waited for a processor{_while(sender, begin, end, own)}")]
    if kept is not None:
        # What TCP did meanwhile is not counted twice either.
        ns = max(kept.ns - busy - own, 0)
        parts.append(("held", ns, f"by TCP of {sender.host}: {kept.why}"))
    return parts


def _filled(parts: list[Said], length: int, untold: str) -> list[Said]:
    """The parts that there are, and what is unknown of some ns beyond them."""
    rest = length - sum(ns for _, ns, _ in parts)
    return [part for part in (*parts, ("unknown", rest, untold)) if part[1] > 0]


def _kept(sender: End, receiver: End, begin: int, end: int) -> Kept | None:
    roots = sender.counts.root(sender.tid), receiver.counts.root(receiver.tid)
    if roots[0] is None or roots[1] is None:
        return None
    return sender.connections.kept(roots[0], receiver.connections, roots[1], begin, end)


def _while(of: End, begin: int, end: int, waited: int) -> str:
    """Names the program that ran meanwhile, for half of the wait at least."""
    other = of.counts.busiest(of.tid, begin, end) if waited > 0 else None
    return f", while {other[1]} ran" if other is not None and 2 * other[0] >= waited else ""
