"""Splits hops of which the way over the network is known into parts, each with its cause.

What threads did meanwhile is told by the scheduler's events, see `critical_path`. What the
network's code did is told by a ledger (`Carried`), and an emulated link by its own stamps.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from loopscope.analysis.critical_path import Part, mostly_unknown, split

if TYPE_CHECKING:
    from loopscope.analysis.hop_decomposition import Passage
    from loopscope.analysis.ledger import Carried
    from loopscope.analysis.scheduling import Scheduling

SENT = "on the sender's side"


def is_passage_of(carried: Carried, passage: Passage, sent: int, err: int) -> bool:
    """Whether an emulated link may have had the segment then that made a message whole.

    Of the kernel's segments that is known by the link's own events. ``sent``: when it went out, by
    the link's time line. ``err``: how far the two may be apart.
    """
    if carried.taker is None:
        return True
    return passage.came >= sent - err and passage.left <= carried.came + err


def over_link(
    scheduling: Scheduling,
    sender: int,
    begin: int,
    passage: Passage,
    receiver: int,
    end: int,
    carried: Carried | None = None,
) -> list[Part]:
    """The parts of a hop over an emulated link, see `split`.

    ``carried`` is what TCP did with it, where that is known. The clocks' error may put the message
    onto the link before it was sent, and the like: the parts are then cut to the hop.
    """
    came = min(max(passage.came, begin), end)
    left = min(max(passage.left, came), end)
    parts = []
    if came > begin:
        # It sleeps when it has given the message away, or to wait until it can.
        since = min(_slept_since_given(scheduling, sender, begin, carried) or came, came)
        if since > begin:
            parts += split(scheduling, sender, begin, sender, since)
        if came > since:
            whys = [(held.end, held.why) for held in carried.held] if carried else []
            for until, why in [*whys, (came, whys[-1][1] if whys else SENT)]:
                if min(until, came) > since:
                    parts.append(Part("held", since, min(until, came), None, None, what=why))
                    since = min(until, came)
    due = max(left - passage.late, came)
    in_hand = min(max(passage.in_hand, due), left)
    if due > came:
        parts.append(Part("link", came, due, None, None))
    parts += _of_emulator(scheduling, "ring", passage.tid, due, in_hand)
    parts += _of_emulator(scheduling, "late", passage.tid, in_hand, left)
    if end > left:
        if carried is not None and carried.taker is not None:
            on = _from_segment(scheduling, carried, left, receiver, end)
        else:
            on = split(scheduling, passage.tid, left, receiver, end, handed_on=True)
            if carried is not None and mostly_unknown(on):
                on = _from_socket(scheduling, None, left, carried.ready, receiver, end)
        # What came before that was another packet of the message.
        arrived = carried.came if carried is not None and carried.came >= left else None
        parts += _with_send(scheduling, passage, left, arrived, on)
    return parts


def _of_emulator(scheduling: Scheduling, name: str, tid: int, begin: int, end: int) -> list[Part]:
    """The parts of a name, each with what the thread that emulates the link did meanwhile."""
    whole = Part(name, begin, end, tid, None)
    did = split(scheduling, tid, begin, tid, end)
    return [replace(whole, start=each.start, end=each.end, meanwhile=each) for each in did]


def _with_send(
    scheduling: Scheduling, passage: Passage, left: int, came: int | None, on: list[Part]
) -> list[Part]:
    """What followed from ``left`` on, with what the emulating thread took to send it as ``send``.

    That ends when the packet ``came`` through the receiver's device, or when the thread's call had
    returned. Where ``came`` is not known, it ends in the thread's own time: before the soft
    interrupt in which that woke the receiver.
    """
    tid, first = passage.tid, on[0]
    if first.name == "held" and first.end <= passage.returned:
        # The receiver was woken in that very call, in which the thread was kept.
        on = [*split(scheduling, tid, left, tid, first.end), *on[1:]]
    own = [*takewhile(lambda part: part.tid == tid and part.name != "unknown", on)]
    if came is None:
        while own and own[-1].name == "softirq":
            own.pop()
    upto = own[-1].end if own else left
    if came is not None:
        if not own and first.name in ("held", "network", "unknown"):
            upto = first.end
        upto = min(upto, came)
    upto = min(upto, passage.returned)
    after = [replace(part, start=max(part.start, upto)) for part in on if part.end > upto]
    return [*_of_emulator(scheduling, "send", tid, left, upto), *after] if upto > left else on


def over_network(
    scheduling: Scheduling,
    sender: int,
    begin: int,
    carried: Carried,
    receiver: int,
    end: int,
    unknown_link: str = "",
) -> list[Part]:
    """The parts of a hop whose way through the network's code is known, see `split`.

    ``unknown_link`` says so where it went over an emulated link and its packet there is not known.
    """
    parts = _given(scheduling, sender, begin, carried, end)
    sent = parts[-1].end if parts else begin
    came, ready = (min(max(each, sent), end) for each in (carried.came, carried.ready))
    if unknown_link and came > sent:
        parts.append(Part("unknown", sent, came, None, None, what=unknown_link))
        sent = came
    if end > sent and carried.taker is not None:
        parts += _from_segment(scheduling, carried, sent, receiver, end)
    elif end > sent:
        parts += _from_socket(scheduling, carried.by, sent, ready, receiver, end)
    return parts


def _from_segment(
    scheduling: Scheduling, carried: Carried, begin: int, receiver: int, end: int
) -> list[Part]:
    """The parts from when the network has a message's segment, which a thread then takes."""
    came = min(max(carried.came, begin), end)
    return [
        *_until_taken(scheduling, carried, begin, came, "network"),
        *_since_taken(scheduling, carried, came, receiver, end),
    ]


def _until_taken(
    scheduling: Scheduling, carried: Carried, begin: int, came: int, name: str
) -> list[Part]:
    """The parts of a segment's way until its thread took it.

    That is on its way, by a ``name``, until the thread was woken for it. One that looked for it all
    the time was not: then it is on its way but for when the thread could not look.
    """
    taker = carried.taker
    if taker is None or came <= begin:
        return []
    did = split(scheduling, taker.tid, begin, taker.tid, came)
    slept = [place for place, part in enumerate(did) if part.name == "blocked"]
    if slept:
        woken = slept[-1] + 1
        return [Part(name, begin, did[slept[-1]].end, None, None), *did[woken:]]
    looks = ("running", "unknown")
    # It may have been woken for another segment before, and not have come back from that sleep.
    waited = [place for place, part in enumerate(did) if part.name not in looks]
    since = len(did)
    if waited and taker.woken is not None and taker.woken >= did[waited[-1]].end:
        since = waited[-1]
    return [
        Part(name, part.start, part.end, None, None)
        if part.name in looks and place < since
        else part
        for place, part in enumerate(did)
    ]


def _since_taken(
    scheduling: Scheduling, carried: Carried, came: int, receiver: int, end: int
) -> list[Part]:
    """The parts from when a thread of the receiver took a message's segment."""
    if end <= came:
        return []
    taker = None if carried.taker is None else carried.taker.tid
    on = split(scheduling, taker, came, receiver, end)
    return split(scheduling, receiver, came, receiver, end) if mostly_unknown(on) else on


def _from_socket(
    scheduling: Scheduling, by: int | None, begin: int, ready: int, receiver: int, end: int
) -> list[Part]:
    """The parts of a message that the network's code carries, in thread ``by``, until ``ready``.

    From then on it is in its socket, whose reader may be busy with other ones.
    """
    ready = min(max(ready, begin), end)
    parts = [Part("network", begin, ready, by, None)] if ready > begin else []
    return parts + (split(scheduling, receiver, ready, receiver, end) if end > ready else [])


def _slept_since_given(
    scheduling: Scheduling, sender: int, begin: int, carried: Carried | None
) -> int | None:
    """When a message's thread first slept after it began to give it away, if that is known."""
    given = begin if carried is None else max(begin, carried.given)
    return scheduling.sleeps_after(sender, given)


def _given(
    scheduling: Scheduling, sender: int, begin: int, carried: Carried, end: int
) -> list[Part]:
    """The parts until the message's last packet has gone out, not after ``end``."""
    sent = at = min(max(carried.sent, begin), end)
    if carried.held:
        # Its thread may sleep until the network's code has room for more.
        first = carried.held[0].start
        slept = _slept_since_given(scheduling, sender, begin, carried) or first
        at = min(max(min(first, slept), begin), sent)
    parts = split(scheduling, sender, begin, sender, at) if at > begin else []
    for held in carried.held:
        until = min(max(held.end, at), sent)
        if until > at:
            parts.append(Part("held", at, until, None, None, what=held.why))
            at = until
    if sent > at:
        parts.append(Part("held", at, sent, None, None, what=carried.held[-1].why))
    return parts


def between_kernels(
    here: Scheduling,
    sender: int,
    begin: int,
    carried: Carried,
    there: Scheduling,
    receiver: int,
    end: int,
    passage: Passage | None = None,
) -> tuple[list[Part], list[Part]]:
    """The parts of a hop from a kernel to another one, on the sender's side and on the other.

    The second begin when the message is on its way. The clocks' error may have it come before it
    was sent: it was on its way for no time then.
    """
    near = _given(here, sender, begin, carried, end)
    at = near[-1].end if near else begin
    came = min(max(carried.came, at), end)
    far = []
    stops = [("wire", came)]
    if passage is not None:
        stops[:0] = [
            ("wire", passage.came),
            ("link", passage.due),
            ("ring", passage.in_hand),
            ("late", passage.left),
            ("send", passage.returned),
        ]
    for name, until in stops:
        until = min(max(until, at), came)
        if until > at:
            far.append(Part(name, at, until, None, None))
            at = until
    if carried.taker is not None:
        if far and far[-1].name == "wire" and far[-1].end == came:
            wire = far.pop()
            far += _until_taken(there, carried, wire.start, came, wire.name)
        far += _since_taken(there, carried, came, receiver, end)
    elif end > came:
        on = split(there, None, came, receiver, end)
        if mostly_unknown(on):
            on = _from_socket(there, None, came, carried.ready, receiver, end)
        far += on
    return near, far
