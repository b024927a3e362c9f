"""One thing that was looked for on a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for. ``cost`` says what its absence means, empty if present."""

    what: str
    ok: bool
    found: str
    cost: str = ""


def either(what: str, ok: bool, yes: str, no: str, cost: str) -> Finding:
    """The finding ``yes``, or ``no`` with its cost."""
    return Finding(what, True, yes) if ok else Finding(what, False, no, cost)
