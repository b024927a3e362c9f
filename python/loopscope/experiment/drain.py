"""Time that a run waits for messages that are still under way, before it ends its programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopscope.strict_json import to_json

from . import plan
from .measures import Path

# For a router and programs that a busy machine lets wait.
_MARGIN_NS = 200_000_000


def default_ns(emulation: plan.Emulation | None, paths: Sequence[Path]) -> int:
    """Default of `drain`, ns: the time for which links can hold a message.

    It is behind full queues, with all jitter, by their slowest settings, over as many links as a
    path has one after the other.
    """
    if emulation is None:
        return _MARGIN_NS
    held = {
        (link.source, link.target): _longest_ns(link, emulation.mover) for link in emulation.links
    }
    return _MARGIN_NS + max([0, *held.values(), *(_on_way_ns(path, held) for path in paths)])


def _longest_ns(link: plan.Link, mover: str) -> int:
    """The longest of all its settings, which are right."""
    from loopscope._native import link_longest_ns

    settings, longest = dict(link.settings), 0
    for change in ({}, *(step.set for step in link.steps)):
        settings |= change
        given = {name: value for name, value in settings.items() if value is not None}
        longest = max(longest, link_longest_ns(to_json(given), mover == "netem"))
    return longest


def _on_way_ns(path: Path, held: Mapping[tuple[str, str], int]) -> int:
    """The longest that a message is in links from the path's beginning to its end."""
    until = [0] * len(path.events)
    # Each event comes after what it is made of.
    for first, last in sorted(path.hops):
        link = path.events[first].host, path.events[last].host
        until[last] = max(until[last], until[first] + held.get(link, 0))
    return max(until)
