"""The order of phases that wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def in_order(after: Mapping[str, Iterable[str]]) -> list[str]:
    """Names such that each comes after all it waits for, ties in the mapping's order.

    Names that can never come are left out: they wait for a name that the mapping has not, for a
    cycle, or for such a one.
    """
    waiting = {name: set(names) for name, names in after.items()}
    order: list[str] = []
    while True:
        ready = next((name for name, names in waiting.items() if names <= set(order)), None)
        if ready is None:
            return order
        order.append(ready)
        del waiting[ready]


def cycle(after: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Names that wait for each other, each for its successor and the last for the first."""
    blocked = {name: list(names) for name, names in after.items()}
    for name in in_order({name: [n for n in names if n in after] for name, names in after.items()}):
        del blocked[name]
    if not blocked:
        return None
    # Every blocked name waits for a blocked one, so the walk comes round.
    walk = [next(iter(blocked))]
    while True:
        following = next(name for name in blocked[walk[-1]] if name in blocked)
        if following in walk:
            found = walk[walk.index(following) :]
            first = min(found, key=list(after).index)
            start = found.index(first)
            return found[start:] + found[:start]
        walk.append(following)
