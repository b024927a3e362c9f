"""Components that ended otherwise than they should have, and what that leaves open.

What a program recorded is kept whatever ends it. What it would have recorded, and was kept from by
a signal while it was ending, nobody knows: how many of its events are missing is then unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopscope.analysis.measured_links import is_links

if TYPE_CHECKING:
    from loopscope.timeline import Run
    from loopscope.timeline.exits import Exit


def unfinished(run: Run) -> set[tuple[int, str]]:
    """Repeats and components that were kept from finishing, or of which that is not known."""
    speakers = _speakers(run)
    found = {(each.repeat, each.component) for each in run.exits if _cut_short(each, speakers)}
    return found | {(repeat, component) for repeat, _, component in run.without_exit}


def endings(run: Run) -> list[str]:
    """Messages about components that ended in another way than they should, for people."""
    speakers = _speakers(run)
    found = []
    for each in run.exits:
        of = f"{each.component} on {each.host}, repeat {each.repeat}"
        if why := _cut_short(each, speakers):
            found.append(f"{of}: {why}; what it had not written or recorded by then is missing")
    for repeat, host, component in run.without_exit:
        found.append(
            f"{component} on {host}, repeat {repeat}: how it ended is not known, its exit.json is "
            "not there"
        )
    left: list[dict[str, str]] = run.manifest.get("left", [])
    exits = {(each.repeat, each.component): each for each in run.exits}
    for repeat, components in enumerate(left, start=1):
        for component, phase in components.items():
            ended = exits.get((repeat, component))
            how = f" ({ended.how})" if ended else ""
            found.append(
                f"{component}, repeat {repeat}: ended by itself{how} in phase {phase}, before the "
                "run was over"
            )
    return found


def collecting(run: Run) -> list[str]:
    """Messages about hosts of which not all that they measured is here, for people."""
    found = []
    for key in ("unfinished", "uncollected"):
        repeats: list[dict[str, str]] = run.manifest.get(key, [])
        for repeat, hosts in enumerate(repeats, start=1):
            found += [f"repeat {repeat}, {text}" for text in hosts.values()]
    return found


def _speakers(run: Run) -> set[str]:
    """Components that are asked by the phase protocol's `end`."""
    components: list[dict[str, Any]] = run.manifest.get("experiment", {}).get("components", [])
    speak = {each["name"] for each in components if each["ready"].get("rule") == "phases"}
    return speak | {each.component for each in run.exits if is_links(each.component)}


def _cut_short(each: Exit, speakers: set[str]) -> str | None:
    """Why it did not finish; None where it did, as far as it shows."""
    speaks = each.component in speakers
    if each.signal is not None:
        if each.by_what_was_asked and each.asked == "SIGTERM" and not speaks:
            return None
        if each.by_what_was_asked:
            return f"it did not end in time when it was asked to, and was {each.how}"
        return f"{each.how} as it ended" if each.asked else each.how
    if each.code and speaks and each.asked == "end":
        return f"asked to end, it ended with {each.how}"
    return None
