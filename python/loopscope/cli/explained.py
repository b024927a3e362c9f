"""A message that `loopscope why` explains, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopscope.analysis.message_packets import OnTheWay
    from loopscope.analysis.verdict import Verdict
    from loopscope.analysis.why import WhyHop, WhyMessage

_BAR = 30
"""Columns of the longest bar."""
_SMALL = 0.02
"""Parts of a hop below this share are not listed."""


def explained(
    path: str, message: WhyMessage, kind: str = "message", verdict: Verdict | None = None
) -> Iterator[str]:
    """The lines of a message: what it took, and its hops in parts."""
    from loopscope.analysis.why import summary

    yield summary(path, message, kind, verdict)
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
    if not hop.packets:
        return
    place = ""
    if hop.stream_place is not None:
        place = f" (it begins at byte {hop.stream_place} of its connection)"
    yield f"    its packets, after the first event, and the bytes of the message in each{place}:"
    every: list[OnTheWay] = [*hop.packets, *hop.calls]
    every.sort(key=lambda each: each.after_ns)
    width = max(len(each.told()) for each in every)
    for each in every:
        yield f"    {duration(each.after_ns):>9}  {each.told():<{width}}  {each.part()}"
