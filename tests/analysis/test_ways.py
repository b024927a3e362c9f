"""The way through a branching path that is explained: the only one, or an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loopscope.analysis.ways import way_of, ways_between
from loopscope.timeline import RunError

# a → b → d → e, a → c → d, d → f; g → c.
EVENTS = ["a", "b", "g", "c", "d", "e", "f"]
HOPS = [("a", "b"), ("a", "c"), ("g", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("d", "f")]


def path() -> Any:
    number = EVENTS.index
    hops = [(number(start), number(end)) for start, end in HOPS]
    sources, sinks = [number("a"), number("g")], [number("e"), number("f")]
    return SimpleNamespace(name="p", events=EVENTS, hops=hops, sources=sources, sinks=sinks)


def way(start: str | None = None, end: str | None = None, through: str | None = None) -> str:
    return "".join(EVENTS[each] for each in way_of(path(), start, end, through))


def test_a_way_is_what_the_events_leave_open() -> None:
    assert way("a", "e", "b") == way(None, "e", "b") == "abde"
    assert way("a", "e", "c") == "acde"
    assert way("g", "f") == "gcdf"
    assert way("d", "e") == way(end="e", start="d") == "de"
    assert way("a", "c") == "ac"
    found = ways_between(path(), EVENTS.index("a"), EVENTS.index("f"))
    assert sorted("".join(EVENTS[each] for each in of) for of in found) == ["abdf", "acdf"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("a", "e", None), "several ways, say which by .*: a → b → d → e; a → c → d → e"),
        ((None, None, None), "several ways"),
        (("e", "a", None), "no way"),
        (("g", "e", "b"), "no way"),
        (("a", "a", None), "no way"),
        (("x", "e", None), "no event 'x'; it has: a, b, g, c, d, e, f"),
    ],
)
def test_what_cannot_be_followed_is_said(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(RunError, match=said):
        way(*given)
