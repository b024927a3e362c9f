"""Packets on emulated links, known by what their headers say.

Where a run records the kernel's events of TCP or UDP, what emulates its links records
``link:packet`` for each packet: ports, length, and its sequence number or a hash of its content. So
a message's packets are found there as on the hosts, however many they are and whatever their
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.hop_decomposition import NOT_KNOWN, Link, Passage, packets_of, with_hosts
from loopscope.analysis.ledger import UDP, Mark, Rows, groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from loopscope.analysis.ledger import Carried
    from loopscope.timeline import Run

TABLE = "link.packet"
_HEADER = 8
"""Bytes of UDP's own header, which is in the first fragment."""
_Key = tuple[int, ...]


class OnLink(NamedTuple):
    """A packet with bytes of a message on an emulated link; instants are global ns."""

    came: int
    left: int | None
    """None: it was lost there."""
    first: int
    """Place of its first byte in the message."""
    bytes: int


class LinkPackets:
    """The packets of a run's emulated links."""

    def __init__(self, run: Run) -> None:
        """Raises `RunError` where the tables cannot be read."""
        self._whole: dict[_Key, Rows] = {}
        self._fragments: dict[_Key, Rows] = {}
        self._links: dict[Link, int] = {}
        passed = packets_of(run) if TABLE in run.tables else None
        if passed is None:
            return
        ends = 'repeat, "from", "to", number'
        packets = run.relation(TABLE).project(
            'repeat, "from", "to", id AS number, protocol, source, target, '
            "mark, bytes, fragment // 65536 AS fragment_id, fragment % 65536 AS place"
        )
        found = with_hosts(run, packets.join(passed, ends))
        texts = found.project("sender, receiver").distinct().fetchall()
        self._links = {link: number for number, link in enumerate(texts)}
        always = (
            "repeat", "protocol", "source", "target", "mark", "bytes", "fragment_id", "place",
            "came", "taken",
        )  # fmt: skip
        unless_lost = ("left", "left_err", "late", "tid", "returned")
        names = (*always, *unless_lost)
        told = ", ".join(
            (*always, *(f'coalesce("{name}", {NOT_KNOWN}) AS "{name}"' for name in unless_lost))
        )
        table = found.project(f"sender, receiver, {told}").order("came").to_arrow_table()
        columns = {name: table[name].to_numpy().astype(np.int64) for name in names}
        pairs = zip(table["sender"].to_pylist(), table["receiver"].to_pylist(), strict=True)
        link = np.array([self._links[pair] for pair in pairs], np.int64)
        of = columns["repeat"], link, columns["protocol"]
        kinds = (
            (self._whole, (columns["source"], columns["target"])),
            (self._fragments, (columns["fragment_id"],)),
        )
        for into, keys in kinds:
            for key, at in groups([*of, *keys]):
                rows = {name: column[at] for name, column in columns.items()}
                into[tuple(key)] = Rows(columns["came"][at], rows)

    def passage(
        self, repeat: int, link: Link, carried: Carried, since: int, until: int
    ) -> Passage | None:
        """A message's passage of a link, which it came to from ``since`` on and left by ``until``.

        It is that of the packet that made it whole; of a segment that was sent again, or a datagram
        in fragments, the last. Losses are those of all packets that the message is known to have.
        None where it is not known.
        """
        rows, at = self._of(repeat, link, carried.last, since, until)
        if rows is None:
            return None
        left, err = rows.columns["left"][at], rows.columns["left_err"][at]
        gone = at[(left != NOT_KNOWN) & (left - err <= until)]
        if not len(gone) or (carried.last.is_whole_datagram and len(gone) > 1):
            return None
        row = rows.row(int(gone[-1]))
        marks = carried.marks or (carried.last,)
        every = self.listed(repeat, link, marks, since, row["came"])
        losses = sum(packet.left is None for packet in every)
        return Passage(
            link=link,
            came=row["came"],
            left=row["left"],
            late=row["late"],
            tid=row["tid"],
            losses=losses,
            taken=None if row["taken"] == NOT_KNOWN else row["taken"],
            returned=row["returned"],
        )

    def listed(
        self, repeat: int, link: Link, marks: Sequence[Mark], since: int, until: int
    ) -> Iterator[OnLink]:
        """The packets of a message that came to a link in a time."""
        for mark in marks:
            rows, at = self._of(repeat, link, mark, since, until)
            for place in at.tolist() if rows is not None else ():
                assert rows is not None
                row = rows.row(place)
                if mark.protocol == UDP:
                    first, count = max(row["place"] - _HEADER, 0), row["bytes"]
                else:
                    offset = int(mark.after(row["mark"]))
                    first = max(offset, 0)
                    count = min(offset + row["bytes"], mark.bytes) - first
                left = None if row["left"] == NOT_KNOWN else row["left"]
                yield OnLink(row["came"], left, mark.place + first, count)

    def _of(
        self, repeat: int, link: Link, mark: Mark, since: int, until: int
    ) -> tuple[Rows | None, npt.NDArray[np.int64]]:
        """The packets of a link and which of them, in a time, the mark is of."""
        of = repeat, self._links.get(link, NOT_KNOWN), mark.protocol
        if mark.fragment is not None:
            rows = self._fragments.get((*of, mark.fragment))
        else:
            rows = self._whole.get((*of, mark.source, mark.target))
        if rows is None:
            return None, np.empty(0, np.int64)
        within = slice(rows.since(since), rows.upto(until))
        columns = {name: column[within] for name, column in rows.columns.items()}
        if mark.fragment is not None:
            found = np.ones(len(columns["mark"]), np.bool_)
        elif mark.protocol == UDP:
            found = (columns["mark"] == mark.mark) & (columns["bytes"] == mark.bytes)
        else:
            offset = mark.after(columns["mark"])
            count = columns["bytes"]
            found = (count > 0) & (offset < mark.bytes) & (offset + count > 0)
        return rows, within.start + np.flatnonzero(found)
