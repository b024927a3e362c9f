"""What the network's code did with a message, as the events of its packets tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]


IN_QUEUE = "in the queue of its device"


class Rows(NamedTuple):
    """Events of one thread, connection or packet, rising."""

    ts: Integers
    columns: dict[str, Integers]

    def upto(self, at: int) -> int:
        """The number of events until an instant."""
        return int(self.ts.searchsorted(at, side="right"))

    def row(self, place: int) -> dict[str, int]:
        """The columns of one."""
        return {name: int(column[place]) for name, column in self.columns.items()}

    def since(self, at: int) -> int:
        """The index of the first event from an instant on."""
        return int(self.ts.searchsorted(at, side="left"))

    def until(self, other: int | None, end: int) -> int:
        """The number of events until ``end`` and before ``other``, if there is one.

        Where messages are told from these events, that is the next message's.
        """
        upto = self.upto(end)
        return upto if other is None else min(self.since(other), upto)


class Held(NamedTuple):
    """A time in which the sender's network code kept a message, or bytes before it."""

    start: int
    end: int
    why: str


class Packet(NamedTuple):
    """A packet with bytes of a message, at a device."""

    ts: int
    came: bool
    """Whether it came to the receiver's machine; else it left the sender's."""
    first: int
    """Place of its first byte in the message."""
    bytes: int
    again: bool
    """Whether its first byte had left, or come, before."""


class Packets(NamedTuple):
    """Packets of a message at one device, a row for each, in the order of time."""

    ts: Integers
    err: Integers
    """Maximum error of ``ts``."""
    first: Integers
    """Place of its first byte in the message."""
    end: Integers
    """The same, after its last byte."""

    @property
    def again(self) -> npt.NDArray[np.bool_]:
        """Whether the first byte of each was in one before it."""
        found = np.zeros(len(self.ts), np.bool_)
        upto = np.maximum.accumulate(self.end)
        for row in np.flatnonzero(self.first[1:] < upto[:-1]) + 1:
            before = (self.first[:row] <= self.first[row]) & (self.first[row] < self.end[:row])
            found[row] = before.any()
        return found

    @staticmethod
    def joined(parts: Sequence[Packets]) -> Packets:
        """Those of several parts of a message."""
        columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Packets(*(column[order] for column in columns))


class Traffic(NamedTuple):
    """The packets of a message at both devices."""

    left: Packets
    """Those that left the sender's machine, with those that were lost later."""
    came: Packets
    """Those that came to the receiver's machine."""

    def listed(self) -> tuple[Packet, ...]:
        """All of them, by time."""
        found: list[Packet] = []
        for came, of in ((False, self.left), (True, self.came)):
            columns = (of.ts, of.first, of.end - of.first, of.again)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            found += [Packet(ts, came, first, count, again) for ts, first, count, again in rows]
        return tuple(sorted(found))


@dataclass(frozen=True)
class Carried:
    """A message's way through the network's code; instants are ns.

    Those up to ``sent`` are on the time line of the sender's kernel, the others on that of the
    receiver's.
    """

    protocol: str
    """TCP or UDP."""
    given: int
    """When its thread began to give away the last of its bytes."""
    sent: int
    """When the packet went out that made it whole at the receiver."""
    by: int
    """The thread in which that was."""
    came: int
    """When that packet came to the receiver's machine."""
    ready: int
    """When all of its bytes were in the receiver's socket, as far as it is told: not before
    ``came``."""
    held: tuple[Held, ...]
    """How it was kept between the two: one after the other, until ``sent``. Empty: it was not."""
    packets: tuple[Packet, ...] = ()
    """Those that it was in, if they were asked for; none of those that were lost came."""


def coded(column: Any) -> tuple[Integers, list[str]]:
    """A column of texts as numbers, and the text of each number."""
    found = column.dictionary_encode().combine_chunks()
    return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()


def groups(keys: list[Integers]) -> Iterator[tuple[list[int], Integers]]:
    """The rows of each combination of keys, rising."""
    order = np.lexsort(keys)
    if not len(order):
        return
    changes = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    for at in np.split(order, np.flatnonzero(changes) + 1):
        yield [int(key[at[0]]) for key in keys], at
