"""A message that `loopscope why` explains, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopscope.analysis.why import WhyHop, WhyMessage

_BAR = 30
"""Columns of the longest bar."""
_SIDE = 14
_SMALL = 0.02
"""Parts of a hop below this share are not listed."""


def explained(path: str, message: WhyMessage, kind: str = "message") -> Iterator[str]:
    """The lines of a message: what it took, and its hops in parts."""
    from loopscope.analysis.why import summary

    yield summary(path, message, kind)
    longest = max((part.ns for hop in message.hops for part in hop.parts), default=1)
    for hop in message.hops:
        yield from _of_hop(hop, longest)
    yield ""


def _of_hop(hop: WhyHop, longest: int) -> Iterator[str]:
    from loopscope.analysis.quantity_text import duration, maximum_error

    yield f"  {hop.first} → {hop.last}  {duration(hop.ns)} {maximum_error(hop.err_ns)}"
    if hop.unknown is not None:
        yield f"    unknown: {hop.unknown}"
    small = [part.ns for part in hop.parts if part.ns < _SMALL * hop.ns]
    for part in hop.parts:
        if part.ns >= _SMALL * hop.ns:
            bar = "█" * max(1, round(_BAR * part.ns / longest))
            yield f"    {duration(part.ns):>9}  {part.name:<9}  {bar:<{_BAR}}  {part.told()}"
    if small:
        parts = "1 part" if len(small) == 1 else f"{len(small)} parts"
        yield f"    {duration(sum(small)):>9}  {parts} below {100 * _SMALL:g} % of the hop"
    if hop.packets:
        yield "    its packets, after the first event, and the bytes of the message in each:"
    for packet in hop.packets:
        what = f"{'came to' if packet.came else 'left'} {packet.host}"
        bytes_of_it = f"{packet.first} to {packet.first + packet.bytes - 1}"
        again = ", again" if packet.again else ""
        yield f"    {duration(packet.after_ns):>9}  {what:<{_SIDE}}  {bytes_of_it}{again}"
