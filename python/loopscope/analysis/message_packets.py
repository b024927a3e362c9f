"""The packets of single messages, and the calls that wrote and read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from loopscope.analysis.document import OPTIONAL, UNLESS_EMPTY, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loopscope.analysis.ledger import Traffic
    from loopscope.analysis.link_packets import OnLink


@dataclass(frozen=True)
class OnTheWay(Document, ABC):
    """Bytes of a message at a point of their way from host to host."""

    after_ns: int
    """Since the hop's first event, ns."""
    host: str
    came: bool
    """Whether they came there; else they went from there."""
    first: int
    """Place of the first of them in the message."""
    bytes: int

    @abstractmethod
    def told(self) -> str:
        """What happened there, in words."""

    def part(self) -> str:
        """The bytes of the message: `0 to 1447`."""
        return f"{self.first} to {self.first + self.bytes - 1}"


@dataclass(frozen=True)
class WhyPacket(OnTheWay):
    """A packet with bytes of a message, at a device of one of the two hosts, or on a link."""

    again: bool
    """Whether its first byte had come there, or gone from there, before."""
    link: Annotated[str, UNLESS_EMPTY] = ""
    """The emulated link that ``host`` had it on; empty: it was at ``host`` itself."""
    lost: Annotated[bool, UNLESS_EMPTY] = False
    """Whether that link lost it."""

    def told(self) -> str:
        """`left h1`, `came to the link h1 → h2`."""
        did = "lost by" if self.lost else "came to" if self.came else "left"
        return f"{did} {f'the link {self.link}' if self.link else self.host}"

    def part(self) -> str:
        """The bytes of the message in it: `0 to 1447, again`."""
        return f"{super().part()}{', again' if self.again else ''}"


@dataclass(frozen=True)
class WhyCall(OnTheWay):
    """A system call that read bytes of a message (``came``), or wrote them.

    The instant is when the network's code gave or took them.
    """

    syscall: Annotated[str | None, OPTIONAL] = None
    """Its name. None: the calls of its thread were not recorded."""

    def told(self) -> str:
        """`written on h1, in sendto`."""
        call = f", in {self.syscall}" if self.syscall else ""
        return f"{'read' if self.came else 'written'} on {self.host}{call}"


def packets(
    traffic: Traffic,
    on_link: Iterable[OnLink],
    hosts: tuple[str, str],
    emulator: str,
    begins: tuple[int, int],
) -> tuple[WhyPacket, ...]:
    """The packets of a message at both hosts and on the link that ``emulator`` has, by time.

    ``begins``: when the hop began, on the time lines of the sender's and of the receiver's kernel.
    """
    found = [
        WhyPacket(
            each.ts - begins[each.came],
            hosts[each.came],
            each.came,
            each.first,
            each.bytes,
            each.again,
        )
        for each in traffic.listed()
    ]
    link = " → ".join(hosts)
    upto = 0
    for each in on_link:
        again = each.first < upto
        upto = max(upto, each.first + each.bytes)
        for at, came in ((each.came, True), (each.left, False)):
            after = (each.came if at is None else at) - begins[1]
            place = each.first, each.bytes
            found.append(WhyPacket(after, emulator, came, *place, again, link, lost=at is None))
    return tuple(sorted(found, key=lambda each: each.after_ns))


def calls(
    traffic: Traffic,
    hosts: tuple[str, str],
    begins: tuple[int, int],
    named: Callable[[bool, int], str | None],
) -> tuple[WhyCall, ...]:
    """The calls that wrote and read a message; ``begins`` as of `packets`.

    ``named``: the name of that which the sender, or the receiver, was in at an instant.
    """
    return tuple(
        WhyCall(
            each.ts - begins[each.came],
            hosts[each.came],
            each.came,
            each.first,
            each.bytes,
            named(each.came, each.ts),
        )
        for each in traffic.calls
    )
