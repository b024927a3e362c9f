"""Common starts: how far apart the components of a phase began it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loopscope.control.components import State


def start_of(phase: str, at_ns: int, states: Iterable[State]) -> dict[str, Any]:
    """Entry of the manifest's ``starts`` (schema/run-directory.md).

    A component that did not say when it began, or whose host's time was unknown, is null there.
    """
    components: dict[str, dict[str, int] | None] = {}
    for state in states:
        began = state.began.get(phase)
        components[state.spec.name] = None
        if began is not None and began.middle_ns is not None and began.within_ns is not None:
            late = began.middle_ns - at_ns
            components[state.spec.name] = {"late_ns": late, "within_ns": began.within_ns}
    known = sorted(
        (each["late_ns"], each["within_ns"]) for each in components.values() if each is not None
    )
    whole = len(known) > 1 and len(known) == len(components)
    return {
        "at_ns": at_ns,
        "components": components,
        "skew_ns": known[-1][0] - known[0][0] if whole else None,
        "skew_within_ns": known[-1][1] + known[0][1] if whole else None,
    }
