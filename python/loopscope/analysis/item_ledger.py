"""The way of a channel's item that goes in datagrams.

An item has several of them. Those of several items are on their way at a time, some are lost, and
what was lost is sent again, by other threads too. So a service records which part of an item it is
about to send: the datagram is the one that the thread gives to the queue before its next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loopscope.analysis.ledger import IN_QUEUE, Carried, Held, Traffic
from loopscope.analysis.udp_ledger import mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loopscope.analysis.ledger import Hop, Sending
    from loopscope.analysis.udp_ledger import Arrival, Drop, UdpLedger

AGAIN = "sent again, as it was taken for lost"
FULL_WINDOW = "the window of the channel's datagrams was full"


class _Datagram(NamedTuple):
    """A datagram with a part of an item."""

    sending: Sending
    sent: dict[str, int]
    """Its event where it was given to the queue."""
    given: int
    arrivals: tuple[Arrival, ...]
    """Those that its socket did not drop, by time."""


class _Item(NamedTuple):
    """The datagrams of an item to one host, by time."""

    datagrams: Sequence[_Datagram]
    last: int
    """The place of the one with which all parts had come."""


def carried(hop: Hop, here: UdpLedger, there: UdpLedger, *, packets: bool) -> Carried | None:
    """The way of an item: that of the datagram with which all of its parts had come.

    ``packets``: with those that it was in. None where it is not known.
    """
    item = _item(hop, here, there)
    if item is None:
        return None
    sending, sent, given, (arrival, *_) = item.datagrams[item.last]
    way = here.way(sent, given, arrival, hop.apart)
    if way is None:
        return None
    of_part = [
        place
        for place, each in enumerate(item.datagrams[: item.last + 1])
        if each.sending.part == sending.part
    ]
    held = _held(item, of_part, hop)
    if way.by != sent["tid"] and way.sent > given:
        held.append(Held(given, way.sent, IN_QUEUE))
    return Carried(
        "UDP",
        held[0].start if held else given,
        way.sent,
        way.by,
        way.came,
        way.ready,
        tuple(held),
        mark(sent),
        tuple(mark(item.datagrams[place].sent) for place in of_part),
        _traffic(item, hop, here, there) if packets else None,
    )


def traffic(hop: Hop, here: UdpLedger, there: UdpLedger) -> Traffic | None:
    """The packets of all datagrams of an item; None where one of them is not known."""
    item = _item(hop, here, there)
    return None if item is None else _traffic(item, hop, here, there)


def dropped(sendings: Sequence[Sending], here: UdpLedger, there: UdpLedger) -> Drop | None:
    """Where the kernels dropped a datagram of an item that did not come, of several the last.

    None where it is not known: no kernel did, or the item went to several hosts.
    """
    found = [each for sending in sendings if (each := here.given_as(sending)) is not None]
    if len({sent["ends"] for sent, _ in found}) > 1:
        return None
    drops = (here.drop_of(sent, given, there) for sent, given in reversed(found))
    return next((drop for drop in drops if drop is not None), None)


def _held(item: _Item, of_part: Sequence[int], hop: Hop) -> list[Held]:
    """How the service kept a part of an item, of which the datagrams at some places are.

    What is not sent at once, in the call that took the item, waits until less is on its way.
    """

    def is_later(each: _Datagram) -> bool:
        is_of_next = hop.until is not None and each.given >= hop.until
        return is_of_next or each.sending.tid != hop.sender

    first = item.datagrams[of_part[0]]
    held = []
    if is_later(first):
        at_once = [each.given for each in item.datagrams[: of_part[0]] if not is_later(each)]
        held.append(Held(max(at_once, default=hop.begin), first.given, FULL_WINDOW))
    if len(of_part) > 1:
        held.append(Held(first.given, item.datagrams[of_part[-1]].given, AGAIN))
    return held


def _item(hop: Hop, here: UdpLedger, there: UdpLedger) -> _Item | None:
    """None where one of the datagrams is not known, or with which one the item was whole."""
    found: list[_Datagram] = []
    for sending in hop.sendings or ():
        if not hop.begin <= sending.at <= hop.end + hop.apart:
            continue
        given_as = here.given_as(sending)
        if given_as is None:
            return None
        sent, given = given_as
        every = there.arrivals(sent, given - hop.apart, hop)
        arrivals = sorted(each for each in every if not there.has_dropped(sent, each))
        found.append(_Datagram(sending, sent, given, tuple(arrivals)))
    firsts: dict[int, tuple[Arrival, int]] = {}
    lasts: dict[int, tuple[Arrival, int]] = {}
    for place, datagram in enumerate(found):
        part = datagram.sending.part
        for arrival in datagram.arrivals:
            came = arrival, place
            firsts[part] = min(came, firsts.get(part, came))
            lasts[part] = max(came, lasts.get(part, came))
    if not found or len(firsts) < found[0].sending.parts:
        return None
    whole = max(firsts.values())
    # Where drops are not recorded, the socket may have dropped what came first.
    if not there.has_drops and max(lasts.values()) != whole:
        return None
    # Other hosts get the item from other sockets.
    last = found[whole[1]]
    own = [each for each in found if each.sent["ends"] == last.sent["ends"]]
    return _Item(own, own.index(last))


def _traffic(item: _Item, hop: Hop, here: UdpLedger, there: UdpLedger) -> Traffic | None:
    sizes = {each.sending.part: each.sending.bytes for each in item.datagrams}
    parts: list[Traffic] = []
    for place, (sending, sent, given, arrivals) in enumerate(item.datagrams):
        if arrivals:
            way = here.way(sent, given, arrivals[0], hop.apart)
            if way is None:
                return None
            of_one = here.traffic_of(way, there, hop, is_last=place == item.last)
        else:
            of_one = here.only_left(sent, given, hop)
        parts.append(of_one.moved(sum(sizes[part] for part in range(sending.part))))
    return Traffic.joined(parts)
